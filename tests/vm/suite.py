"""In the guest: runs the tests of some modules in one process (Python takes a second to start under emulation), in the
order in which they are written, and prints TAP."""

import argparse
import importlib
import os
import sys
import threading
import time
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def remarks():
    """The stream for results. Whatever is printed from now on, by whomever, becomes a remark beside them."""
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    reader, writer = os.pipe()
    for fd in (1, 2):
        os.dup2(writer, fd)
    os.close(writer)

    def mark():
        with open(reader, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                results.write("# " + line.rstrip() + "\n")
                results.flush()
    threading.Thread(target=mark, daemon=True).start()
    return results


class Tap(unittest.TestResult):
    """A line a test as it ends: "ok 3 - a pull over two rails is right (2.1 s)"."""

    def __init__(self, out):
        super().__init__()
        self.out, self.began = out, 0.0

    def say(self, *lines):
        print(*lines, sep="\n", file=self.out, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def result(self, word, test, more=""):
        name = getattr(test, "_testMethodName", str(test)).removeprefix("test_").replace("_", " ")
        self.say(f"{word} {self.testsRun} - {name} ({time.monotonic() - self.began:.1f} s){more}")

    def addSuccess(self, test):
        self.result("ok", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.result("not ok", test)
        self.say(*("# " + line for line in words_of(err)))

    addError = addFailure

    def addSkip(self, test, reason):
        """None here may: in this guest there is all that any of them asks for."""
        self.addFailure(test, (AssertionError, AssertionError("skipped: " + reason), None))


def words_of(err):
    """Where in this folder it went wrong, and how."""
    kind, value, trace = err
    for frame in traceback.extract_tb(trace):
        if os.path.dirname(frame.filename) == HERE and frame.name != "<module>":
            yield f"{os.path.basename(frame.filename)}:{frame.lineno}: {frame.line}"
    yield from "".join(traceback.format_exception_only(kind, value)).splitlines()


def in_order(case):
    """A class's tests as they stand in the file."""
    names = [name for name in vars(case) if name.startswith("test_")]
    return [case(name) for name in names]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("modules", nargs="+")
    args = parser.parse_args()
    sys.path.insert(0, HERE)
    tests = []
    for name in args.modules:
        module = importlib.import_module(name)
        cases = [c for c in vars(module).values()
                 if isinstance(c, type) and issubclass(c, unittest.TestCase) and c.__module__ == name]
        tests += [t for c in cases for t in in_order(c) if args.only.replace(" ", "_") in t._testMethodName]
    result = Tap(remarks())
    result.say(f"1..{len(tests)}" if tests else "1..0 # SKIP no test of that name")
    unittest.TestSuite(tests).run(result)
    return not result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
