"""Each folder uses only the folders below it: in what it includes, and in what its objects ask the linker for.

    layers_test.py SOURCE_ROOT FOLDER=ARCHIVE..."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

# docs/architecture.md, lowest first. The public headers are for all.
BELOW = {
    "base": set(),
    "wire": set(),
    "json": {"base"},
    "net": {"base", "wire"},
    "verbs": {"base"},
    "convert": {"base"},
    "rail": {"base", "wire", "json", "net", "verbs"},
    "residency": {"base"},
    "model": {"base", "wire", "json", "convert"},
    "client": {"base", "wire", "json", "net", "verbs", "rail", "model", "convert"},
    "peer": {"base", "wire", "json", "net", "verbs", "rail", "residency", "model"},
    "cli": {"base", "wire", "json", "net", "verbs", "rail", "residency", "model", "convert", "client", "peer"},
}

# All that the codecs may want of a C library: no malloc, errno, clock or socket.
WIRE_MAY_USE = {"memcpy", "memcmp", "memset", "memmove", "strlen"}
# What compilers and their sanitizers add, and the name by which position-independent code finds its data.
COMPILERS_OWN = re.compile(r"__(asan|ubsan|tsan|sanitizer|stack_chk|gcov|llvm)_|_GLOBAL_OFFSET_TABLE_$")

SOURCES = pathlib.Path(sys.argv[1], "src")
ARCHIVES = dict(pair.split("=", 1) for pair in sys.argv[2:])


def symbols(archive, *options):
    """The archive's global symbols of that sort."""
    out = subprocess.run([os.environ.get("NM", "nm"), "-g", *options, archive], check=True, capture_output=True,
                         text=True).stdout
    return {line.split()[-1] for line in out.splitlines() if line and not line.endswith(":")}


def defined(folder):
    return symbols(ARCHIVES[folder], "--defined-only")


def wanted(folder):
    return symbols(ARCHIVES[folder], "--undefined-only") - defined(folder)


class Layers(unittest.TestCase):
    def test_each_folder_of_src_has_its_place(self):
        folders = {path.name for path in SOURCES.iterdir() if path.is_dir()}
        self.assertEqual(folders, set(BELOW))

    def test_includes_name_only_folders_below(self):
        wrong = []
        for path in sorted(SOURCES.rglob("*.[ch]*")):
            folder = path.relative_to(SOURCES).parts[0]
            for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(encoding="utf-8"), re.M):
                other = included.split("/")[0] if "/" in included else folder
                if other != folder and other not in BELOW[folder]:
                    wrong.append(f"{path.relative_to(SOURCES)} includes {included}")
        self.assertEqual(wrong, [])

    def test_objects_want_only_what_folders_below_define(self):
        owners = {}
        for folder in ARCHIVES:
            for symbol in defined(folder):
                owners.setdefault(symbol, set()).add(folder)
        wrong = []
        for folder in ARCHIVES:
            for symbol in sorted(wanted(folder)):
                by = owners.get(symbol)
                if by and not by & BELOW[folder]:
                    wrong.append(f"{folder} uses {symbol} of {sorted(by)}")
        self.assertEqual(wrong, [])

    def test_the_codecs_want_nothing_but_memory_functions(self):
        strange = {s for s in wanted("wire") - WIRE_MAY_USE if not COMPILERS_OWN.match(s)}
        self.assertEqual(strange, set())

    def test_the_archives_are_those_of_the_folders_with_a_library(self):
        self.assertEqual(set(ARCHIVES) | {"cli"}, set(BELOW))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
