"""Two rails of one thread beside two ib_read_bw. On Linux 6.4 and later: before it Soft-RoCE moves every packet on the
processor that rang the doorbell, so that one thread's rails share one and two processes have two. (There a thread a
rail moved 303 MB/s, two ib_read_bw 269, one thread with both rails 149.)"""

from beside_perftest import BesidePerftest
from lab import DEVICES, MIB


class TwoRails(BesidePerftest):
    def test_two_rails_contiguous(self):
        # Long enough that its two processes, which do not begin at the same moment, are mostly at it together.
        self.assert_keeps_up("16 MiB, 2 rails", DEVICES, f"whole {16 * MIB}", ("-s", str(MIB), "-n", "96"))
