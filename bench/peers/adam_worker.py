"""Does optimizer steps with DeepSpeed's CPU Adam and PyTorch's fused AdamW, for bench/peers/adam.

    python adam_worker.py --mi 64 --threads 2

For every line on stdin, a variant's name, it steps for about 0.4 s and writes one line of JSON: nanoseconds a
parameter, and the cores that others used meanwhile. All variants work on the same memory (fp32 parameters, momentum,
variance and gradient, bf16 gradient and bf16 copy), in huge pages where the system gives them.
"""

import argparse
import json
import math
import mmap
import os
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

from measure import LoadGate

SAMPLE_S = 0.4
SETTINGS = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def plane(count, dtype):
    size = count * dtype.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=count)


def fill(tensor, low, high):
    """Magnitudes between low and high and both signs, piece by piece to spare memory."""
    for piece in tensor.split(1 << 22):
        values = torch.empty(len(piece)).uniform_(low, high)
        piece.copy_(values * (torch.randint(2, values.shape) * 2 - 1))


class State:
    def __init__(self, count):
        torch.manual_seed(1)
        self.master, self.momentum, self.variance, self.gradient = (plane(count, torch.float32) for _ in range(4))
        self.narrow_gradient, self.weight = (plane(count, torch.bfloat16) for _ in range(2))
        fill(self.master, 2.0**-6, 2.0**-5)
        fill(self.narrow_gradient, 2.0**-10, 2.0**-9)
        self.gradient.copy_(self.narrow_gradient)
        self.momentum.zero_()
        self.variance.zero_()


class Stepper:
    """An optimizer over `state`, cut into tensors of `piece` elements: passes over a small one find it in the cache."""

    def __init__(self, state, make_optimizer, first_step, piece):
        self.pieces = list(zip(*(plane.split(piece) for plane in (
            state.master, state.momentum, state.variance, state.gradient, state.narrow_gradient, state.weight))))
        self.parameters = [torch.nn.Parameter(p[0]) for p in self.pieces]
        self.optimizers = [make_optimizer([parameter], **SETTINGS) for parameter in self.parameters]
        for parameter, optimizer, (_, momentum, variance, gradient, _, _) in zip(
                self.parameters, self.optimizers, self.pieces):
            parameter.grad = gradient
            optimizer.state[parameter] = {"step": first_step(), "exp_avg": momentum, "exp_avg_sq": variance}

    @torch.no_grad()
    def step(self, widen, narrow):
        for parameter, optimizer, (_, _, _, gradient, narrow_gradient, weight) in zip(
                self.parameters, self.optimizers, self.pieces):
            if widen:
                gradient.copy_(narrow_gradient)
            optimizer.step()
            if narrow:
                weight.copy_(parameter)


def variants(state):
    def deepspeed(piece):
        return Stepper(state, DeepSpeedCPUAdam, lambda: 0, piece)

    def fused(piece):
        return Stepper(state, lambda p, **kw: torch.optim.AdamW(p, fused=True, **kw), lambda: torch.tensor(0.0), piece)

    whole, small = len(state.master), 1 << 20
    ds, ds_pieces, torch_, torch_pieces = deepspeed(whole), deepspeed(small), fused(whole), fused(small)
    return {
        "deepspeed fp32": lambda: ds.step(False, False),
        "deepspeed copy": lambda: ds.step(False, True),
        "deepspeed offload": lambda: ds.step(True, True),
        "deepspeed offload pieces": lambda: ds_pieces.step(True, True),
        "torch fp32": lambda: torch_.step(False, False),
        "torch offload": lambda: torch_.step(True, True),
        "torch offload pieces": lambda: torch_pieces.step(True, True),
    }


def sample(step, count):
    gate, start, passes = LoadGate(), time.perf_counter(), 0
    while time.perf_counter() - start < SAMPLE_S:
        step()
        passes += 1
    elapsed = time.perf_counter() - start
    return {"ns": 1e9 * elapsed / passes / count, "others": gate.other_cores()}


def check(state):
    """The copy is the rounded parameter, and all of it was trained."""
    for master, weight, variance in zip(*(p.split(1 << 22) for p in (state.master, state.weight, state.variance))):
        if not (torch.equal(weight, master.bfloat16()) and bool((variance > 0).all()) and math.isfinite(master.sum())):
            sys.exit("the step left wrong results")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mi", type=int, required=True, help="parameters in Mi")
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    state = State(options.mi << 20)
    steps = variants(state)
    for line in sys.stdin:
        step = steps[line.strip()]
        step()
        print(json.dumps(sample(step, options.mi << 20)), flush=True)
        if "offload" in line:
            check(state)


if __name__ == "__main__":
    main()
