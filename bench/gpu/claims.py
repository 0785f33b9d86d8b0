#!/usr/bin/env python3
"""GPTs of 8 to 19 B parameters, each as one command: what is planned beside what is measured, and the aim.

    python3 bench/gpu/claims.py EBB [8B 10B 14B 17B 19B] [--plan] [--steps 4] [--text PATH] [--host-memory SIZE]

EBB is the program. A model is a config.json written to a temporary folder; weights come from the seed. --plan plans alone, for
an H200, and prints what no schedule exceeds beside it (planned_claims.py): no GPU is needed. Where a plan does not fit, its
refusal is the result. Models of more than one budget must train to the same bits; the last column is their speed as a share of
the first budget's. `toy` is a test of this script on the host.

A row is printed as soon as it is measured. If a training fails or is cut off, its row is made of the steps that it finished,
the reason and the end of its output follow, and the next budget or model runs.

Exit code: 0 all that fit has run, or there is no GPU ("no GPU: ..."), 1 a run failed, was cut off, or bits differ. A missed
aim is a figure, not a failure.
"""

import argparse
import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

import planned_claims

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LENGTH = 2048
# channels, layers, heads, clip, sequences in a micro-batch, micro-batches, device budgets (None: all that is there), aim
CLAIMS = {
    "8B": (4096, 40, 32, 1, 4, 4, [None, "16GiB"], "16 GiB as fast as all: 95 %"),
    "10B": (4096, 48, 32, 0, 4, 4, [None, "16GiB"], "16 GiB as fast as all: 95 %"),
    "14B": (5120, 44, 40, 1, 8, 4, [None], "560 TFLOP/s"),
    "17B": (5120, 54, 40, 1, 8, 4, [None], "500 TFLOP/s"),
    "19B": (6144, 42, 48, 0, 8, 4, [None], "500 TFLOP/s"),
    "toy": (64, 2, 2, 1, 1, 2, [None, "1000KiB"], "a test of this script"),
}


def write_config(folder, name, length, shrink=1):
    """`shrink`: what divides channels and vocabulary. Fewer channels also mean fewer heads: about as many channels stay in each."""
    channels, layers, heads = CLAIMS[name][:3]
    vocabulary = 257 if name == "toy" else 50257
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": int(channels / shrink), "n_layer": layers,
              "n_head": heads // int(shrink), "n_positions": length, "vocab_size": round(vocabulary / shrink),
              "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
    (folder / "config.json").write_text(json.dumps(config))


def flags_of(folder, name, length, budget, options):
    _, _, _, clip, batch, micro_batches, _, _ = CLAIMS[name]
    flags = ["--model", str(folder), "--init", "random", "--seq-length", str(length), "--clip", str(clip),
             "--micro-batch-size", str(batch), "--gradient-accumulation", str(micro_batches)]
    flags += ["--device", "host", "--chunk-size", "128KiB"] if name == "toy" else []
    flags += ["--device", "cuda"] if name != "toy" else []
    flags += ["--device-memory", budget] if budget else []
    return flags + (["--host-memory", options.host_memory] if options.host_memory else [])


def plan(options, flags):
    found = subprocess.run([options.ebb, "plan", *flags, "--json"], capture_output=True, text=True)
    try:
        return json.loads(found.stdout)
    except json.JSONDecodeError:
        return {"fits": False, "why": found.stderr.strip() or found.stdout.strip()}


class CutOff(Exception):
    """This program was asked to end (SIGTERM)."""


def cut_off(*_):
    raise CutOff


def train(options, folder, flags):
    """Trains. Returns (exit code, None if this program was asked to end; measured, None if no step was; its last lines)."""
    log, output = folder / "log.jsonl", folder / "output"
    log.unlink(missing_ok=True)
    data = ["--data", options.text, "--token-type", "bytes"]
    command = [options.ebb, "train", *flags, *data, "--steps", str(options.steps), "--log", str(log)]
    try:
        with open(output, "w") as file:
            code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    except CutOff:
        code = None
    last_lines = [line for path in (log, output) if path.exists() for line in path.read_text(errors="replace").splitlines()[-6:]]
    return code, measured_of(log), last_lines


def measured_of(log):
    """The medians of the steps in a step log, and the state hash if the training reached its end. None if no step is there."""
    records = []
    for line in log.read_text(errors="replace").splitlines() if log.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:  # the training ended while it wrote this line
            pass
    steps = [record for record in records if "step_seconds" in record]
    steps = steps[1:] or steps  # the first one warms up
    if not steps:
        return None
    middle = {key: statistics.median(step[key] for step in steps) for key in ("step_seconds", "tokens_per_second", "tflops", "bound_share")}
    fastest = min(step["step_seconds"] for step in steps)
    return middle | {"fastest_seconds": fastest, "state_hash": records[-1].get("state_hash")}


def row(name, budget, planned, measured, first):
    print(f"{name:<5}{budget or 'all':>8}{planned['predicted_seconds']:>12.3f}{planned['tflops']:>10.1f}"
          f"{measured['step_seconds']:>12.3f}{measured['tflops']:>10.1f}{measured['tokens_per_second']:>10.0f}"
          f"{100 * measured['bound_share']:>8.1f} %{100 * first['step_seconds'] / measured['step_seconds']:>8.1f} %", flush=True)


def claim(options, name):
    """Returns whether everything that fits has run, to the same bits."""
    length = 32 if name == "toy" else LENGTH
    results, all_ran = [], True
    with tempfile.TemporaryDirectory() as held:
        folder = pathlib.Path(held)
        write_config(folder, name, length)
        for budget in CLAIMS[name][6]:
            flags = flags_of(folder, name, length, budget, options)
            planned = plan(options, flags)
            if not planned["fits"]:
                print(f"{name:<5}{budget or 'all':>8}  {planned['why'].splitlines()[0]}", flush=True)
                continue
            code, measured, last_lines = train(options, folder, flags)
            if measured:
                results.append(measured)
                row(name, budget, planned, measured, results[0])
            if not (code == 0 and measured and measured["state_hash"]):
                all_ran = False
                why = "was cut off" if code is None else f"ended with {code}" if code else "wrote no state hash"
                print(f"{name:<5}{budget or 'all':>8}  FAILED: the training {why}; the last lines of its step log and output:")
                print(*last_lines, sep="\n", flush=True)
            if code is None:
                raise CutOff
    print(f"      aim: {CLAIMS[name][7]}", flush=True)
    hashes = {result["state_hash"] for result in results if result.get("state_hash")}
    if len(hashes) > 1:
        print(f"      WRONG RESULT: states differ between budgets: {sorted(hashes)}", flush=True)
    return all_ran and len(hashes) <= 1


def show_plans(options):
    with tempfile.TemporaryDirectory() as held:
        def model_folder(name):
            folder = pathlib.Path(held) / name
            if not folder.exists():
                folder.mkdir()
                write_config(folder, name, LENGTH)
            return folder, CLAIMS[name][3]

        planned_claims.show(options.ebb, options.names, model_folder, pathlib.Path(held))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ebb")
    parser.add_argument("names", nargs="*", default=["8B", "10B", "14B", "17B", "19B"])
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--text", default=str(ROOT / "tests"))
    parser.add_argument("--host-memory")
    options = parser.parse_args()
    if options.plan:
        show_plans(options)
        return 0
    if options.names != ["toy"]:
        devices = subprocess.run([options.ebb, "devices"], check=True, capture_output=True, text=True).stdout
        if missing := re.search(r"^CUDA +none: (.*)$", devices, re.MULTILINE):
            print(f"no GPU: {missing[1]}; --plan MACHINE plans without one")
            return 0
    print(f"{'':<5}{'device':>8}{'predicted s':>12}{'TFLOP/s':>10}{'measured s':>12}{'TFLOP/s':>10}{'tokens/s':>10}{'of bound':>10}{'of first':>10}", flush=True)
    signal.signal(signal.SIGTERM, cut_off)
    try:
        return 0 if all([claim(options, name) for name in options.names]) else 1
    except CutOff:
        return 1
    except subprocess.CalledProcessError as problem:
        print(f"claims: {' '.join(problem.cmd)} ended with {problem.returncode}: {problem.stderr}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
