"""How the peer holds the pages it serves from (--hold). This depends on the kernel: Linux registers read-only mappings
of files from 6.2 on."""

import os
import platform

from lab import MIB, OneHost, memory_kib, model, note, shards_of

MAPS = tuple(int(part) for part in platform.release().split(".")[:2]) >= (6, 2)
MODEL_BYTES = 8 * MIB


def free_huge_pages(n):
    with open("/proc/sys/vm/nr_hugepages", "w", encoding="ascii") as out:
        out.write(str(n))


class Hold(OneHost):
    def setUp(self):
        super().setUp()
        self.addCleanup(free_huge_pages, 0)
        self.model = model("held", total_bytes=MODEL_BYTES, n_shards=2)

    def assert_held(self, asked, how, copied):
        """The peer holds it that way, it has so much anonymous memory, and what is read is right."""
        peer = self.serve(self.model, options=("--hold", asked))
        said = peer.wait_for_log(r"held: registered 2 shards.* held by (\w+) .*")
        self.assertEqual(said.group(1), how, said.group(0))
        note(f"Linux {platform.release()}, --hold {asked}: {said.group(0)}")
        anonymous = memory_kib(peer.process.pid, "RssAnon") * 1024
        self.assertEqual(anonymous > MODEL_BYTES, copied, f"{anonymous} bytes of anonymous memory")
        self.assert_same(self.pull(peer, "held", "--transport", "rdma"), self.model)
        self.assertNotIn("page cache", said.group(0), "ext4 has O_DIRECT")

    def assert_on_tcp_only(self, asked, why):
        peer = self.serve(self.model, options=("--hold", asked))
        note(peer.wait_for_log(f"held: served over TCP only: .*{why}.*").group(0))
        self.assert_same(self.pull(peer, "held", "--transport", "tcp"), self.model)

    def test_auto_takes_the_files_own_pages_where_the_kernel_registers_them(self):
        self.assert_held("auto", "map" if MAPS else "copy", copied=not MAPS)

    def test_auto_prefers_huge_pages_to_a_copy(self):
        free_huge_pages(16)
        self.assert_held("auto", "map" if MAPS else "huge", copied=False)

    def test_map_alone_is_refused_in_words_where_the_kernel_cannot(self):
        if MAPS:
            self.assert_held("map", "map", copied=False)
        else:
            self.assert_on_tcp_only("map", "6.2")

    def test_copy_is_right_and_takes_what_the_model_takes(self):
        self.assert_held("copy", "copy", copied=True)

    def test_huge_is_right_where_there_are_pages(self):
        free_huge_pages(16)
        self.assert_held("huge", "huge", copied=False)

    def test_huge_is_refused_in_words_where_there_are_none(self):
        self.assert_on_tcp_only("huge", "nr_hugepages")

    def test_a_ceiling_below_the_copy_leaves_the_model_on_tcp(self):
        """The model itself fits, and the copy beside it does not."""
        size = sum(os.path.getsize(path) for path in shards_of(self.model))
        peer = self.serve(self.model, options=("--hold", "copy", "--max-memory", str(size + MIB)))
        note(peer.wait_for_log(r"held: served over TCP only: .*").group(0))
