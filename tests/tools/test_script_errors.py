#!/usr/bin/env python3
"""Tests that the Python scripts of tools/ answer bad input with one line and an exit code, as the README writes the
commands. They run in a Python without packages."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ebb-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "tools").symlink_to(ROOT / "tools")
        # A Python without the packages of this machine.
        self.write("bin/python3", f'#!/bin/sh\nexec "{sys.executable}" -S -B "$@"\n', 0o755)
        self.environment = {**os.environ, "PATH": f"{self.folder}/bin:/usr/bin:/bin", "PYTHONPATH": ""}

    def write(self, name, content, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return str(path)

    def run_in_folder(self, command, **more):
        return subprocess.run(command, cwd=self.folder, env=self.environment, shell=True, executable="/bin/bash",
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False, **more)

    def refused(self, part, command, code=2):
        outcome = self.run_in_folder(command)
        said = outcome.stderr.decode()
        self.assertEqual((outcome.returncode, said.count("\n")), (code, 1), (command, said))
        self.assertIn(part, said, command)
        self.assertRegex(said, r"^(log_to|tokenize)\.py: error: [^\x00-\x09\x0b-\x1f]+\n$")

    def stopped(self, command):
        """Returns the outcome of a command that gets SIGINT when it has written a line, or has ended."""
        with subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            process.stdout.readline()
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        return process.returncode, out, err


class Tokenize(Scripts):
    def test_needs_its_packages(self):
        self.write("a.txt", "text")
        self.refused("No module named 'numpy'; run 'pip install tokenizers jinja2 numpy'",
                     "tools/tokenize.py --tokenizer x --output o a.txt")

    def test_explains_itself_without_packages(self):
        outcome = self.run_in_folder("tools/tokenize.py --help")
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertIn(b"PREFIX.bin.json", outcome.stdout)

    def test_names_are_shown_in_one_line(self):
        self.refused(r"a\x1b[31m b: No such file", "tools/tokenize.py --tokenizer x --output o $'a\\e[31m\\nb'")
        self.refused(r"\udcff: No such file", "tools/tokenize.py --tokenizer x --output o $'\\xff'")


class LogTo(Scripts):
    def test_refuses_what_is_no_log(self):
        self.write("a", "\x1b[31m\n")
        self.refused("a:1 is not JSON", "tools/log_to.py a --to print")

    def test_a_full_disk_and_a_closed_pipe(self):
        self.write("a", "".join(f'{{"step": {i}, "loss": 2}}\n' for i in range(1, 5000)))
        self.refused("No space left on device", "tools/log_to.py a --to print > /dev/full", code=1)
        outcome = self.run_in_folder("set -o pipefail; tools/log_to.py a --to print | head -2")
        self.assertEqual((outcome.returncode, outcome.stderr, outcome.stdout.count(b"\n")), (0, b"", 2))

    def test_ctrl_c_ends_following(self):
        self.write("a", '{"step": 1, "loss": 2}\n')
        outcome = self.stopped(["tools/log_to.py", "a", "--to", "print", "--follow"])
        self.assertEqual(outcome, (130, "", "log_to.py: error: stopped by Ctrl-C\n"))


if __name__ == "__main__":
    unittest.main()
