"""Blobs that say what they are, and a judge of what several clients saw of them."""

import random
import struct
import time

STAMP = struct.Struct("<QQ")


def blob(key, turn, size):
    """The bytes of one put, like no other's: they begin with what they are, and the rest follows from that, so that a
    piece of another blob, or of this one in another place, is seen."""
    stamp = STAMP.pack(key % (1 << 64), turn)
    return stamp + random.Random(stamp).randbytes(size - len(stamp))


def turn_of(body, key):
    """Which put of key this is. Bytes that no one put there are an AssertionError."""
    said, turn = STAMP.unpack_from(body)
    if said != key % (1 << 64) or body != blob(key, turn, len(body)):
        raise AssertionError(f"torn: a blob of key {key} begins with key {said}, turn {turn}")
    return turn


class History:
    """What several clients did with some keys, each with the times between which it must have happened; and whether
    what they read can be explained. A turn is used for one put."""

    def __init__(self):
        self.changes, self.reads = {}, {}  # key: [(began, ended, turn; None for a removal or a miss)]

    def change(self, key, turn, call):
        """Call returns whether it is done. Not: then nobody may ever see it. Without an answer it may happen at any
        time."""
        began = time.monotonic_ns()
        ended = float("inf")
        try:
            if not call():
                return
            ended = time.monotonic_ns()
        except (EOFError, OSError):
            pass
        self.changes.setdefault(key, []).append((began, ended, turn))

    def read(self, key, call):
        began = time.monotonic_ns()
        turn = call()
        self.reads.setdefault(key, []).append((began, time.monotonic_ns(), turn))

    def judge(self, may_forget=False):
        """Every read saw a change that had begun when the read ended, and that no other had wholly replaced before the
        read began. may_forget: what is evicted is gone, and a miss always explained. Returns how many were judged."""
        n = 0
        for key, reads in self.reads.items():
            changes = [(-1, -1, None), *self.changes.get(key, [])]
            for began, ended, turn in reads:
                if turn is None and may_forget:
                    continue
                latest = max(start for start, end, _ in changes if end < began)
                if not any(t == turn and start < ended and end >= latest for start, end, t in changes):
                    raise AssertionError(f"key {key}: turn {turn} was read, which nobody had put, or which was "
                                         "replaced before that")
                n += 1
        return n
