#!/usr/bin/env python3
"""Tests what `ebb train` does with the loss of evaluations, and its samples of text: --eval-split, --save-best,
--early-stop and --sample-steps, also after resuming. The models are over bytes, so the tests need no package.

Usage: test_evaluations.py EBB
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

EBB = None
RATES = None  # a folder with the rates of the machine, which are measured once
TEXT = "".join(f"{i}: the quick brown fox jumps over the lazy dog and {i * i} others.\n" for i in range(400))
SMALL = ["--preset", "toy-bytes", "--device", "host", "--dtype", "fp32", "--threads", "1", "--chunk-size", "256KiB",
         "--seq-length", "32", "--micro-batch-size", "2"]


class Evaluations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ebb-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("data.txt", TEXT)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def start(self, *arguments):
        return subprocess.run([EBB, "train", *arguments], cwd=self.folder, env={**os.environ, "XDG_CACHE_HOME": RATES},
                              capture_output=True, text=True, check=False)

    def train(self, *flags):
        outcome = self.start(*SMALL, "--data", "data.txt", *flags)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        return outcome

    def resume(self, *flags):
        outcome = self.start("--resume", "--save", "run", *flags)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        return outcome

    def refused(self, part, *flags, code=2):
        outcome = self.start(*SMALL, "--data", "data.txt", *flags)
        self.assertEqual(outcome.returncode, code, outcome.stderr)
        self.assertIn(part, outcome.stderr)

    def log(self, name="log"):
        lines = [json.loads(line) for line in (self.folder / name).read_text().splitlines()]
        return [line for line in lines if "step" in line]

    def losses(self, name="log"):
        return {line["step"]: line["eval_loss"] for line in self.log(name) if "eval_loss" in line}

    def checkpoints(self):
        return sorted(path.name for path in (self.folder / "run").iterdir())

    def change_slowly(self):
        """Flags with which the losses of evaluations are different in each step."""
        return ["--eval-split", "10%", "--eval-steps", "1", "--lr-schedule", "constant"]


class Split(Evaluations):
    def test_holds_samples_out(self):
        outcome = self.train("--eval-split", "10%", "--steps", "1", "--log", "log")
        found = [line for line in outcome.stderr.splitlines() if line.startswith("eval ")]
        held_out, all_samples = [int(word) for word in found[0].split() if word.isdigit()][:2]
        self.assertEqual(all_samples, (len(TEXT) - 1) // 32)
        self.assertTrue(0.05 * all_samples < held_out < 0.16 * all_samples, found)
        self.assertEqual(list(self.losses()), [1])

    def test_leaves_the_other_samples(self):
        known = set()
        for share in ("30%", "31%", "60%"):
            outcome = self.train("--eval-split", share, "--epochs", "1", "--dry-run")
            text = outcome.stdout
            steps = int(text.split(" steps")[0].split()[-1])
            held_out = int(text.split(" of ")[0].split()[-1])
            all_samples = (len(TEXT) - 1) // 32
            self.assertEqual(steps, -(-(all_samples - held_out) // 2), "an epoch has the samples that stay")
            known.add(held_out)
        self.assertEqual(len(known), 3)

    def test_is_that_of_equal_tokens(self):
        self.write("data.txt", ("a" * 31 + "\n") * 200 + "b")
        self.refused("held out", "--eval-split", "50%", "--steps", "1")

    def test_stays_after_resuming(self):
        flags = ["--eval-split", "20%", "--eval-steps", "2", "--eval-batches", "9999", "--steps", "6"]
        self.train(*flags, "--log", "whole")
        self.train(*flags, "--save", "run", "--save-steps", "3", "--log", "log")
        state = (self.folder / "log").read_text().splitlines()[-1].split("state_hash")[1][:22]
        shutil.rmtree(self.folder / "run" / "step-6")
        self.resume("--log", "log")
        self.assertEqual(self.losses(), self.losses("whole"))
        self.assertIn(state, (self.folder / "log").read_text().splitlines()[-1])

    def test_refuses_what_cannot_be_meant(self):
        for value in ("0", "0%", "95%", "1.5", "x%", "-1%", ""):
            self.refused("a share of at most 90%, such as 1% or 0.01", "--eval-split", value)
        self.refused("--eval-split and --eval-data exclude each other", "--eval-split", "1%", "--eval-data", "data.txt")
        for flag in (["--early-stop", "1"], ["--eval-steps", "1"], ["--save-best", "--save", "run"]):
            self.refused(f"{flag[0]} needs --eval-data PATH or --eval-split P%", *flag)
        self.refused("--save-best needs --save DIR", "--save-best", "--eval-split", "1%")


class Best(Evaluations):
    def test_is_saved_kept_and_linked(self):
        self.train(*self.change_slowly(), "--steps", "8", "--lr", "0.3", "--save", "run", "--save-steps", "100", "--save-best",
                   "--save-keep", "1", "--log", "log")
        losses = self.losses()
        best = min(losses, key=losses.get)
        self.assertLess(best, 8, losses)
        self.assertEqual(self.checkpoints(), ["best", f"step-{best}", "step-8"])
        self.assertEqual(os.readlink(self.folder / "run" / "best"), f"step-{best}")
        lowest = [min(list(losses.values())[:i + 1]) for i in range(8)]
        self.assertEqual([line["best_eval_loss"] for line in self.log()], lowest)
        self.resume("--steps", "10", "--log", "log")
        self.assertIn(f"step-{min(self.losses(), key=self.losses().get)}", os.readlink(self.folder / "run" / "best"))
        self.assertEqual(len(self.checkpoints()), 3)

    def test_does_not_replace_a_file(self):
        (self.folder / "run").mkdir()
        self.write("run/best", "mine")
        outcome = self.train(*self.change_slowly(), "--steps", "1", "--save", "run", "--save-best")
        self.assertIn("is no link of --save-best", outcome.stderr)
        self.assertEqual((self.folder / "run" / "best").read_text(), "mine")


class EarlyStop(Evaluations):
    def test_ends_a_run_that_does_not_improve(self):
        flags = [*self.change_slowly(), "--steps", "60", "--lr", "0.3", "--early-stop", "3"]
        outcome = self.train(*flags, "--log", "whole")
        losses = self.losses("whole")
        best = min(losses, key=losses.get)
        self.assertEqual(max(losses), best + 3)
        self.assertIn(f"--early-stop 3: the run ends after step {best + 3} of 60", outcome.stderr)
        self.train(*flags[:-2], "--early-stop", "2", "--save", "run", "--log", "log")
        self.assertEqual(max(self.losses()), best + 2)
        self.assertIn("--early-stop 2", self.resume().stderr, "it has ended already")
        self.resume("--early-stop", "3", "--log", "log")
        self.assertEqual(self.losses(), losses)


class Samples(Evaluations):
    def test_do_not_change_the_training(self):
        plain = self.train("--steps", "6", "--log", "plain")
        shown = self.train("--steps", "6", "--sample-steps", "2", "--sample-prompt", "the ", "--log", "log")
        self.assertEqual(shown.stdout.split("state_hash")[1], plain.stdout.split("state_hash")[1])
        samples = {line["step"]: line["sample"] for line in self.log() if "sample" in line}
        self.assertEqual(list(samples), [2, 4, 6])
        for step, text in samples.items():
            self.assertTrue(text.startswith("the ") and len(text) > 40, text)
            self.assertIn(f"step {step}: {text}\n", shown.stderr)
        self.train("--steps", "4", "--lr-schedule", "constant", "--sample-steps", "2", "--save", "run", "--log", "short")
        self.resume("--steps", "6", "--log", "short")
        self.assertEqual([line["step"] for line in self.log("short") if "sample" in line], [2, 4, 6])

    def test_refuse_what_cannot_be_meant(self):
        self.refused("--sample-prompt needs --sample-steps N", "--sample-prompt", "x")
        self.refused("--sample-prompt", "--sample-steps", "1", "--sample-prompt", "")
        self.refused("--emulate-compute", "--sample-steps", "1", "--emulate-compute", "1e12")
        (self.folder / "data.txt").unlink()
        (self.folder / "data.bin").write_bytes(bytes(4000))
        outcome = self.start("--preset", "gpt-6x384", *SMALL[2:], "--data", "data.bin", "--token-type", "u16",
                             "--sample-steps", "1")
        self.assertEqual(outcome.returncode, 2)
        self.assertIn("--sample-steps needs a tokenizer", outcome.stderr)


if __name__ == "__main__":
    EBB = str(pathlib.Path(sys.argv.pop(1)).resolve())
    with tempfile.TemporaryDirectory(prefix="ebb-test-") as RATES:
        unittest.main(verbosity=2)
