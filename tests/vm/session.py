"""libpenstock in the tests' own process: for what goes on inside one session."""

import ctypes as c
import os
import select
import sys

from lab import BUILD, HERE

sys.path.append(os.path.join(HERE, "..", "python"))

import penstock_ctypes as pen  # noqa: E402

LIB = pen.load(os.path.join(BUILD, "src", "client", "libpenstock.so"))
AUTO, RDMA, TCP = 0, 1, 2


class Refused(Exception):
    """A call's error, in its own words."""

    def __init__(self, error):
        super().__init__(error.message.decode())
        self.code = error.code


class Session:
    """Of one model, with memory for its first shard."""

    def __init__(self, peer, name, rails=None, **options):
        self.session, self.error = c.c_void_p(), pen.Error()
        options = pen.Options(rails=rails and rails.encode(), **{"transport": RDMA, **options})
        if LIB.penstock_weights_open(("%s:%d" % peer.address).encode(), name.encode(), None, options,
                                     c.byref(self.session), self.error):
            raise Refused(self.error)
        self.len_bytes = LIB.penstock_catalogue_file(LIB.penstock_session_catalogue(self.session), 0)[0].len_bytes
        self.memory = c.create_string_buffer(self.len_bytes)
        self.region = c.c_uint32()
        memory = pen.Memory(address=c.addressof(self.memory), len_bytes=self.len_bytes)
        if LIB.penstock_register(self.session, memory, self.region, self.error):
            raise Refused(self.error)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIB.penstock_session_free(self.session)

    def range(self, len_bytes):
        ranges = (pen.Range * 1)(pen.Range(len_bytes=len_bytes))
        return pen.Read(ranges=ranges, count=1, region=self.region)

    def read(self, len_bytes=None):
        """The shard's first bytes, or all of them."""
        len_bytes = len_bytes or self.len_bytes
        if LIB.penstock_read_wait(self.session, self.range(len_bytes), self.error):
            raise Refused(self.error)
        return self.memory.raw[:len_bytes]

    def submit(self):
        """Reads the whole shard, without waiting."""
        op = c.c_uint64()
        if LIB.penstock_submit(self.session, self.range(self.len_bytes), op, self.error):
            raise Refused(self.error)
        return op

    def wait(self, op):
        done = pen.Completion()
        if LIB.penstock_wait(self.session, op, done, self.error):
            raise Refused(self.error)
        return self.memory.raw

    def is_quiet(self):
        """Polls, and says whether a loop of the caller's own would sleep then."""
        n = c.c_size_t()
        if LIB.penstock_poll(self.session, None, 0, n):
            raise Refused(self.error)
        return not select.select([LIB.penstock_fd(self.session)], [], [], 0)[0]

    def rails(self):
        found = []
        for i in range(LIB.penstock_session_rails(self.session)):
            info = pen.RailInfo()
            assert LIB.penstock_session_rail(self.session, i, info) == 0
            found.append(info)
        return found
