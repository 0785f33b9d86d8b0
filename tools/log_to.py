#!/usr/bin/env python3
"""Sends a log of `ebb train --log FILE` to TensorBoard or Weights & Biases, during the run or after it.

Usage: log_to.py FILE --to print|tensorboard|wandb [--follow] [--out DIR] [--project NAME] [--name NAME]

`print` needs no package and prints the numbers. `tensorboard` needs torch or tensorboardX, `wandb` needs the package
wandb and a login. With --follow the tool waits for new lines until the run ends (or Ctrl-C). A resumed run cuts its log
back to its checkpoint and continues the log; steps that were already sent are not sent again. If a run starts a new
log, the tool starts a new series.
"""

import argparse
import json
import math
import pathlib
import sys
import time

from script_errors import InputError, Parser, import_package, one_line, open_file, run, say

# Names under which the fields of a line are shown. Other numbers are shown under "other/".
NAMES = {
    "loss": "loss/train",
    "eval_loss": "loss/eval",
    "best_eval_loss": "loss/best_eval",
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


def is_number(value):
    """Whether a value is a number that can be shown. Loss and norm are null if they are not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of a float
        return False


def scalars_of(record):
    """Returns the numbers of a line, with the names under which they are shown. Other fields are left out."""
    return {
        NAMES.get(field, "other/" + field): value
        for field, value in record.items()
        if field != "step" and is_number(value)
    }


class Print:
    """Writes one line for each step to a stream."""

    def __init__(self, _options, out=None):
        self.out = out or sys.stdout

    def step(self, step, scalars):
        values = " ".join(f"{name}={value:.6g}" for name, value in scalars.items())
        print(f"step {step} {one_line(values)}", file=self.out, flush=True)

    def end(self, record):
        print(f"end {json.dumps(record)}", file=self.out, flush=True)

    def close(self):
        pass


class TensorBoard:
    """Writes event files to a folder; `tensorboard --logdir DIR` shows them."""

    def __init__(self, options):
        module = import_package("torch.utils.tensorboard", "tensorboardX", install="tensorboardX")
        folder = options.out or str(pathlib.Path(options.log).with_suffix(".tensorboard"))
        try:
            self.writer = module.SummaryWriter(log_dir=folder)
        except OSError as error:
            raise InputError(f"{folder}: {error.strerror}; name a folder for TensorBoard with --out DIR") from error

    def step(self, step, scalars):
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, step)

    def end(self, record):
        self.writer.add_text("end", json.dumps(record), step_of(record.get("steps")) or 0)

    def close(self):
        self.writer.close()


class WeightsAndBiases:
    """Sends the numbers to a run of a Weights & Biases project."""

    def __init__(self, options):
        module = import_package("wandb", install="wandb")
        try:
            self.run = module.init(project=options.project, name=options.name, dir=options.out)
        except Exception as error:  # wandb has its own errors
            raise InputError(f"Weights & Biases does not start a run: {error}; log in with: wandb login") from error

    def step(self, step, scalars):
        self.run.log(scalars, step=step)

    def end(self, record):
        for field, value in record.items():
            self.run.summary[field] = value

    def close(self):
        self.run.finish()


SINKS = {"print": Print, "tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def step_of(value):
    """Returns the number of a step, or None if the value is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 63 else None


def record_of(line, place):
    """Returns the object of a line, which has a step or is the end."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place} is not JSON ({error}): {line[:80]!r}; give the file of `ebb train --log`") from error
    if not isinstance(record, dict) or not (record.get("end") or step_of(record.get("step"))):
        raise InputError(f"{place} is not a line of `ebb train --log`, an object with a positive \"step\" or \"end\": "
                         f"{line[:80]!r}")
    return record


class Log:
    """Reads the complete lines of a file that grows, is cut back, or is replaced by a new log."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.rewind()

    def rewind(self):
        self.position = 0
        self.first_line = None
        self.last_line = b""
        self.num_lines = 0
        self.is_incomplete = False  # the last line has no end

    def read(self):
        """Returns what happened ("grew", "cut" or "anew") and the new complete lines. After "cut" and "anew" these are
        all lines."""
        with open_file(self.path) as file:
            what = self.what_happened(file)
            if what != "grew":
                self.rewind()
            file.seek(self.position)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self.position += len(complete)
        self.is_incomplete = len(complete) < len(data)
        lines = [text + b"\n" for text in complete.split(b"\n")[:-1]]
        self.num_lines += len(lines)
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
        first = self.log.num_lines - len(lines) + 1
        for number, line in enumerate(lines, first):
            if line.strip():
                self.pass_record(record_of(line, f"{self.log.path}:{number}"))

    def pass_record(self, record):
        self.ended = bool(record.get("end"))
        if self.ended:
            self.sink.end(record)
        elif record["step"] > self.last_step:
            self.last_step = record["step"]
            self.sink.step(self.last_step, scalars_of(record))

    def follow(self, seconds):
        while not self.ended:
            time.sleep(seconds)
            try:
                self.pass_on()
            except InputError:
                if self.log.path.exists():  # otherwise the run has not begun, or has set the log aside
                    raise


def seconds(text):
    value = float(text)
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text}: allowed is a number of seconds from more than 0 to 3600")
    return value


def parse(arguments):
    parser = Parser(prog="log_to.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", metavar="FILE", help="the log that `ebb train --log` writes")
    parser.add_argument("--to", choices=SINKS, required=True, help="where to send the numbers")
    parser.add_argument("--follow", action="store_true", help="wait for more lines until the run ends")
    parser.add_argument("--poll", type=seconds, default=1.0, metavar="SECONDS", help="time between two reads [1]")
    parser.add_argument("--out", metavar="DIR", help="folder of event files [FILE.tensorboard], or of wandb's files")
    parser.add_argument("--project", default="ebb", help="project of Weights & Biases [ebb]")
    parser.add_argument("--name", help="name of the run in Weights & Biases")
    return parser.parse_args(arguments)


def check_log(path, follow):
    """A log is read again from its beginning, so a pipe cannot be one."""
    if not path.exists():
        if not follow:
            raise InputError(f"{path} does not exist; --follow waits for it")
        if not path.parent.is_dir():
            raise InputError(f"{path}: the folder {path.parent} does not exist")
    elif not path.is_file():
        raise InputError(f"{path} is not a file; give the file of `ebb train --log`")


def main(arguments):
    options = parse(arguments)
    log = Log(options.log)
    check_log(log.path, options.follow)
    feed = Feed(log, lambda: SINKS[options.to](options))
    try:
        if log.path.exists():
            feed.pass_on()
        if options.follow:
            feed.follow(options.poll)
    finally:
        feed.sink.close()
    if feed.last_step == 0 and not feed.ended:
        raise InputError(f"{log.path} has no complete line of a step; give the file of `ebb train --log`")
    if log.is_incomplete:
        say("log_to.py", "notice", f"{log.path}: the last line is incomplete and was left out")
    return 0


if __name__ == "__main__":
    sys.exit(run("log_to.py", main, sys.argv[1:]))
