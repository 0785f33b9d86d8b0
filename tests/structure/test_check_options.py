#!/usr/bin/env python3
"""check_options.py finds a planted flag and a planted name without a flag."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_options  # noqa: E402

TABLE = '    {"dtype", "--dtype"},\n'


def faults_of(line):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {"tools/option_flags.cpp": TABLE, "io/a.cpp": line}.items():
            (root / name).parent.mkdir()
            (root / name).write_text(text, encoding="utf-8")
        return list(check_options.faults(root))


class Options(unittest.TestCase):
    def test_options_commands_and_comments_are_right(self):
        for line in ('throw Error("try `dtype` fp32");', 'text("run `hf download`");', "// \"--dtype\" is a flag"):
            self.assertEqual(faults_of(line), [])

    def test_a_flag_is_found(self):
        self.assertEqual(len(faults_of('throw Error("try --dtype fp32");')), 1)

    def test_an_option_without_a_flag_is_found(self):
        self.assertEqual(len(faults_of('throw Error("try `seed` 1");')), 1)


if __name__ == "__main__":
    unittest.main()
