#!/usr/bin/env python3
"""run_commands.py finds the mistakes of a page. The tests use made-up pages and a script instead of `ebb`."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run_commands


def page(command, marks=""):
    return f"text\n\n{marks}```sh\n{command}\n```\nmore\n```cpp\nnot this\n```\n"


class RunCommands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.ebb = self.root / "an-ebb"
        self.ebb.write_text('#!/bin/sh\necho "ebb $*"\n[ "$1" != fail ] || exit 3\n')
        self.ebb.chmod(0o755)

    def outcome(self, text):
        """(exit code, output) for a page."""
        file = self.root / "page.md"
        file.write_text(text)
        out = io.StringIO()
        arguments = ["run_commands", "--root", str(self.root), "--ebb", str(self.ebb), str(file)]
        with mock.patch.object(sys, "argv", arguments), contextlib.redirect_stdout(out):
            return run_commands.main(), out.getvalue()

    def test_runs_installed_and_built_commands(self):
        self.assertEqual(self.outcome(page("ebb plan && build/release/tools/ebb models"))[0], 0)

    def test_a_failing_command_is_found_with_its_line(self):
        for command in ("ebb fail", "ebb fail\nebb plan", "ebb fail | cat", "no-such-program"):
            code, text = self.outcome(page(command))
            self.assertEqual(code, 1, command)
            self.assertIn("page.md:3: ends with", text)

    def test_the_expected_exit_code_and_text_are_checked(self):
        self.assertEqual(self.outcome(page("ebb fail x", "<!-- run: exit 3; says ebb fail x -->\n"))[0], 0)
        self.assertEqual(self.outcome(page("ebb plan", "<!-- run: exit 3 -->\n"))[0], 1)
        self.assertEqual(self.outcome(page("ebb plan", "<!-- run: says fail -->\n"))[0], 1)

    def test_a_command_prepares_the_folder(self):
        self.assertEqual(self.outcome(page("cat made", "<!-- run: before echo word >made; says word -->\n"))[0], 0)
        self.assertEqual(self.outcome(page("cat made"))[0], 1)

    def test_flags_replace_those_of_the_same_name(self):
        command = "ebb train --data x --steps 40 \\\n  --log y | cat\nebb plan --steps 3"
        marks = "<!-- run: add --steps 1; says ebb train --data x --log y --steps 1 -->\n"
        code, text = self.outcome(page(command, marks))
        self.assertEqual(code, 0, text)
        self.assertEqual(self.outcome(page(command, marks.replace("--data x", "--steps 40")))[0], 1)

    def test_a_skipped_block_has_a_reason_and_a_page_with_no_other_block_fails(self):
        code, text = self.outcome(page("ebb fail", "<!-- run: skip another test runs it -->\n"))
        self.assertIn("not run: another test runs it", text)
        self.assertEqual(code, 1)

    def test_each_named_script_must_be_executable(self):
        (self.root / "tools").mkdir()
        script = self.root / "tools" / "a.py"
        text = page("tools/a.py") + "\n`tools/a.py` and io/no_such.py, www.b.org/tools/a.py\n"
        for content, mode, code in (("#!/bin/sh\n", 0o755, 0), ("#!/bin/sh\n", 0o644, 1), ("pass\n", 0o755, 1)):
            script.write_text(content)
            script.chmod(mode)
            self.assertEqual(self.outcome(text)[0], code, (content, mode))
            self.assertEqual(self.outcome(page("ebb plan") + "text: `tools/a.py`.\n")[0], code, (content, mode))
            self.assertEqual(run_commands.not_executable(text, self.root), ["tools/a.py"] if code else [])

    def test_scripts_run_with_this_python(self):
        self.assertEqual(self.outcome(page(f"[ $(python3 -c 'import sys; print(sys.prefix)') = {sys.prefix} ]"))[0], 0)

    def test_a_block_may_have_files(self):
        (self.root / "more.txt").write_text("x")
        block = run_commands.Block("page", "[ $(cat more.txt) = x ]")
        self.assertIsNone(run_commands.run(block, self.root, self.ebb, [self.root / "more.txt"]))
        self.assertIsNotNone(run_commands.run(block, self.root, self.ebb))

    def test_unknown_marks_are_errors(self):
        for marks in ("<!-- run: skp x -->\n", "<!-- run: skip -->\n"):
            with self.assertRaises(SystemExit):
                self.outcome(page("ebb plan", marks))


if __name__ == "__main__":
    unittest.main()
