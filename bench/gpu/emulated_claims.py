#!/usr/bin/env python3
"""The claims of planned_claims.py at about a twentieth of their size, on this machine: does a step take as long as its plan says?

    python3 bench/gpu/emulated_claims.py EBB [8B 10B 14B 17B 19B] [--steps 6] [--text PATH]

EBB is the program. No GPU is needed, but two cores and up to 19 GiB of free memory. For each claim, `ebb plan` finds the fastest
division into micro-batches with the rates of the H200 in h200_7d03729.json. `ebb plan` and `ebb train` of the small model use the
same division, --emulate-compute and --link: the executor, the copies and Adam are real, and kernels sleep. What is scaled:

- Channels, vocabulary and the tokens of a sequence are divided by 32/7; the numbers of layers and sequences stay. So the bytes of
  weights, state and activations are divided by 20.9, and so are both budgets. The arithmetic is divided by 95.5.
- A quarter of the heads is left, and each has 112 instead of 128 channels. Chunks have 4 MiB, which is a multiple of a huge page; a
  twentieth of 64 MiB is not. So there are 0.77 x as many chunks.
- Adam has its real speed, on one thread. The copies of both directions have the other core, because a GPU's copies use no core.
  Adam's rate is measured before each claim. The rates of the link, of arithmetic and of device memory are scaled so that the times of
  copies, kernels and updates have the same ratios as on the H200.
- The emulated device has one rate for all arithmetic. It is chosen so that the compute time of a step without recomputation has the
  right ratio. Recomputed norms and attention are cheaper than on the H200.

Columns: the claim, its model, the tokens of a step, both budgets and the micro-batches; the step in the H200's plan, and how long its streams work, in percent of the step; Adam's rate here in GB/s; the step in
the emulated plan, and its streams; the median of the measured steps, the fastest one, and the median against the emulated plan. If
the fastest step is much below the median, other programs used the cores. In a run, copies and Adam have a core each; the emulated
plan assumes that they share one, so it is pessimistic if they overlap much.

Exit code: 0 if the median step of each run is within 10 % of its emulated plan; 1 otherwise, also if a claim does not fit or its
training fails.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from fractions import Fraction

import claims
import planned_claims

SHRINK = Fraction(32, 7)
BYTES_SHRINK, FLOPS_SHRINK = float(SHRINK**2), float(SHRINK**3)
LARGEST_ERROR = 0.1


class Emulation:
    """The H200's rates and budgets at the scale of the small models."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        path = planned_claims.HERE / "h200_7d03729.json"
        self.h200 = planned_claims.Machine("h200", path, 0, folder)
        self.planner = planned_claims.Planner(options.ebb, lambda name: self.model_folder(name, 1))
        self.one_rate = self.write_one_rate(json.loads(path.read_text()))

    def write_one_rate(self, machine):
        """The H200 as an emulated device would be it: all arithmetic at one rate, and kernels that start in no time."""
        machine |= {"attention_flops_per_s": machine["flops_per_s"], "vector_flops_per_s": machine["flops_per_s"], "kernel_s": 0}
        path = self.folder / "one-rate.json"
        path.write_text(json.dumps(machine))
        return str(path)

    def model_folder(self, name, shrink):
        folder = self.folder / f"{name}-{float(shrink):.1f}"
        if not folder.exists():
            folder.mkdir()
            claims.write_config(folder, name, int(claims.LENGTH / shrink), shrink)
        return folder, claims.CLAIMS[name][3]

    def flags(self, claim, device, full_plan):
        """Of `ebb plan` and `ebb train`, without rates."""
        folder, clip = self.model_folder(claim.model, SHRINK)
        device_bytes = planned_claims.gib(device) if device else self.h200.rates["device_memory_bytes"]
        return ["--model", str(folder), "--init", "random", "--seq-length", str(int(claims.LENGTH / SHRINK)), "--clip", str(clip),
                "--micro-batch-size", str(full_plan["micro_batch_size"]), "--gradient-accumulation", str(full_plan["micro_batches"]),
                "--device", "host", "--threads", "1", "--chunk-size", "4MiB", "--device-memory", str(int(device_bytes / BYTES_SHRINK)),
                "--host-memory", str(int(planned_claims.gib(claim.host) / BYTES_SHRINK))]

    def rate_flags(self, claim, adam_bytes_per_s):
        rates = self.h200.rates
        slower = adam_bytes_per_s / rates["update_bytes_per_s"]
        one_rate_s, compute_s = (self.planner.plan_of_level(claim.model, file, claim.sequences, "none")["stream_seconds"]["compute"]
                                 for file in (self.one_rate, self.h200.file))
        kernels = slower * one_rate_s / compute_s
        return ["--link", f"{rates['load_bytes_per_s'] * slower:.0f}B/s,{rates['store_bytes_per_s'] * slower:.0f}B/s",
                "--emulate-compute", f"{rates['flops_per_s'] * kernels * BYTES_SHRINK / FLOPS_SHRINK:.0f}FLOP/s,"
                                     f"{rates['device_bytes_per_s'] * kernels:.0f}B/s"]

    def adam_bytes_per_s(self, claim):
        """Measures the machine anew. `ebb plan` and `ebb train` use the same measurement until the next one."""
        file, folder = self.folder / "this.json", self.model_folder(claim.model, SHRINK)[0]
        flags = ["--model", str(folder), "--init", "random", "--device", "host", "--threads", "1", "--measure", "--write-machine", str(file)]
        subprocess.run([self.options.ebb, "plan", *flags], capture_output=True, check=True)
        return json.loads(file.read_text())["update_bytes_per_s"]["value"]

    def run(self, claim, device, adam):
        """Prints a row. Returns (the H200's plan, the emulated plan, measured), or None where something does not fit or fails."""
        text = f"{claim.name:<3}{claim.model:<5}{claim.sequences * 2:>3}k{device or 'all':>7}{claim.host:>8}"
        full_plan = self.planner.fastest(claim, self.h200.file, device)
        if full_plan is None:
            return print(f"{text}  does not fit", flush=True)
        flags = self.flags(claim, device, full_plan) + self.rate_flags(claim, adam)
        plan = claims.plan(self.options, flags)
        if not plan["fits"]:
            return print(f"{text}  {plan['why'].splitlines()[0]}", flush=True)
        code, measured, last_lines = claims.train(self.options, self.folder, flags)
        if code != 0 or not measured:
            return print(f"{text}  FAILED: the training ended with {code}:", *last_lines, sep="\n", flush=True)
        print(f"{text} {full_plan['micro_batch_size']:>3}x{full_plan['micro_batches']:<3}{full_plan['predicted_seconds']:>7.2f}"
              f"  {shares(full_plan)} |{adam / 1e9:>6.1f}{plan['predicted_seconds']:>8.3f}  {shares(plan)}"
              f"{measured['step_seconds']:>9.3f}{measured['fastest_seconds']:>9.3f}{error(plan, measured):>+8.1%}", flush=True)
        return full_plan, plan, measured


def shares(plan):
    streams = (plan["stream_seconds"][stream] / plan["predicted_seconds"] for stream in ("compute", "load", "store", "update"))
    return "".join(f"{share:>5.0%}" for share in streams)


def error(plan, measured):
    return measured["step_seconds"] / plan["predicted_seconds"] - 1


def claim_holds(emulation, claim):
    """Whether the steps take as long as planned."""
    adam = emulation.adam_bytes_per_s(claim)
    runs = [emulation.run(claim, device, adam) for device in ([None, claim.device] if claim.device else [None])]
    if claim.device and all(runs):
        whole, part = ((full["predicted_seconds"], plan["predicted_seconds"], measured["step_seconds"]) for full, plan, measured in runs)
        of_h200, emulated, reached = (a / b for a, b in zip(whole, part))
        print(f"   speed in {claim.device}, of all: plan of the H200 {of_h200:.1%}, emulated plan {emulated:.1%}, measured {reached:.1%}", flush=True)
    return all(run and abs(error(*run[1:])) <= LARGEST_ERROR for run in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ebb")
    parser.add_argument("names", nargs="*", default=["8B", "10B", "14B", "17B", "19B"])
    parser.add_argument("--steps", type=int, default=6, help="the first one does not count")
    parser.add_argument("--text", default=str(claims.ROOT / "tests"))
    options = parser.parse_args()
    if unknown := set(options.names) - {claim.model for claim in planned_claims.claims()}:
        parser.error(f"there is no claim about {', '.join(sorted(unknown))}")
    print(f"{'':3}{'':5}{'step':>4}{'device':>7}{'host':>8} {'micro':>7}{'H200 s':>7}   busy: comp load stor upd |"
          f"{'Adam':>6}{'plan s':>8}   busy: comp load stor upd{'median s':>9}{'fastest':>9}{'off':>8}", flush=True)
    with tempfile.TemporaryDirectory() as held:
        os.environ["XDG_CACHE_HOME"] = str(pathlib.Path(held) / "cache")  # rates that were measured at another time do not count
        emulation = Emulation(options, pathlib.Path(held))
        held_claims = [claim_holds(emulation, claim) for claim in planned_claims.claims() if claim.model in options.names]
    return 0 if all(held_claims) else 1


if __name__ == "__main__":
    sys.exit(main())
