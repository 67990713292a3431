"""The library exports what src/client/libpenstock.symbols lists, what its headers declare, and nothing else."""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

SHARED, STATIC, SOURCE = sys.argv[1:4]


def defined(*options):
    lines = subprocess.run([*shlex.split(os.environ["NM"]), "--defined-only", "--format=posix", *options],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    words = [line.split() for line in lines]
    # Version nodes are absolute; symbols carry theirs behind an @.
    return sorted(w[0].split("@")[0] for w in words if len(w) > 1 and w[1] != "A")


def listed():
    return pathlib.Path(SOURCE, "src/client/libpenstock.symbols").read_text().splitlines()


def declared():
    names = set()
    for header in pathlib.Path(SOURCE, "include/penstock").glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        names.update(re.findall(r"^PENSTOCK_API\b[^;(]*?\b(penstock_\w+)\s*\(", text, flags=re.M))
    return sorted(names)


class Symbols(unittest.TestCase):
    def test_the_list_is_sorted_and_says_everything_once(self):
        self.assertEqual(listed(), sorted(set(listed())))

    def test_every_declared_function_is_listed_and_no_other(self):
        self.assertEqual(declared(), listed())

    def test_the_shared_library_exports_the_list(self):
        self.assertEqual(defined("--dynamic", SHARED), listed())

    def test_the_static_library_has_no_other_global_symbol(self):
        self.assertEqual(defined("--extern-only", STATIC), listed())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
