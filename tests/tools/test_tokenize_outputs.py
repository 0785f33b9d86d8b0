#!/usr/bin/env python3
"""Tests the output files of tools/tokenize.py: their names, their record, and what a killed or failed run leaves. Tests
that write files are skipped without transformers (EBB_PYTHON), and the exit code is then 77."""

import contextlib
import json
import os
import pathlib
import resource
import sys
from unittest import mock

from tokenize_support import CHATML, TEXT, TokenizeTest, byte_level, has_transformers, needs_transformers, run_tests

if has_transformers:
    import numpy
    from tokenizing.token_files import TokenFiles  # tokenize_support knows the folder of the tools


class Names(TokenizeTest):
    """These are refused before transformers is loaded."""

    def check_output(self, part, prefix, *inputs_and_flags):
        outcome = self.run_tool(None, "--output", f"{self.folder}/{prefix}", *inputs_and_flags)
        self.assertEqual((outcome.returncode, outcome.stderr.count("\n")), (2, 1), outcome.stderr)
        self.assertIn(part, outcome.stderr)

    def test_outputs_never_overwrite_inputs(self):
        for name in ("a.bin", "b.labels", "c.bin.json", "d.bin.unfinished"):
            text = self.write(name, TEXT)
            self.check_output(f"would overwrite {text}", name.partition(".")[0], text)
            self.assertEqual(pathlib.Path(text).read_text(), TEXT)
        text = self.write("text", TEXT)
        os.symlink("text", self.path("link.documents"))
        self.check_output("would overwrite", "link", text)
        self.check_output("would overwrite", "t", "--chat-template", self.write("t.labels", CHATML), text)
        with mock.patch.dict(os.environ, HOME=str(self.folder)):
            self.check_output("would overwrite", "t", "--chat-template", "~/t.labels", text)
            self.check_output("would overwrite", "t", "~/t.labels")
        os.symlink("x.bin", self.path("x.labels"))
        self.check_output("would overwrite", "x", text)

    def test_outputs_never_overwrite_files_of_others(self):
        text = self.write("a.txt", TEXT)
        for suffix in (".bin", ".labels", ".documents", ".bin.json"):
            mine = self.write("mine" + suffix, '{"a": 1}')
            self.check_output(f"{mine} exists and has no record of this tool", "mine", text)
            self.assertEqual(pathlib.Path(mine).read_text(), '{"a": 1}')
            os.remove(mine)
        (self.folder / "tokenizer").mkdir()
        weights = self.write("tokenizer/pytorch_model.bin", "weights")
        self.check_output(f"would overwrite {weights}", "tokenizer/pytorch_model", text)
        os.symlink(weights, self.path("to.bin"))
        self.check_output("would overwrite", "to", text)
        self.check_output("give a prefix of names", ".", text)
        self.assertEqual(pathlib.Path(weights).read_text(), "weights")

    def test_outputs_are_files_in_a_folder(self):
        text = self.write("a.txt", TEXT)
        (self.folder / "folder.bin").mkdir()
        self.check_output("is a folder", "folder", text)
        self.check_output("give a prefix of names", "folder.bin/", text)
        self.check_output("mkdir -p", "none/a", text)
        os.symlink("/dev/null", self.path("null.bin"))
        self.check_output("a device or a pipe", "null", text)


@needs_transformers
class Record(TokenizeTest):
    def record(self, *arguments):
        outcome = self.run_tool(self.tokenizer, *arguments)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        return json.loads(pathlib.Path(self.path("out.bin.json")).read_text())

    def setUp(self):
        super().setUp()
        self.tokenizer = byte_level()
        self.text = self.write("a.txt", TEXT)

    def test_says_for_what_the_files_were_made(self):
        record = self.record(self.text)
        count = (os.path.getsize(self.path("out.bin")) - 1024) // 2
        plain = {"format": "ebb tokens", "version": 1, "num_tokens": count, "vocabulary": len(self.tokenizer),
                 "tokenizer": self.path("tokenizer"), "sequence_length": None, "documents": False, "labels": False,
                 "targets": "next"}
        self.assertEqual(record, plain)
        self.assertEqual(self.record("--documents", self.text), {**plain, "documents": True})
        self.assertEqual(self.record("--labels", self.text), {**plain, "labels": True})
        self.assertEqual(self.record("--seq-length", "16", self.text), {
            **plain, "documents": True, "labels": True, "sequence_length": 16, "num_tokens": -(-count // 16) * 16 + 1})

    def test_never_contradicts_the_tokens(self):
        """Whenever the tool is killed, a record fits its tokens."""
        def close(files):
            for file in files.files.values():
                file.close()

        def make(count, labels):
            files = TokenFiles(self.path("out"), "u16", labels, False, {})
            try:
                files.begin()
                files.add(numpy.arange(count), numpy.arange(count))
                files.end()
                files.finish()
            finally:
                close(files)

        states, is_killed = set(), True
        for killed_at in range(1, 20):
            calls = iter(range(1, killed_at))

            def step(real):
                def call(*arguments):
                    if next(calls, None) is None:
                        raise KeyboardInterrupt
                    return real(*arguments)
                return call

            make(5, labels=False)
            with mock.patch("os.remove", step(os.remove)), mock.patch("os.replace", step(os.replace)), \
                    mock.patch.object(TokenFiles, "discard", close), contextlib.suppress(KeyboardInterrupt):
                make(10, labels=True)
                is_killed = False
            count, record = (os.path.getsize(self.path("out.bin")) - 1024) // 2, pathlib.Path(self.path("out.bin.json"))
            states.add((count == 10, record.exists()))
            if record.exists():
                self.assertEqual(json.loads(record.read_text())["num_tokens"], count)
            if not is_killed:
                break
        self.assertFalse(is_killed)
        self.assertEqual(states, {(False, True), (False, False), (True, False), (True, True)})

    def test_files_are_written_through_links(self):
        os.symlink("real.bin", self.path("out.bin"))
        self.record(self.text)
        self.assertTrue(os.path.islink(self.path("out.bin")))
        self.assertGreater(os.path.getsize(self.path("real.bin")), 1024)
        os.symlink(self.text, self.path("other.bin.unfinished"))
        outcome = self.run_tool(None, "--output", self.path("other"), self.text)
        self.assertEqual(outcome.returncode, 2, outcome.stderr)
        self.assertEqual(pathlib.Path(self.text).read_text(), TEXT)

    def test_two_runs_do_not_write_the_same_files(self):
        self.tokenizer.save_pretrained(self.folder / "tokenizer")
        first = TokenFiles(self.path("out"), "u16", False, False, {})
        outcome = self.run_tool(None, self.text)
        self.assertEqual(outcome.returncode, 2)
        self.assertIn("another run writes", outcome.stderr)
        first.discard()
        self.assertEqual(self.run_tool(None, self.text).returncode, 0)

    def test_labels_of_an_earlier_run_are_reported(self):
        self.record("--labels", self.text)
        self.assertIn("out.labels is of an earlier run", self.run_tool(None, self.text).stderr)
        self.assertEqual(self.run_tool(None, "--labels", self.text).stderr, "")

    def test_left_over_files_of_a_killed_run_are_replaced(self):
        with mock.patch("tokenizing.token_files.TokenFiles.discard"):  # as if the process were killed
            killed = TokenFiles(self.path("out"), "u16", True, False, {})
        for file in killed.files.values():
            file.write(b"x" * 100000)
            file.close()
        self.record(self.text)
        self.assertLess(os.path.getsize(self.path("out.bin")), 2000)
        self.assertEqual(list(self.folder.glob("*.unfinished")), [])

    def test_unfinished_files_of_others_stay(self):
        self.tokenizer.save_pretrained(self.folder / "tokenizer")
        for name in ("out.bin.unfinished", "out.labels.unfinished", "out.bin.json.unfinished"):
            mine = pathlib.Path(self.write(name, "mine"))
            outcome = self.run_tool(None, "--labels", self.text)
            self.assertEqual(outcome.returncode, 2)
            self.assertIn(f"{mine} exists and may be another file of yours", outcome.stderr)
            self.assertEqual([p.name for p in self.folder.glob("out*")], [name])
            self.assertEqual(mine.read_text(), "mine")
            mine.unlink()


@needs_transformers
class Failures(TokenizeTest):
    def test_a_full_disk_is_a_failure(self):
        tokenizer, text = byte_level(), self.write("a.txt", TEXT * 200)
        tokenizer.save_pretrained(self.folder / "tokenizer")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
        try:
            outcome = self.run_tool(None, text)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        self.assertEqual((outcome.returncode, outcome.stderr.count("\n")), (1, 1), outcome.stderr)
        self.assertIn("out.bin: File too large", outcome.stderr)
        self.assertEqual(list(self.folder.glob("out*")), [])

    def test_a_closed_pipe_is_no_failure(self):
        byte_level().save_pretrained(self.folder / "tokenizer")
        with mock.patch("tokenizing.command.print", side_effect=BrokenPipeError, create=True):
            outcome = self.run_tool(None, self.write("a.txt", TEXT))
        self.assertEqual((outcome.returncode, outcome.stderr), (0, ""))
        self.assertTrue(os.path.exists(self.path("out.bin.json")))

    def test_ctrl_c_removes_the_unfinished_files(self):
        byte_level().save_pretrained(self.folder / "tokenizer")
        text = self.write("a.txt", TEXT)
        with mock.patch("tokenizing.encoding.encode", side_effect=KeyboardInterrupt):
            outcome = self.run_tool(None, text)
        self.assertEqual((outcome.returncode, outcome.stderr), (130, "tokenize.py: error: stopped by Ctrl-C\n"))
        self.assertEqual(list(self.folder.glob("out*")), [])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.argv.pop(1)  # the program ebb, which these tests do not need
    run_tests()
