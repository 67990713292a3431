"""Two ends whose ports have different MTUs: what both set their QPs to."""

import os

from lab import BUILD, DEVICES, OneHost, note, output

PROGRAM = os.path.join(BUILD, "tests", "vm", "programs", "rail_set_test")


class Sets(OneHost):
    def with_mtu(self, interface, mtu):
        with open(f"/sys/class/net/{interface}/mtu", encoding="ascii") as f:
            was = f.read().strip()
        output("ip", "link", "set", interface, "mtu", mtu)
        self.addCleanup(output, "ip", "link", "set", interface, "mtu", was)

    def test_ends_that_agree_take_the_smaller_mtu_and_read_depth_whichever_has_it(self):
        self.with_mtu("rail1", "1500")
        note(output(PROGRAM, *DEVICES))
        note(output(PROGRAM, *reversed(DEVICES)))
