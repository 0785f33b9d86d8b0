"""Trains a GPT-2 in PyTorch on the CPU and answers with the seconds of its steps, for bench/peers/train.

    python torch_train.py --channels 768 --layers 12 --heads 12 --dtype fp32 --data PATH [--compile] ...

The same maths as model_zoo/gpt2.cpp (learned positions, pre-norm blocks with biases, tanh GELU, eps 1e-5, a tied head
over 50,257 tokens, clipping at 1.0, AdamW that decays matrices alone) with what PyTorch offers for speed: its fused
AdamW and fused attention; bf16 is autocast over fp32 parameters. For every line "N" on stdin it does N steps and writes
one line of JSON: their seconds, the cores that others used meanwhile, and the last loss.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from measure import LoadGate

VOCABULARY = 50257
MAX_POSITIONS = 1024


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(channels, eps=1e-5)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.projection = nn.Linear(channels, channels)
        self.norm2 = nn.LayerNorm(channels, eps=1e-5)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)

    def attention(self, x):
        batch, length, channels = x.shape
        q, k, v = (part.view(batch, length, self.heads, channels // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(channels, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(y.transpose(1, 2).reshape(batch, length, channels))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, channels, layers, heads):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, channels)
        self.positions = nn.Embedding(MAX_POSITIONS, channels)
        self.blocks = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(channels, eps=1e-5)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("projection.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


class Training:
    def __init__(self, options):
        torch.manual_seed(1)
        self.options = options
        self.model = Gpt2(options.channels, options.layers, options.heads)
        self.forward = torch.compile(self.model) if options.compile else self.model
        parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
             {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}],
            lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
        files = [options.data] if options.data.is_file() else sorted(f for f in options.data.rglob("*") if f.is_file())
        self.text = torch.frombuffer(bytearray(b"".join(f.read_bytes() for f in files)), dtype=torch.uint8)

    def batch(self):
        length = self.options.length
        starts = torch.randint(len(self.text) - length - 1, (self.options.batch,))
        rows = torch.stack([self.text[s:s + length + 1] for s in starts]).long()
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def step(self):
        tokens, targets = self.batch()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.options.dtype == "bf16"):
            loss = self.forward(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=not self.options.keep_gradients)
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    for name in ("channels", "layers", "heads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--keep-gradients", action="store_true", help="zero gradients instead of dropping them")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    training = Training(options)
    for line in sys.stdin:
        gate, seconds = LoadGate(), []
        for _ in range(int(line)):
            start = time.perf_counter()
            loss = training.step()
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"seconds": seconds, "others": gate.other_cores(), "loss": loss}), flush=True)


if __name__ == "__main__":
    main()
