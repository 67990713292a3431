"""The texts of the tree: no paths of one machine, links that lead somewhere, names in documents that exist.

    text_test.py SOURCE_ROOT"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
FOLDERS = ["include", "src", "tests", "fuzz", "bench", "examples", "docs", "scripts", ".ci"]
TEXTS = {".c", ".h", ".cc", ".hh", ".py", ".md", ".build", ".txt", ".1", ".service", ""}


def texts():
    yield from (p for p in ROOT.iterdir() if p.is_file() and p.suffix in TEXTS and p.name != ".git")
    for folder in FOLDERS:
        yield from (p for p in sorted((ROOT / folder).rglob("*"))
                    if p.is_file() and p.suffix in TEXTS and "corpus" not in p.parts and "__pycache__" not in p.parts)


class Texts(unittest.TestCase):
    def test_no_path_of_one_machine(self):
        # Written so that this file does not find itself.
        machine = re.compile(r"(?<![\w.$}])/(work|home/\w+|root)/|/tmp/(wt|b-)\b")
        found = []
        for path in texts():
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                if machine.search(line) and path.name != "text_test.py":
                    found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
        self.assertEqual(found, [])

    def test_links_of_documents_lead_somewhere(self):
        broken = []
        for path in [p for p in texts() if p.suffix == ".md"]:
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
                if "://" not in target and not (path.parent / target).exists():
                    broken.append(f"{path.relative_to(ROOT)}: {target}")
        self.assertEqual(broken, [])

    def test_the_protocol_names_only_what_its_header_declares(self):
        header = (ROOT / "include/penstock/wire.h").read_text(encoding="utf-8")
        named = set(re.findall(r"`(?:struct |enum )?((?:penstock|PENSTOCK)_\w+)`",
                               (ROOT / "docs/protocol.md").read_text(encoding="utf-8")))
        self.assertGreater(len(named), 20)
        self.assertEqual({n for n in named if not re.search(rf"\b{n}", header)}, set())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
