#!/usr/bin/env python3
"""Tests that the Python scripts of tools/ answer bad input with one line and an exit code, as the README writes the
commands. Stand-ins take the place of transformers and `ebb`, so the tests need no package."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRANSFORMERS = '''
class Tokenizer:
    chat_template = None

    def __call__(self, text, **_):
        return {"input_ids": [ord(c) for c in text]}

    def decode(self, ids, **_):
        return "".join(map(chr, ids))

    def apply_chat_template(self, *_, **__):
        raise ValueError("no template\\nis set")


class AutoTokenizer:
    @staticmethod
    def from_pretrained(name):
        if "bad" in name:
            raise OSError(f"{name} is not a local folder\\nand no model")
        return Tokenizer()
'''
EBB = "#!/bin/sh\n[ $1 = generate ] || exit 9\n"


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ebb-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "tools").symlink_to(ROOT / "tools")
        self.write("packages/transformers.py", TRANSFORMERS)
        self.ebb("echo 104,105")
        # A Python without the packages of this machine, but with the stand-ins.
        self.write("bin/python3", f'#!/bin/sh\nexec "{sys.executable}" -S -B "$@"\n', 0o755)
        self.environment = {**os.environ, "PATH": f"{self.folder}/bin:/usr/bin:/bin",
                            "PYTHONPATH": str(self.folder / "packages")}

    def write(self, name, content, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return str(path)

    def ebb(self, commands):
        self.write("bin/ebb", EBB + commands + "\n", 0o755)

    def run_in_folder(self, command, **more):
        return subprocess.run(command, cwd=self.folder, env=self.environment, shell=True, executable="/bin/bash",
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False, **more)

    def refused(self, part, command, code=2):
        outcome = self.run_in_folder(command)
        said = outcome.stderr.decode()
        self.assertEqual((outcome.returncode, said.count("\n")), (code, 1), (command, said))
        self.assertIn(part, said, command)
        self.assertRegex(said, r"^(generate|log_to|tokenize)\.py: error: [^\x00-\x09\x0b-\x1f]+\n$")

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
        self.refused("No module named 'numpy'; run 'pip install transformers numpy'",
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


class Generate(Scripts):
    def test_writes_the_text(self):
        outcome = self.run_in_folder("tools/generate.py --model m --prompt x")
        self.assertEqual((outcome.returncode, outcome.stdout, outcome.stderr), (0, b"hi\n", b""))

    def test_refuses_bad_input(self):
        self.write("program", "text")
        for part, command in (
                ("give some text", "--model m --prompt ''"),
                ("--model bad: transformers cannot load", "--model bad --prompt x"),
                ("no template is set", "--model m --prompt x --chat"), ("not UTF-8", "--model m --prompt $'\\xff'"),
                ("required: --prompt", "--model m"), ("required: --model", "--prompt x"),
                ("none: there is no such program", "--model m --prompt x --ebb none"),
                ("./program: there is no", "--model m --prompt x --ebb ./program"),
                ("./bin: there is no", "--model m --prompt x --ebb ./bin"),
                ("too long for a command line", "--model m --prompt $(head -c 100000 /dev/zero | tr '\\0' x)")):
            self.refused(part, "tools/generate.py " + command)
        self.write("program", b"\x7fELF", 0o755)
        self.refused("Exec format error", "tools/generate.py --model m --prompt x --ebb ./program")
        (self.folder / "packages" / "transformers.py").unlink()
        self.refused("pip install transformers", "tools/generate.py --model m --prompt x")

    def test_has_the_exit_code_of_ebb(self):
        for commands, code in (("exit 3", 3), ("kill -9 $$", 137)):
            self.ebb(commands)
            self.assertEqual(self.run_in_folder("tools/generate.py --model m --prompt x").returncode, code)

    def test_a_full_disk_and_a_closed_pipe_end_ebb(self):
        self.ebb("trap '' PIPE\nwhile :; do echo 104,105,; sleep 0.01; done")
        self.refused("No space left on device", "tools/generate.py --model m --prompt x > /dev/full", code=1)
        outcome = self.run_in_folder("set -o pipefail; tools/generate.py --model m --prompt x | head -c 2")
        self.assertEqual((outcome.returncode, outcome.stdout, outcome.stderr), (0, b"hi", b""))

    def test_ctrl_c_before_ebb_starts(self):
        self.write("packages/transformers.py", "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
        outcome = self.stopped(["tools/generate.py", "--model", "m", "--prompt", "x"])
        self.assertEqual(outcome, (130, "", "generate.py: error: stopped by Ctrl-C\n"))


if __name__ == "__main__":
    unittest.main()
