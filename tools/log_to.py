#!/usr/bin/env python3
"""Sends a log of `ebb train --log FILE` to TensorBoard or Weights & Biases, during the run or after it.

Usage: log_to.py FILE --to print|tensorboard|wandb [--follow] [--out DIR] [--project NAME] [--name NAME]

`print` needs no package and prints the numbers. `tensorboard` needs torch or tensorboardX, `wandb` needs the package
wandb and a login. With --follow the tool waits for new lines until the run ends (or Ctrl-C). A resumed run cuts its log
back to its checkpoint and continues the log; steps that were already sent are not sent again. If a run starts a new
log, the tool starts a new series.
"""

import argparse
import importlib
import json
import pathlib
import sys
import time

# Names under which the fields of a line are shown. Other numbers are shown under "other/".
NAMES = {
    "loss": "loss/train",
    "eval_loss": "loss/eval",
    "grad_norm": "optimizer/grad_norm",
    "learning_rate": "optimizer/learning_rate",
    "loss_scale": "optimizer/loss_scale",
    "skipped_steps": "optimizer/skipped_steps",
    "epoch": "optimizer/epoch",
    "tokens_seen": "optimizer/tokens_seen",
    "step_seconds": "speed/step_seconds",
    "tokens_per_second": "speed/tokens_per_second",
    "tflops": "speed/tflops",
    "bound_seconds": "speed/bound_seconds",
    "bound_share": "speed/bound_share",
    "stall_seconds": "speed/stall_seconds",
    "loaded_bytes": "memory/loaded_bytes",
    "stored_bytes": "memory/stored_bytes",
    "device_peak_bytes": "memory/device_peak_bytes",
    "host_bytes": "memory/host_bytes",
}


def scalars_of(record):
    """Returns the numbers of a line, with the names under which they are shown. Fields that are null are left out."""
    return {
        NAMES.get(field, "other/" + field): value
        for field, value in record.items()
        if field != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)
    }


class Print:
    """Writes one line for each step to a stream."""

    def __init__(self, _options, out=None):
        self.out = out or sys.stdout

    def step(self, step, scalars):
        values = " ".join(f"{name}={value:.6g}" for name, value in scalars.items())
        print(f"step {step} {values}", file=self.out, flush=True)

    def end(self, record):
        print(f"end {json.dumps(record)}", file=self.out, flush=True)

    def close(self):
        pass


class TensorBoard:
    """Writes event files to a folder; `tensorboard --logdir DIR` shows them."""

    def __init__(self, options):
        module = import_first("torch.utils.tensorboard", "tensorboardX", advice="pip install tensorboard torch")
        self.writer = module.SummaryWriter(log_dir=options.out or str(pathlib.Path(options.log).with_suffix(".tensorboard")))

    def step(self, step, scalars):
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, step)

    def end(self, record):
        self.writer.add_text("end", json.dumps(record), record.get("steps", 0))

    def close(self):
        self.writer.close()


class WeightsAndBiases:
    """Sends the numbers to a run of a Weights & Biases project."""

    def __init__(self, options):
        module = import_first("wandb", advice="pip install wandb, then wandb login")
        self.run = module.init(project=options.project, name=options.name, dir=options.out)

    def step(self, step, scalars):
        self.run.log(scalars, step=step)

    def end(self, record):
        for field, value in record.items():
            self.run.summary[field] = value

    def close(self):
        self.run.finish()


SINKS = {"print": Print, "tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def import_first(*names, advice):
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            reason = error
    raise SystemExit(f"log_to: {reason}; to install it: {advice}")


class Log:
    """Reads the complete lines of a file that grows, is cut back, or is replaced by a new log."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.rewind()

    def rewind(self):
        self.position = 0
        self.first_line = None
        self.last_line = b""

    def read(self):
        """Returns what happened ("grew", "cut" or "anew") and the new complete lines. After "cut" and "anew" these are
        all lines."""
        with open(self.path, "rb") as file:
            what = self.what_happened(file)
            if what != "grew":
                self.rewind()
            file.seek(self.position)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self.position += len(complete)
        lines = complete.splitlines(keepends=True)
        if lines:
            self.first_line = self.first_line or lines[0]
            self.last_line = lines[-1]
        return what, lines

    def what_happened(self, file):
        """Compares the first line, whose measured times identify the run, and the last line that was read."""
        if self.first_line is None:
            return "grew"
        if file.read(len(self.first_line)) != self.first_line:
            return "anew"
        file.seek(self.position - len(self.last_line))
        return "grew" if file.read(len(self.last_line)) == self.last_line else "cut"


class Feed:
    """Passes a log's records to a sink, each step once."""

    def __init__(self, log, make_sink):
        self.log = log
        self.make_sink = make_sink
        self.sink = make_sink()
        self.last_step = 0
        self.ended = False

    def pass_on(self):
        what, lines = self.log.read()
        if what == "anew":
            self.sink.close()
            self.sink = self.make_sink()
            self.last_step = 0
        for line in lines:
            self.pass_line(line)

    def pass_line(self, line):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise SystemExit(f"log_to: {self.log.path}: a line is not JSON ({error}): {line[:80]!r}")
        self.ended = bool(record.get("end"))
        if self.ended:
            self.sink.end(record)
        elif record["step"] > self.last_step:
            self.last_step = record["step"]
            self.sink.step(self.last_step, scalars_of(record))

    def follow(self, seconds):
        while not self.ended:
            time.sleep(seconds)
            if self.log.path.exists():
                self.pass_on()


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", metavar="FILE", help="the log that `ebb train --log` writes")
    parser.add_argument("--to", choices=SINKS, required=True, help="where to send the numbers")
    parser.add_argument("--follow", action="store_true", help="wait for more lines until the run ends")
    parser.add_argument("--poll", type=float, default=1.0, metavar="SECONDS", help="time between two reads [1]")
    parser.add_argument("--out", metavar="DIR", help="folder of event files [FILE.tensorboard], or of wandb's files")
    parser.add_argument("--project", default="ebb", help="project of Weights & Biases [ebb]")
    parser.add_argument("--name", help="name of the run in Weights & Biases")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    log = Log(options.log)
    if not options.follow and not log.path.exists():
        raise SystemExit(f"log_to: {log.path} does not exist; --follow waits for it")
    feed = Feed(log, lambda: SINKS[options.to](options))
    try:
        if log.path.exists():
            feed.pass_on()
        if options.follow:
            feed.follow(options.poll)
    except KeyboardInterrupt:
        pass
    finally:
        feed.sink.close()


if __name__ == "__main__":
    main()
