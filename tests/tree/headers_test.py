"""Each public header compiles by itself, as C17 and as C++17, under warnings that a user may have on.

    headers_test.py SOURCE_ROOT"""

import os
import pathlib
import subprocess
import sys
import unittest

INCLUDE = pathlib.Path(sys.argv[1], "include")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


def complaints(compiler, language, standard, header):
    # Twice: a header without a guard would not survive it.
    text = f"#include <{header}>\n" * 2
    run = subprocess.run([*compiler, "-x", language, f"-std={standard}", *WARNINGS, f"-I{INCLUDE}", "-fsyntax-only", "-"],
                         input=text, capture_output=True, text=True)
    return run.stderr if run.returncode else ""


class Headers(unittest.TestCase):
    def headers(self):
        found = sorted(str(p.relative_to(INCLUDE)) for p in INCLUDE.rglob("*.h"))
        self.assertIn("penstock/wire.h", found)
        return found

    def test_each_compiles_alone_as_c17(self):
        for header in self.headers():
            with self.subTest(header):
                self.assertEqual(complaints(os.environ["CC"].split(), "c", "c17", header), "")

    def test_each_compiles_alone_as_cpp17(self):
        for header in self.headers():
            with self.subTest(header):
                self.assertEqual(complaints(os.environ["CXX"].split(), "c++", "c++17", header), "")

    def test_the_codecs_header_includes_none_of_ours(self):
        self.assertNotIn('#include <penstock', (INCLUDE / "penstock" / "wire.h").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
