#!/usr/bin/env python3
"""Tests tools/log_to.py with stand-ins for TensorBoard and Weights & Biases, and with a log of the program `ebb`
(argument 1)."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "log_to.py"
sys.path.insert(0, str(SCRIPT.parent))
spec = importlib.util.spec_from_file_location("log_to", SCRIPT)
log_to = importlib.util.module_from_spec(spec)
spec.loader.exec_module(log_to)
import script_errors
EBB = None


def line(step, loss=5.0, **more):
    return json.dumps({"step": step, "loss": loss, "step_seconds": 0.125, "bound_by": "compute", **more}) + "\n"


END = json.dumps({"end": True, "steps": 3, "state_hash": "00ff"}) + "\n"


class Recorder:
    """A sink that stores what it receives: `runs` has a list of steps for each sink that was created."""

    def __init__(self):
        self.runs = []

    def __call__(self):
        self.runs.append([])
        return self

    def step(self, step, scalars):
        self.runs[-1].append((step, scalars["loss/train"]))

    def end(self, record):
        self.runs[-1].append("end")

    def close(self):
        pass


class LogTo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "log.jsonl"
        self.recorder = Recorder()

    def run_script(self, *arguments):
        """Returns the exit code, and what the script wrote to stdout and stderr."""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = script_errors.run("log_to.py", log_to.main, list(map(str, arguments)))
        return code, out.getvalue(), err.getvalue()

    def refused(self, part, *arguments):
        """Expects an error of one line with this part, and returns it."""
        code, _, said = self.run_script(*arguments)
        self.assertEqual(code, 2, said)
        self.assertIn(part, said)
        self.assertRegex(said, r"\Alog_to\.py: error: [^\x00-\x1f]+\n\Z")
        return said

    def feed(self):
        return log_to.Feed(log_to.Log(self.path), self.recorder)

    def test_numbers_get_names_and_nulls_and_texts_are_omitted(self):
        record = json.loads(line(1, grad_norm=None, end_of="x", tokens_per_second=7, new_field=3))
        self.assertEqual(
            log_to.scalars_of(record),
            {"loss/train": 5.0, "speed/step_seconds": 0.125, "speed/tokens_per_second": 7, "other/new_field": 3},
        )

    def test_an_incomplete_line_is_not_read(self):
        self.path.write_text(line(1) + line(2)[:10])
        feed = self.feed()
        feed.pass_on()
        self.assertEqual(self.recorder.runs, [[(1, 5.0)]])
        self.path.write_text(line(1) + line(2) + END)
        feed.pass_on()
        self.assertEqual(self.recorder.runs, [[(1, 5.0), (2, 5.0), "end"]])
        self.assertTrue(feed.ended)

    def test_a_resumed_run_sends_no_step_twice(self):
        self.path.write_text(line(1) + line(2) + line(3))
        feed = self.feed()
        feed.pass_on()
        # The log was cut after step 1 and is longer than before when it is read again.
        self.path.write_text(line(1) + line(2, 4.5) + line(3) + line(4) + line(5))
        feed.pass_on()
        self.assertEqual([step for step, _ in self.recorder.runs[0]], [1, 2, 3, 4, 5])
        self.assertEqual(len(self.recorder.runs), 1)

    def test_a_shortened_log_sends_no_step_twice(self):
        self.path.write_text(line(1) + line(2) + line(3))
        feed = self.feed()
        feed.pass_on()
        self.path.write_text(line(1))
        feed.pass_on()
        self.path.write_text(line(1) + line(2) + line(3) + line(4))
        feed.pass_on()
        self.assertEqual([step for step, _ in self.recorder.runs[0]], [1, 2, 3, 4])

    def test_another_run_in_the_same_file_is_another_series(self):
        self.path.write_text(line(1) + line(2))
        feed = self.feed()
        feed.pass_on()
        self.path.write_text(line(1, 6.0))
        feed.pass_on()
        self.assertEqual(self.recorder.runs, [[(1, 5.0), (2, 5.0)], [(1, 6.0)]])

    def test_refuses_what_is_no_log(self):
        for content, part in (
                ("hello\n", "log.jsonl:1 is not JSON"), ("[1]\n", "log.jsonl:1 is not a line"), ("5\n", "not a line"),
                ("null\n", "not a line"), ('{"loss": 1}\n', "not a line"),
                ('{"step": 1}\n{}\n', "log.jsonl:2 is not a line"), ('{"step": "1"}\n', "not a line"),
                ('{"step": NaN}\n', "not a line"),
                ('{"step": 1e999}\n', "not a line"), ('{"step": true}\n', "not a line"),
                ('{"step": -1}\n', "not a line"),
                ('{"step": 1.5}\n', "not a line"), (b"\xff\xfe\n", "not JSON"), ("[" * 100000 + "\n", "not JSON"),
                ('{"step": ' + "9" * 5000 + "}\n", "not JSON"), (b"\0\0\0\n", "not JSON"),
                (b"\0\xff\n\x80\n", "not JSON"), ("\x1b[31m\n", "not JSON"), ("", "no complete line"),
                ('{"step": 1', "no complete line"), (b"\x1f\x8b\x08\0abc", "no complete line")):
            self.path.write_bytes(content if isinstance(content, bytes) else content.encode())
            self.assertIn("`ebb train --log`", self.refused(part, self.path, "--to", "print"))

    def test_refuses_other_files_and_flags(self):
        self.path.write_text(line(1))
        folder, pipe = self.path.parent, self.path.with_name("pipe")
        os.mkfifo(pipe)
        for part, arguments in (
                ("does not exist; --follow waits for it", [folder / "none", "--to", "print"]),
                ("is not a file", [folder, "--to", "print"]), ("is not a file", [pipe, "--to", "print"]),
                ("is not a file", ["/dev/null", "--to", "print", "--follow"]),
                (f"the folder {folder}/none does not exist", [folder / "none" / "a", "--to", "print", "--follow"]),
                ("invalid choice: 'paper'", [self.path, "--to", "paper"]), ("required: --to", [self.path]),
                ("allowed is a number of seconds", [self.path, "--to", "print", "--poll", "0"]),
                ("allowed is a number of seconds", [self.path, "--to", "print", "--poll", "nan"]),
                ("invalid seconds value", [self.path, "--to", "print", "--poll", "x"]),
                ("--nope", [self.path, "--to", "print", "--nope"])):
            self.refused(part, *arguments)

    def test_files_that_cannot_be_opened_are_named_with_their_flag(self):
        missing = f"{self.path}: No such file or directory"
        for flags, said in (([], missing), (["--log"], "--log " + missing)):
            with self.assertRaises(script_errors.InputError) as raised:
                script_errors.open_file(self.path, *flags)
            self.assertEqual(str(raised.exception), said)

    def test_numbers_that_are_not_finite_are_left_out(self):
        step = '{"step": 1, "loss": NaN, "grad_norm": null, "tflops": 1e999, "x": %s, "mfu": 2}\n' % ("9" * 400)
        self.path.write_text(step + '\n{"end": true}\n')
        said = 'step 1 other/mfu=2\nend {"end": true}\n'
        self.assertEqual(self.run_script(self.path, "--to", "print"), (0, said, ""))

    def test_an_incomplete_line_is_reported(self):
        self.path.write_text('{"step": 1, "loss": 2}\n{"step"')
        code, out, err = self.run_script(self.path, "--to", "print")
        self.assertEqual((code, out), (0, "step 1 loss/train=2\n"))
        self.assertIn("the last line is incomplete", err)

    def test_control_characters_do_not_reach_the_terminal(self):
        out = io.StringIO()
        log_to.Print(None, out).step(1, {"other/\x1b[31m\n": 3.0})
        self.assertEqual(out.getvalue().count("\n"), 1)
        self.assertNotIn("\x1b", out.getvalue())

    def test_follows_until_the_end(self):
        def write():
            time.sleep(0.05)
            for text in (line(1), line(2)[:7], line(2)[7:], END):
                with open(self.path, "a") as file:
                    file.write(text)
                time.sleep(0.03)

        writer = threading.Thread(target=write)
        writer.start()
        with mock.patch("sys.stdout", io.StringIO()) as out:
            log_to.main([str(self.path), "--to", "print", "--follow", "--poll", "0.01"])
        writer.join()
        lines = out.getvalue().splitlines()
        self.assertEqual([text.split()[:2] for text in lines[:2]], [["step", "1"], ["step", "2"]])
        self.assertTrue(lines[2].startswith("end "), lines)

    def test_tensorboard_gets_scalars(self):
        writer = mock.Mock()
        module = types.ModuleType("torch.utils.tensorboard")
        module.SummaryWriter = mock.Mock(return_value=writer)
        self.path.write_text(line(1, eval_loss=4.0) + END)
        names = {"torch": types.ModuleType("torch"), "torch.utils": types.ModuleType("torch.utils")}
        with mock.patch.dict(sys.modules, {**names, "torch.utils.tensorboard": module}):
            log_to.main([str(self.path), "--to", "tensorboard", "--out", "somewhere"])
        module.SummaryWriter.assert_called_once_with(log_dir="somewhere")
        self.assertIn(mock.call("loss/eval", 4.0, 1), writer.add_scalar.call_args_list)
        writer.add_text.assert_called_once()
        writer.close.assert_called_once()

    def test_weights_and_biases_gets_steps_and_a_summary(self):
        run = mock.Mock(summary={})
        module = types.ModuleType("wandb")
        module.init = mock.Mock(return_value=run)
        self.path.write_text(line(7) + END)
        with mock.patch.dict(sys.modules, {"wandb": module}):
            log_to.main([str(self.path), "--to", "wandb", "--project", "p", "--name", "n"])
        module.init.assert_called_once_with(project="p", name="n", dir=None)
        run.log.assert_called_once_with({"loss/train": 5.0, "speed/step_seconds": 0.125}, step=7)
        self.assertEqual(run.summary["state_hash"], "00ff")
        run.finish.assert_called_once()

    def test_a_missing_package_is_reported_with_its_installation(self):
        self.path.write_text(line(1))
        for to, package, modules in (("wandb", "wandb", ["wandb"]),
                                     ("tensorboard", "tensorboardX", ["torch.utils.tensorboard", "tensorboardX"])):
            with mock.patch.dict(sys.modules, dict.fromkeys(modules)):
                said = self.refused(f"run 'pip install {package}'", self.path, "--to", to)
            for name in modules:
                self.assertIn(f"import of {name}", said)

    def test_failures_of_a_sink_are_one_line(self):
        self.path.write_text(line(1))
        wandb, tensorboard = types.ModuleType("wandb"), types.ModuleType("tensorboardX")
        wandb.init = mock.Mock(side_effect=RuntimeError("api_key not configured\n(no-tty)"))
        tensorboard.SummaryWriter = lambda log_dir: os.makedirs(log_dir)
        modules = {"wandb": wandb, "torch.utils.tensorboard": None, "tensorboardX": tensorboard}
        with mock.patch.dict(sys.modules, modules):
            self.refused("api_key not configured (no-tty); log in with: wandb login", self.path, "--to", "wandb")
            self.refused(f"{self.path}: File exists; name a folder", self.path, "--to", "tensorboard", "--out",
                         self.path)

    def test_reads_a_log_of_ebb(self):
        if EBB is None:
            self.skipTest("no ebb was given")
        data = self.path.with_name("text")
        data.write_text("x" * 20000)
        flags = "train --preset toy-bytes --device host --threads 1 --seq-length 16 --steps 3"
        subprocess.run(
            [EBB, *flags.split(), "--data", data, "--log", self.path], check=True, capture_output=True, timeout=300
        )
        shown = subprocess.run(
            [sys.executable, SCRIPT, self.path, "--to", "print"], check=True, capture_output=True, text=True, timeout=60
        ).stdout.splitlines()
        self.assertEqual([text.split()[1] for text in shown[:3]], ["1", "2", "3"])
        self.assertIn("loss/train=", shown[0])
        self.assertNotIn("other/", "".join(shown), "a field of the log has no name in log_to.py")
        self.assertTrue(shown[3].startswith("end "))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        EBB = sys.argv.pop(1)
    unittest.main()
