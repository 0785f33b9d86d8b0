#!/usr/bin/env python3
"""The shapes of `bench_gpu gemm`, `attention` and `memory` in PyTorch on the same GPU, in the same units.

    bench/gpu/torch_kernels.py [gemm attention memory] [--small]

Products: TFLOP/s of a linear layer's forward and its two gradients. Attention: scaled_dot_product_attention with the causal
mask, and PyTorch's choice of an implementation. Memory: GB/s of the bytes that the operation has to read and write, as
bench_gpu counts them. An operation that PyTorch makes of several kernels is compiled with torch.compile. --small: small
shapes on the CPU, as a test of this script.
"""

import argparse

from torch_common import begin, torch
from torch._functorch import config as compiling

F = torch.nn.functional
BF16 = torch.bfloat16
# name, rows, inputs, outputs
LAYERS = [("GPT-2 qkv", 8192, 768, 2304), ("GPT-2 up", 8192, 768, 3072), ("GPT-2 down", 8192, 3072, 768),
          ("GPT-2 head", 2560, 768, 50257), ("GPT-3 6.7B qkv", 8192, 4096, 12288), ("GPT-3 6.7B up", 8192, 4096, 16384),
          ("GPT-3 6.7B down", 8192, 16384, 4096), ("GPT-3 13B up", 8192, 5120, 20480),
          ("Llama 8B gate and up", 8192, 4096, 28672)]
# name, batch, tokens, heads, heads of keys, channels of a head
ATTENTION = [("GPT-2", 16, 1024, 12, 12, 64), ("GPT-3 2.7B", 8, 2048, 32, 32, 80), ("GPT-3 6.7B", 4, 2048, 32, 32, 128),
             ("Llama 8B", 4, 2048, 32, 8, 128), ("Llama 8B", 2, 4096, 32, 8, 128), ("Llama 8B", 1, 8192, 32, 8, 128),
             ("Llama 8B", 1, 16384, 32, 8, 128)]
MATRICES = [(16384, 768), (8192, 4096)]
LOGITS = (8192, 50257)


def gemm(timer, layers):
    print(f"{'TFLOP/s':<22} {'rows':>6} {'in':>6} {'out':>6} {'forward':>9} {'input':>9} {'weight':>9}")
    for name, rows, inputs, outputs in layers:
        x, w = (torch.rand(n, inputs, device=timer.device, dtype=BF16) - 0.5 for n in (rows, outputs))
        dy, bias = (torch.rand(*shape, device=timer.device, dtype=BF16) for shape in ((rows, outputs), (outputs,)))
        seconds = [timer.seconds(call) for call in (lambda: F.linear(x, w, bias), lambda: dy @ w, lambda: dy.t() @ x)]
        flops = 2.0 * rows * inputs * outputs
        print(f"{name:<22} {rows:>6} {inputs:>6} {outputs:>6} " + " ".join(f"{flops / s / 1e12:>9.1f}" for s in seconds),
              flush=True)


def attention(timer, cases):
    print(f"{'':<12} {'batch':>5} {'tokens':>6} {'heads':>5} {'kv':>5} {'size':>5} {'forward ms':>10} {'backward':>10} "
          f"{'TFLOP/s':>8} {'backward':>8}")
    for name, batch, tokens, heads, keys, size in cases:
        q, k, v = (torch.rand(batch, n, tokens, size, device=timer.device, dtype=BF16, requires_grad=True)
                   for n in (heads, keys, keys))

        def forward():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=keys != heads)

        out = forward()
        dout = torch.rand_like(out)
        forward_s = timer.seconds(forward)
        backward_s = timer.seconds(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
        flops = 2.0 * batch * heads * tokens * tokens * size  # two products, half of which the causal mask leaves out
        print(f"{name:<12} {batch:>5} {tokens:>6} {heads:>5} {keys:>5} {size:>5} {1e3 * forward_s:>10.3f} "
              f"{1e3 * backward_s:>10.3f} {flops / forward_s / 1e12:>8.1f} {2.5 * flops / backward_s / 1e12:>8.1f}", flush=True)


def memory(timer, matrices, logits_shape):
    compiling.donated_buffer = False  # a backward is called again and again
    compiled = torch.compile if timer.device == "cuda" else lambda f: f
    print(f"{'':<24} {'rows':>7} {'columns':>8} {'us':>10} {'GB/s':>9}")

    def row(name, shape, bytes_per_element, call):
        seconds = timer.seconds(call)
        print(f"{name:<24} {shape[0]:>7} {shape[1]:>8} {1e6 * seconds:>10.1f} "
              f"{1e-9 * bytes_per_element * shape[0] * shape[1] / seconds:>9.1f}", flush=True)

    def with_backward(name, shape, forward_bytes, backward_bytes, inputs, function):
        out = function(*inputs)
        dout = torch.rand_like(out)
        row(name, shape, forward_bytes, lambda: function(*inputs))
        row("  backward", shape, backward_bytes, lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True))

    for shape in matrices:
        columns = shape[1]
        x = torch.rand(*shape, device=timer.device, dtype=BF16, requires_grad=True)
        w, b = (torch.rand(columns, device=timer.device, dtype=BF16, requires_grad=True) for _ in range(2))
        with_backward("layer norm", shape, 4, 6, (x, w, b), lambda x, w, b: F.layer_norm(x, (columns,), w, b))
        with_backward("RMS norm", shape, 4, 6, (x, w), compiled(lambda x, w: F.rms_norm(x, (columns,), w)))
        with_backward("GELU", shape, 4, 6, (x,), lambda x: F.gelu(x, approximate="tanh"))
        plain = x.detach()
        row("residual", shape, 6, lambda: plain + plain)
    n = matrices[-1][0] * matrices[-1][1]
    parameter = torch.nn.Parameter(torch.zeros(n, device=timer.device))
    parameter.grad = torch.rand_like(parameter)
    adamw = torch.optim.AdamW([parameter], fused=True)
    row("AdamW, fp32", matrices[-1], 28, adamw.step)
    logits = torch.rand(*logits_shape, device=timer.device, dtype=BF16, requires_grad=True)
    targets = torch.ones(logits_shape[0], device=timer.device, dtype=torch.int64)
    loss = compiled(lambda logits: F.cross_entropy(logits.float(), targets))
    row("cross-entropy, gradient", logits_shape, 4, lambda: torch.autograd.grad(loss(logits), logits))


QUESTIONS = {
    "gemm": lambda timer, small: gemm(timer, [("small", 33, 40, 24)] if small else LAYERS),
    "attention": lambda timer, small: attention(timer, [("small", 1, 16, 2, 1, 8)] if small else ATTENTION),
    "memory": lambda timer, small: memory(timer, [(6, 64)] if small else MATRICES, (6, 65) if small else LOGITS),
}


def question(name):
    if name not in QUESTIONS:
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(QUESTIONS)}")
    return name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # No `choices`: argparse of Python 3.11 and earlier would compare the empty list with them.
    parser.add_argument("questions", nargs="*", default=[], type=question)
    options, timer, title = begin(parser)
    print(title)
    for name in options.questions or QUESTIONS:
        print(f"\n{name}")
        QUESTIONS[name](timer, options.small)


if __name__ == "__main__":
    main()
