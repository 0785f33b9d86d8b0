#!/usr/bin/env python3
"""Prints the losses that transformers computes, in fp64, with the models of folders: a JSON list of lists.

Usage: transformers_losses.py FOLDER LOSSES_JSON [FOLDER LOSSES_JSON ...]
LOSSES_JSON contains the batches in the format of tests/fixtures/make_hf_folders.py.
"""

import json
import sys

import torch
import transformers

IGNORED = -100


@torch.no_grad()
def losses(folder, data):
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    model = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    shape = (data["batch"], data["length"])
    result = []
    for batch in data["batches"]:
        tensors = {key: torch.tensor(value).reshape(shape) for key, value in batch.items()}
        types = {"token_type_ids": tensors["token_types"]} if "token_types" in tensors else {}
        logits = model(input_ids=tensors["tokens"], **types).logits
        result.append(torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), tensors["targets"].flatten(), ignore_index=IGNORED).item())
    return result


def main():
    transformers.logging.set_verbosity_error()
    pairs = zip(sys.argv[1::2], sys.argv[2::2])
    print(json.dumps([losses(folder, json.load(open(data, encoding="utf-8"))) for folder, data in pairs]))


if __name__ == "__main__":
    main()
