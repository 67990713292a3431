#!/usr/bin/env python3
"""penstock wire: every record both ways, exact numbers, and what it refuses. Usage: wire_test.py PENSTOCK"""

import json
import os
import select
import subprocess
import sys
import unittest

PENSTOCK = sys.argv.pop(1)


def run(*args, data=b""):
    return subprocess.run([PENSTOCK, "wire", *args], input=data, capture_output=True, timeout=60)


def gid(first):
    return bytes(range(first, first + 16)).hex()


QP = "01 02 03 04 05 06 07 08 "
SERVER = {
    "qpn": 0x04030201, "psn": 0x08070605, "gid": gid(0x20),
    "layers": [{"base": 0x1122334455667788, "rkey": 0x99AABBCC}, {"base": 0xDEADBEEF0BADF00D, "rkey": 0x01020304}],
}
SERVER_HEX = QP + gid(0x20) + "02 00 00 00 88 77 66 55 44 33 22 11 CC BB AA 99 0D F0 AD 0B EF BE AD DE 04 03 02 01"

# The frozen examples of protocol 1.2.
GOLDEN = {
    "verbs-client-params": (QP + gid(0x10), {"qpn": 0x04030201, "psn": 0x08070605, "gid": gid(0x10)}),
    "verbs-server-params": (SERVER_HEX, SERVER),
    "cache-server-params": (
        QP + gid(0x50) + "88 77 66 55 44 33 22 11 CC BB AA 99",
        {"qpn": 0x04030201, "psn": 0x08070605, "gid": gid(0x50), "base": 0x1122334455667788, "rkey": 0x99AABBCC},
    ),
    "server-rails": ("02" + SERVER_HEX + SERVER_HEX, [SERVER, SERVER]),
    "model-request": ("02 00 00 00 6D 37", {"model": "m7"}),
    "expert-request": ("04 03 02 01 08 07 06 05", {"layer": 0x01020304, "expert": 0x05060708}),
    "paging-header": (
        "02 00 00 00 45 47 41 50 01 00 20 00 00 00 00 00 00 80 00 00 00 00 00 00 00",
        {"kind": 1, "arena_bytes": 0x2000, "blob_bytes": 0x80},
    ),
}


class Wire(unittest.TestCase):
    def refused(self, result, message, status=1):
        self.assertEqual(result.returncode, status)
        self.assertEqual(result.stdout, b"")
        self.assertIn(message, result.stderr.decode())

    def test_golden_bytes_decode_to_one_line_of_compact_json(self):
        for record, (text, value) in GOLDEN.items():
            with self.subTest(record):
                result = run("decode", record, data=bytes.fromhex(text))
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout.decode(), json.dumps(value, separators=(",", ":")) + "\n")

    def test_json_encodes_to_golden_bytes(self):
        for record, (text, value) in GOLDEN.items():
            with self.subTest(record):
                result = run("encode", record, data=json.dumps(value, indent=2).encode())
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout, bytes.fromhex(text))

    def test_64_bit_numbers_are_exact(self):
        for base in (2**53 + 1, 2**63, 2**64 - 1):
            value = dict(GOLDEN["cache-server-params"][1], base=base)
            encoded = run("encode", "cache-server-params", data=json.dumps(value).encode()).stdout
            self.assertEqual(int.from_bytes(encoded[24:32], "little"), base)
            self.assertEqual(json.loads(run("decode", "cache-server-params", data=encoded).stdout), value)

    def test_every_record_cut_short_fails(self):
        for record, (text, _) in GOLDEN.items():
            with self.subTest(record):
                self.refused(run("decode", record, data=bytes.fromhex(text)[:-1]), ": end of input")
                self.refused(run("decode", record), ": end of input")

    def test_short_reads_name_the_field(self):
        server = bytes.fromhex(SERVER_HEX)
        for n, field in ((3, "read u32"), (23, "read server gid"), (27, "read u32"), (35, "read mr base")):
            self.refused(run("decode", "verbs-server-params", data=server[:n]), f"penstock wire: {field}: end of input\n")

    def test_bytes_left_over_are_refused(self):
        for record, (text, _) in GOLDEN.items():
            with self.subTest(record):
                self.refused(run("decode", record, data=bytes.fromhex(text) + b"!"), "1 byte left over after a record of ")

    def test_malformed_bytes_have_the_messages_of_the_protocol(self):
        head = bytes.fromhex(SERVER_HEX)[:24]
        self.refused(run("decode", "verbs-server-params", data=head + bytes(4)), "implausible verbs layer count: 0\n")
        self.refused(run("decode", "verbs-server-params", data=head + b"\x01\x10\0\0"),
                     "implausible verbs layer count: 4097\n")
        self.refused(run("decode", "server-rails", data=b"\0"), "implausible server rail count: 0\n")
        self.refused(run("decode", "server-rails", data=b"\x09"), "implausible server rail count: 9\n")
        self.refused(run("decode", "server-rails", "--rails", "3", data=b"\x02"),
                     "server framed 2 rails but client negotiated 3\n")
        self.refused(run("decode", "model-request", data=bytes(4)), "implausible model request length: 0\n")
        self.refused(run("decode", "model-request", data=b"\x01\x20\0\0"), "implausible model request length: 8193\n")
        self.refused(run("decode", "paging-header", data=b"\x01\0\0\0EGAP"), "version 1 is retired")

    def test_json_that_is_no_such_record_is_refused(self):
        client = GOLDEN["verbs-client-params"][1]
        cases = [
            ("verbs-client-params", dict(client, layers=[]), 'field "layers"'),
            ("verbs-client-params", {"qpn": 1, "psn": 2}, 'field "gid"'),
            ("verbs-client-params", dict(client, gid="12"), 'field "gid": not 32 hex digits'),
            ("verbs-client-params", dict(client, gid="x" * 32), 'field "gid": not 32 hex digits'),
            ("verbs-client-params", dict(client, qpn=2**32), 'field "qpn"'),
            ("verbs-client-params", dict(client, qpn=-1), 'field "qpn"'),
            ("verbs-client-params", dict(client, qpn=1.5), 'field "qpn"'),
            ("verbs-client-params", [], "an object"),
            ("server-rails", {}, "an array"),
            ("server-rails", [], "implausible server rail count: 0\n"),
            ("server-rails", [SERVER] * 9, "implausible server rail count: 9\n"),
            ("server-rails", [SERVER, 7], "rail 1: "),
            ("model-request", {"model": ""}, "implausible model request length: 0\n"),
            ("model-request", {"model": "m" * 8193}, "implausible model request length: 8193\n"),
            ("model-request", {"model": 7}, 'field "model"'),
            ("paging-header", {"kind": 2, "arena_bytes": 1, "blob_bytes": 0}, "unknown paging kind: 2\n"),
        ]
        for record, value, message in cases:
            with self.subTest(record=record, message=message):
                self.refused(run("encode", record, data=json.dumps(value).encode()), message)
        self.refused(run("encode", "expert-request", data=b'{"layer":1,"layer":1,"expert":2}'), "layer")
        self.refused(run("encode", "expert-request", data=b"{"), "JSON")

    def test_bytes_are_not_written_to_a_terminal(self):
        try:
            master, terminal = os.openpty()
        except OSError as error:  # a chroot without /dev/pts
            self.skipTest(f"no terminal to be had: {error}")
        try:
            result = subprocess.run([PENSTOCK, "wire", "encode", "model-request"], input=b'{"model":"m7"}',
                                    stdout=terminal, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(result.returncode, 2)
            self.assertIn("redirect standard output", result.stderr.decode())
            self.assertEqual(select.select([master], [], [], 0)[0], [])
        finally:
            os.close(master)
            os.close(terminal)

    def test_usage_errors_exit_with_2(self):
        for args in ((), ("decode",), ("decode", "nonsense"), ("peel", "model-request"), ("decode", "a", "b"),
                     ("decode", "model-request", "--rails", "1"), ("decode", "server-rails", "--rails", "0"),
                     ("decode", "server-rails", "--rails", "9"), ("encode", "server-rails", "--rails", "2")):
            with self.subTest(args):
                self.refused(run(*args), "usage: penstock wire", status=2)
        self.assertEqual(run("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
