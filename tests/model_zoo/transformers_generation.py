#!/usr/bin/env python3
"""Prints results of transformers in fp64 as JSON: for the model of each folder the logits after each token of a text, and
the greedy continuation of a prompt.

Usage: transformers_generation.py '{"tokens": [...], "prompt": [...], "max_tokens": N}' FOLDER [FOLDER ...]
"""

import json
import sys

import torch
import transformers


@torch.no_grad()
def run(folder, task):
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    model = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    logits = model(input_ids=torch.tensor([task["tokens"]])).logits
    text = model.generate(torch.tensor([task["prompt"]]), max_new_tokens=task["max_tokens"], do_sample=False,
                          pad_token_id=0)
    return {"logits": logits.flatten().tolist(), "text": text[0, len(task["prompt"]):].tolist()}


def main():
    transformers.logging.set_verbosity_error()
    task = json.loads(sys.argv[1])
    print(json.dumps([run(folder, task) for folder in sys.argv[2:]]))


if __name__ == "__main__":
    main()
