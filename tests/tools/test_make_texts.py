#!/usr/bin/env python3
"""Checks that the manual page and the shell completions name every flag of --help, and that shells and groff read them.

Usage: test_make_texts.py EBB
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))

import make_texts  # noqa: E402

EBB = sys.argv.pop()


def output_of(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    return done.stdout if done.returncode == 0 else f"exit code {done.returncode}: {done.stdout}"


def flags_of_help(command):
    """Returns the flags of --help, or --help-all. Flags begin a line; their other names follow after commas."""
    text = output_of(EBB, command, "--help")
    lines = (output_of(EBB, command, "--help-all") if "--help-all" in text else text).splitlines()
    names = [name for line in lines if line.startswith("  -") for name in line[2:].split(" ")[0].split(",")]
    return {name for name in names if name.startswith("--")}


class Texts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.held.name)
        cls.addClassCleanup(cls.held.cleanup)
        make_texts.main(EBB, cls.folder)
        cls.commands = re.findall(r"^  (\w+)", output_of(EBB, "--help").split("Commands:")[1], re.MULTILINE)

    def text(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def bash(self, *words):
        """Returns what bash proposes for the last of these words."""
        listed = " ".join(f"'{word}'" for word in words)
        script = (f"source ./ebb.bash\nCOMP_WORDS=({listed})\nCOMP_CWORD={len(words) - 1}\n_ebb\n"
                  "printf '%s\\n' \"${COMPREPLY[@]}\"\n")
        return set(output_of("bash", "-c", script, cwd=self.folder).split())

    def test_flags_that_stand_for_options_are_flags_of_commands(self):
        table = (ROOT / "tools/option_flags.cpp").read_text(encoding="utf-8")
        flags = set(re.findall(r'^    \{"\w+", "(--[\w-]+)"\},$', table, re.MULTILINE))
        self.assertGreater(len(flags), 20)
        self.assertEqual(flags - {flag for command in self.commands for flag in flags_of_help(command)}, set())

    def test_every_flag_of_help_is_in_every_text(self):
        zsh, fish, man = self.text("_ebb"), self.text("ebb.fish"), self.text("ebb.1").replace("\\-", "-")
        num_flags = 0
        for command in self.commands:
            flags = flags_of_help(command)
            self.assertIn("--help", flags, command)
            self.assertEqual(self.bash("ebb", command, "--"), flags, command)
            zsh_case = zsh.split(f"\n    {command})\n")[1].split(";;")[0]
            fish_lines = "\n".join(line for line in fish.splitlines() if f"from {command}' " in line)
            section = man.split(f".SH EBB {command.upper()}\n")[1].split("\n.SH ")[0]
            for flag in flags:
                self.assertRegex(zsh_case, r"'\*?" + flag + r"\[")
                self.assertRegex(fish_lines, f" -l {flag[2:]} ")
                self.assertIn(f"\\fB{flag}\\fR", section)
            num_flags += len(flags)
        self.assertGreater(num_flags, 100)

    def test_bash_proposes_commands_flags_values_and_files(self):
        self.assertEqual(self.bash("ebb", "tr"), {"train"})
        self.assertEqual(self.bash("ebb", "train", "--rec"), {"--recompute"})
        self.assertEqual(self.bash("ebb", "train", "--dtype", "b"), {"bf16"})
        self.assertEqual(self.bash("ebb", "train", "--dtype", "=", "b"), {"bf16"})
        self.assertEqual(self.bash("ebb", "train", "--activations", "="), {"auto", "device", "offload"})
        self.assertEqual(self.bash("ebb", "train", "--preset", "gpt2-x"), {"gpt2-xl"})
        self.assertIn("rtx4090", self.bash("ebb", "plan", "--machine", "rtx4"))
        self.assertEqual(self.bash("ebb", "train", "--steps", ""), set())
        self.assertEqual(self.bash("ebb", "train", "--data", "ebb.b"), {"ebb.bash"})
        self.assertEqual(self.bash("ebb", "train", "--data", "a", "ebb.b"), {"ebb.bash"})

    def test_shells_read_them(self):
        for shell, name in (("bash", "ebb.bash"), ("zsh", "_ebb"), ("fish", "ebb.fish")):
            with self.subTest(shell):
                self.assertTrue(self.text(name).endswith("\n"))
                if not shutil.which(shell):
                    self.skipTest(f"{shell} is not installed")
                self.assertEqual(output_of(shell, "-n", name, cwd=self.folder), "")

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_reads_the_manual(self):
        self.assertEqual(output_of("groff", "-man", "-ww", "-z", "-Tutf8", "ebb.1", cwd=self.folder), "")

    def test_values_name_their_choices(self):
        def choices(value):
            return make_texts.add_proposals({"value": value, "names_of_value": []})

        self.assertEqual(choices("auto|fp32|bf16-dot [auto]")["choices"], ["auto", "fp32", "bf16-dot"])
        self.assertEqual(choices("none|layer|N|auto [auto]")["choices"], ["none", "layer", "auto"])
        for value in ("SIZE/s[,SIZE/s]", "N [100]", ""):
            self.assertEqual(choices(value)["choices"], [], value)
        for value in ("this|NAME|FILE [this]", "PATH...", "[DIR]"):
            self.assertTrue(choices(value)["file"], value)
        self.assertFalse(choices("NAME")["file"])

    def test_quotes_are_escaped(self):
        flag = {"names": ["--x"], "value": "A|b", "description": "don't [or: do]", "group": "G", "takes": "one",
                "choices": ["b"], "file": False}
        commands = [{"name": "go", "summary": "it's a: test", "description": "", "flags": [flag]}]
        self.assertIn(r"'go:it'\''s a\: test'", make_texts.zsh_completion(commands))
        self.assertIn(r"'--x[don'\''t \[or\: do\]]:A|b:(b)'", make_texts.zsh_completion(commands))
        self.assertIn(r"-d 'don\'t [or: do]'", make_texts.fish_completion(commands))


if __name__ == "__main__":
    unittest.main()
