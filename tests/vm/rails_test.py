"""That the guest is what the other tests take it for: two rails that work, without a byte of ours."""

from lab import DEVICES, OneHost, note, resources
from rail_read import perftest_rate


class Rails(OneHost):
    def test_two_devices_have_an_active_port_and_a_gid_of_roce_v2(self):
        for i, device in enumerate(DEVICES):
            port = f"/sys/class/infiniband/{device}/ports/1"
            with open(f"{port}/state", encoding="ascii") as state:
                self.assertIn("ACTIVE", state.read())
            with open(f"{port}/gid_attrs/types/1", encoding="ascii") as kind:
                self.assertIn("RoCE v2", kind.read())
            with open(f"{port}/gids/1", encoding="ascii") as gid:
                self.assertEqual(gid.read().strip(), f"0000:0000:0000:0000:0000:ffff:0a4d:0{i}01")

    def test_perftest_reads_on_either(self):
        before = resources()
        for device in DEVICES:
            rate = perftest_rate([device], "-s", "65536", "-n", "50")
            note(f"{device}: ib_read_bw of 64 KiB {rate:.0f} MB/s")
            self.assertGreater(rate, 0)
        self.assertEqual(resources(), before)
