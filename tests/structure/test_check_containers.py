#!/usr/bin/env python3
"""Tests containers.py and check_containers.py: planted mistakes must be found."""

import pathlib
import shutil
import sys
import tempfile
import unittest

import check_containers
import containers

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ("Dockerfile", "Dockerfile.cuda", ".dockerignore", ".gitignore", "docs/containers.md", "tools/setup",
         ".devcontainer/cpu/devcontainer.json", ".devcontainer/cuda/devcontainer.json")


class Containers(unittest.TestCase):
    def test_an_instruction_may_continue_and_have_mounts(self):
        stages = containers.stages_of("# c\nFROM a:1 AS x\nFROM b:2\nRUN --mount=type=bind,from=x,source=/p,target=/q \\\n"
                                      "  apt-get update && \\\n  apt-get install -y one two /q/*.deb\n")
        self.assertEqual([(s.name, s.base) for s in stages], [("x", "a:1"), ("", "b:2")])
        mounts, command = containers.mounts_of(stages[1].instructions[0])
        self.assertEqual(mounts, [containers.Mount("x", "/p", "/q")])
        self.assertEqual(command, "apt-get update && apt-get install -y one two /q/*.deb")
        self.assertEqual(containers.packages_of(command), ["one", "two"])

    def test_what_is_not_known_is_an_error(self):
        for text in ("FROM a:1\nEXPOSE 80\n", "RUN true\n", "FROM a:1\nRUN true \\\n", "FROM a:1 as\n",
                     "FROM a:1\nRUN --mount=type=bind,from=x,source=/p,target=/q true\n",
                     "FROM a:1\nRUN --mount=type=cache,target=/q true\n"):
            with self.assertRaises(ValueError, msg=text):
                containers.stages_of(text)


class Check(unittest.TestCase):
    def mistakes(self, name="", old="", new=""):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for file in FILES:
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, root / file)
            if name:
                text = (root / name).read_text(encoding="utf-8")
                self.assertIn(old, text)
                (root / name).write_text(text.replace(old, new), encoding="utf-8")
            return list(check_containers.wrong(root))

    def test_the_files_are_right(self):
        self.assertEqual(self.mistakes(), [])

    def test_planted_mistakes_are_found(self):
        for mistake in (("Dockerfile", "COPY tools/setup", "COPY tools/set-up"), ("Dockerfile", "AS development", "AS dev"),
                        ("Dockerfile", "from=build", "from=builds"), ("Dockerfile", "FROM debian:12-slim", "FROM debian"),
                        ("Dockerfile.cuda", "FROM nvidia/cuda:13.0.2-base-ubuntu24.04", "FROM tools AS last"),
                        (".devcontainer/cpu/devcontainer.json", "../../Dockerfile", "../Dockerfile"),
                        (".devcontainer/cuda/devcontainer.json", '"context": "../.."', '"context": ".."'),
                        (".dockerignore", "build\n", "")):
            self.assertNotEqual(self.mistakes(*mistake), [], mistake)

    def test_an_unknown_package_is_found(self):
        if check_containers.known_packages(["surely-no-package"]):
            self.skipTest("this machine has no lists of packages")
        self.assertNotEqual(self.mistakes("Dockerfile", "ccache gdb", "ccashe gdb"), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
