#!/usr/bin/env python3
"""How far from exact arithmetic does DeepSpeed's CPU Adam end?  Writes tests/fixtures/deepspeed_adam.json.

    build/peers/bin/python bench/peers/adam_error.py

AdamW in fp64 is the truth. The figures are the largest and the mean distance of DeepSpeed's fp32 parameters from it,
after a few steps from the same values, once with the usual betas and once with the settings that `ebb train`
starts from; tests/cpu_adam/test_error.cpp makes the same values and holds ours to these figures.
Nothing depends on a library's random numbers: an element is a hash of its index, see hashes(), masters(), gradients().
"""

import json
import os
import pathlib
import sys

ENV = pathlib.Path(sys.prefix)
os.environ |= {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(ENV / "torch_extensions"),
               "PATH": f"{ENV / 'bin'}:{os.environ['PATH']}"}

import numpy as np
import torch

import deepspeed
from deepspeed.ops.adam import DeepSpeedCPUAdam

FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/deepspeed_adam.json"
ELEMENTS = 1 << 16
STEPS = 12
RUNS = [dict(learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.1),
        dict(learning_rate=3e-4, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.1)]

GENERATOR = """\
hash(stream, i): x = (2^32 stream + i + 1) * 0x9e3779b97f4a7c15; x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9; \
x = (x ^ x >> 27) * 0x94d049bb133111eb; x ^ x >> 31, modulo 2^64. \
Master i: bits of hash(0, i), (top 24 / 2^24 - 0.5) * 0.08 in fp64, rounded to fp32. \
Gradient i of step t = 1, 2, ...: the bf16 with sign bit 63, exponent 114 + bits 60-62 and mantissa bits 53-59 of \
hash(t, i)."""


def hashes(stream):
    x = np.arange(ELEMENTS, dtype=np.uint64) + np.uint64((stream << 32) + 1)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def masters():
    return (((hashes(0) >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5) * 0.08).astype(np.float32)


def gradients(step):
    """Magnitudes from 2^-13 to 2^-5, exact in bf16."""
    x = hashes(step)
    bits = ((x >> np.uint64(63)) << np.uint64(31)) | ((np.uint64(114 << 23)) + ((x >> np.uint64(53) & np.uint64(0x3FF))
                                                                                 << np.uint64(16)))
    return bits.astype(np.uint32).view(np.float32)


def exact(learning_rate, beta1, beta2, epsilon, weight_decay):
    p = masters().astype(np.float64)
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t in range(1, STEPS + 1):
        g = gradients(t).astype(np.float64)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        p -= learning_rate * weight_decay * p
        p -= learning_rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    return p


def trained(make_optimizer, learning_rate, beta1, beta2, epsilon, weight_decay):
    parameter = torch.nn.Parameter(torch.from_numpy(masters()))
    optimizer = make_optimizer([parameter], lr=learning_rate, betas=(beta1, beta2), eps=epsilon,
                               weight_decay=weight_decay)
    for t in range(1, STEPS + 1):
        parameter.grad = torch.from_numpy(gradients(t))
        optimizer.step()
    return parameter.detach().numpy()


def errors(make_optimizer, settings):
    distance = np.abs(trained(make_optimizer, **settings).astype(np.float64) - exact(**settings))
    return {"max": float(distance.max()), "mean": float(distance.mean())}


def main():
    record = {
        "about": "distance from AdamW in fp64 after all steps; written by bench/peers/adam_error.py",
        "generator": GENERATOR,
        "versions": {"deepspeed": deepspeed.__version__, "torch": torch.__version__},
        "elements": ELEMENTS, "steps": STEPS,
        "first_masters": [float(x) for x in masters()[:4]],
        "first_gradients": [float(x) for x in gradients(1)[:4]],
        "runs": [settings | {
            "deepspeed": errors(DeepSpeedCPUAdam, settings),
            "torch": errors(lambda p, **kw: torch.optim.AdamW(p, fused=True, **kw), settings)} for settings in RUNS],
    }
    FIXTURE.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record["runs"], indent=1))


if __name__ == "__main__":
    main()
