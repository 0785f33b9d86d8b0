#!/usr/bin/env python3
"""Checks tools/generate.py: writes a tokenizer of words to a model folder, and compares the text of the tool with the
tokens of `ebb generate`.

Usage: generate_tool.py EBB FOLDER
"""

import pathlib
import subprocess
import sys

import tokenizers
import transformers

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "generate.py"
WORDS = [f"w{i}" for i in range(37)]
FLAGS = ["--max-tokens", "8", "--dtype", "fp32", "--device", "host", "--threads", "1", "--chunk-size", "256KiB"]


def make_tokenizer(folder):
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="w0")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    fast.chat_template = "{% for m in messages %}w7 {{ m['content'] }} w8{% endfor %}"
    fast.save_pretrained(folder)


def output_of(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def compare(ebb, folder, tokens, flags):
    numbers = output_of([ebb, "generate", "--model", folder, "--prompt-tokens", tokens, *FLAGS])
    want = " ".join(WORDS[int(n)] for n in numbers.split(","))
    text = output_of([sys.executable, str(TOOL), "--ebb", ebb, "--model", folder, *flags, *FLAGS])
    assert text == want, (text, want)
    return text


def main():
    ebb, folder = sys.argv[1:]
    make_tokenizer(folder)
    plain = compare(ebb, folder, "3,1,4", ["--prompt", "w3 w1 w4"])
    chat = compare(ebb, folder, "7,3,1,4,8", ["--prompt", "w3 w1 w4", "--chat"])
    assert len(plain.split()) == 8 and plain != chat, (plain, chat)
    bad = subprocess.run([sys.executable, str(TOOL), "--ebb", ebb, "--model", folder, "--prompt", "w1", "--top-p", "0"],
                         capture_output=True, text=True, check=False)
    assert bad.returncode == 2 and "--top-p" in bad.stderr, bad


if __name__ == "__main__":
    main()
