"""src/verbs and src/rail on devices that exist, by programs of C."""

from lab import DEVICES, OneHost, note, output, program


class Verbs(OneHost):
    def test_what_verbs_promise_holds_on_a_device(self):
        output(program("verbs_device_test"))


class Sets(OneHost):
    def with_mtu(self, interface, mtu):
        with open(f"/sys/class/net/{interface}/mtu", encoding="ascii") as f:
            was = f.read().strip()
        output("ip", "link", "set", interface, "mtu", mtu)
        self.addCleanup(output, "ip", "link", "set", interface, "mtu", was)

    def test_ends_that_agree_take_the_smaller_mtu_and_read_depth_whichever_has_it(self):
        self.with_mtu("rail1", "1500")
        for devices in (DEVICES, DEVICES[::-1]):
            for line in output(program("rail_set_test"), *devices).splitlines():
                if line.startswith(("client: ", "peer: ")):
                    note(line)
