#!/usr/bin/env python3
"""The error of PyTorch's attention in bf16 against fp64: the bounds of test_attention.cpp (IsAsExactAsPyTorch), which computes
the same inputs. Runs on the CPU, and on a GPU with --cuda. Prints a row for each case: the head size, whether it is causal, and
for the output and for the gradients the root of the mean square error and the largest error.

    python3 tests/kernels/torch_attention_error.py [--cuda]"""

import sys

import torch

BATCH, TOKENS, HEADS = 2, 256, 4


def values(count, seed):
    """Multiples of 1/64 between -2 and 2, exact in bf16, from the bits of a hash of the index."""
    h = (torch.arange(count, dtype=torch.int64) + seed * 0x9E3779B9) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h = ((h ^ h >> shift) * factor) & 0xFFFFFFFF
    h ^= h >> 16
    return ((h >> 24) - 128).double() / 64


def attend(qkv, dout, causal, head):
    """The output (B, T, H D) and the gradient of qkv (B, T, 3 H D)."""
    qkv = qkv.clone().requires_grad_()
    parts = [p.reshape(BATCH, TOKENS, HEADS, head).transpose(1, 2) for p in qkv.split(HEADS * head, dim=2)]
    out = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=causal)
    out = out.transpose(1, 2).reshape(BATCH, TOKENS, HEADS * head)
    out.backward(dout)
    return out.detach(), qkv.grad


def errors(found, expected):
    difference = (found.double().cpu() - expected).abs()
    return f"{difference.square().mean().sqrt():.4e}, {difference.max():.4e}"


def main():
    device = "cuda" if "--cuda" in sys.argv else "cpu"
    print(f"// PyTorch {torch.__version__}, {device}")
    for head in (64, 128):
        for causal in (True, False):
            qkv = values(BATCH * TOKENS * 3 * HEADS * head, 1).reshape(BATCH, TOKENS, -1)
            dout = values(BATCH * TOKENS * HEADS * head, 2).reshape(BATCH, TOKENS, -1)
            expected = attend(qkv, dout, causal, head)
            found = attend(qkv.to(device, torch.bfloat16), dout.to(device, torch.bfloat16), causal, head)
            print(f"{{{head}, {str(causal).lower()}, {', '.join(errors(f, e) for f, e in zip(found, expected))}}},")


if __name__ == "__main__":
    main()
