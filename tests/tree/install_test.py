"""What `meson install` installs is what a user needs: the example compiles, links and runs against it alone."""
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE = sys.argv[1:3]

# Calls the library and has functions of the names that the library's own insides use.
PROGRAM = r"""
#include <penstock/penstock.h>
#include <penstock/wire.h>
#include <stdio.h>
#include <string.h>
int net_resolve(void) { return 1; }
int json_parse(void) { return 1; }
int base_error_set(void) { return 1; }
int main(void)
{
    struct penstock_models *models;
    struct penstock_error error;
    if (penstock_models_get("nowhere.invalid:1:2:3", NULL, &models, &error) != PENSTOCK_EINVAL)
        return fprintf(stderr, "%d: %s\n", error.code, error.message), 1;
    puts(penstock_version());
    return net_resolve() + json_parse() + base_error_set() == 3 ? 0 : 2;
}
"""


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise AssertionError(f"{shlex.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", cls.root / "stage")
        cls.pc = next((cls.root / "stage").rglob("penstock.pc"))
        cls.libdir = cls.pc.parent.parent
        # Where the file says its prefix is, below the stage.
        prefix = run("pkg-config", "--variable=prefix", cls.pc).strip()
        cls.prefix = cls.root / "stage" / prefix.lstrip("/")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def pkg_config(self, *options):
        out = run("pkg-config", f"--define-variable=prefix={self.prefix}", *options, "penstock",
                  env={**os.environ, "PKG_CONFIG_PATH": str(self.pc.parent)})
        return shlex.split(out)

    def build(self, source, *flags, suffix=""):
        program = self.root / (pathlib.Path(source).stem + suffix)
        run(*shlex.split(os.environ["CC"]), "-std=c17", "-Wall", "-Wextra", "-Werror", "-pedantic", source, "-o", program,
            *flags)
        return program

    def program(self):
        source = self.root / "program.c"
        source.write_text(PROGRAM)
        return source

    def version(self):
        return self.pkg_config("--modversion")[0]

    def test_a_program_links_with_the_shared_library(self):
        program = self.build(self.program(), *self.pkg_config("--cflags", "--libs"))
        out = run(program, env={**os.environ, "LD_LIBRARY_PATH": str(self.libdir)})
        self.assertEqual(out.strip(), self.version())
        self.assertIn("libpenstock.so.0", run("readelf", "-d", program))

    def test_a_program_links_with_the_static_library(self):
        libs = self.pkg_config("--static", "--libs")
        self.assertEqual(libs.count("-lpenstock"), 1)
        libs[libs.index("-lpenstock")] = "-l:libpenstock.a"
        program = self.build(self.program(), *self.pkg_config("--cflags"), *libs, suffix="_static")
        self.assertEqual(run(program).strip(), self.version())
        self.assertNotIn("libpenstock", run("readelf", "-d", program))

    def test_every_example_compiles_and_links(self):
        for source in sorted(pathlib.Path(SOURCE, "examples").glob("*.c")):
            with self.subTest(source.name):
                self.build(source, *self.pkg_config("--cflags", "--libs"))

    def test_the_command_line_and_its_pages_are_there(self):
        out = run(self.prefix / "bin/penstock", "--version")
        self.assertEqual(out.split(), ["penstock", self.version()])
        there = list((self.prefix / "share/man/man1").glob("penstock*.1"))
        pages = sorted(p.name for p in there if not p.is_symlink())
        links = {p.name: p.readlink().name for p in there if p.is_symlink()}
        wanted = sorted(p.name for p in pathlib.Path(SOURCE, "docs/man").glob("*.1"))
        self.assertEqual(pages, wanted)
        self.assertTrue(pages)
        self.assertEqual(links, {f"penstock-{name}.1": "penstock-put.1" for name in ("exists", "get", "rm")})

    def test_only_the_public_headers_are_installed(self):
        headers = sorted(p.name for p in (self.prefix / "include/penstock").iterdir())
        self.assertEqual(headers, sorted(p.name for p in pathlib.Path(SOURCE, "include/penstock").glob("*.h")))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
