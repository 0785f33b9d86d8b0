#!/usr/bin/env python3
"""The models of `bench_gpu step` in PyTorch on the same GPU: step time, tokens/s, model-FLOP utilisation.

    bench/gpu/torch_step.py [--preset gpt2] [--small]

The same maths (learned positions, pre-norm blocks with biases, tanh GELU, a tied head, clipping at 1.0, AdamW that decays
matrices alone) with what PyTorch offers for speed: bf16 autocast, fused AdamW, scaled_dot_product_attention (cuDNN or
flash), torch.compile as a second row. Everything lies on the GPU: a model that does not fit is reported so. FLOPs are
counted as Ebb counts them (6 N + attention), and the peak is a bf16 product of 8192 x 8192 x 8192. --small runs tiny shapes
on the CPU, as a test of this script.
"""

import argparse
import statistics

from torch_common import begin, torch

F, nn = torch.nn.functional, torch.nn

# preset: vocabulary, positions, channels, layers, heads, micro-batches, sequences, tokens
CASES = {
    "gpt2": (50257, 1024, 768, 12, 12, 1, 16, 1024),
    "gpt2-xl": (50257, 1024, 1600, 48, 25, 4, 8, 1024),
    "gpt3-2.7b": (50257, 2048, 2560, 32, 32, 4, 4, 2048),
}
SMALL = {"small": (96, 32, 32, 2, 2, 2, 2, 16)}


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.projection = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        batch, length, channels = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(channels, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, channels))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, vocabulary, positions, channels, layers, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, channels), nn.Embedding(positions, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(channels)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), targets.reshape(-1))


def product_peak(timer, size):
    a, b = (torch.rand(size, size, device=timer.device, dtype=torch.bfloat16) - 0.5 for _ in range(2))
    return 2 * size**3 / timer.seconds(lambda: torch.mm(a, b))


def training_flops(model, channels, layers, tokens, length):
    multiplied = sum(p.numel() for p in model.parameters()) - model.positions.weight.numel()
    return 6 * (multiplied + 2 * layers * channels * length) * tokens


def measure(name, case, timer, compiled, peak, num_steps):
    device = timer.device
    vocabulary, positions, channels, layers, heads, accumulation, batch, length = case
    torch.manual_seed(1)
    model = Gpt2(vocabulary, positions, channels, layers, heads).to(device)
    forward = torch.compile(model) if compiled else model
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    rows = torch.randint(vocabulary // 2, (accumulation, batch, length + 1), device=device)

    def step():
        for micro_batch in rows:
            with torch.autocast(device, torch.bfloat16):
                loss = forward(micro_batch[:, :-1], micro_batch[:, 1:]) / accumulation
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    seconds = [timer.once(step) for _ in range(3 + num_steps)]
    step_s = statistics.median(seconds[3:])
    tokens = accumulation * batch * length
    flops = training_flops(model, channels, layers, tokens, length)
    used = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0
    print(f"{name:<12} {'compiled' if compiled else 'eager':<9} {1e3 * step_s:>9.1f} {tokens / step_s:>10.0f} "
          f"{flops / step_s / 1e12:>8.1f} {100 * flops / step_s / peak:>6.1f} % {used:>8.1f} GiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=CASES)
    options, timer, title = begin(parser)
    cases = SMALL if options.small else CASES
    peak = product_peak(timer, 64 if options.small else 8192)
    print(f"{title}, peak {peak / 1e12:.1f} TFLOP/s")
    print(f"{'':<12} {'':<9} {'step ms':>9} {'tokens/s':>10} {'TFLOP/s':>8} {'of peak':>8} {'memory':>12}")
    for name, case in cases.items():
        if options.preset not in (None, name):
            continue
        for compiled in (False,) if options.small else (False, True):
            try:
                measure(name, case, timer, compiled, peak, 2 if options.small else 8)
            except torch.OutOfMemoryError:
                print(f"{name:<12} {'compiled' if compiled else 'eager':<9} does not fit the GPU's memory")
            if timer.device == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
