#!/usr/bin/env python3
"""Checks `ebb generate` with text: writes a tokenizer of words to a model folder, compares the text with the generated
tokens, and runs the commands of docs/using.md.

Usage: generate_text.py EBB FOLDER
"""

import array
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))
import run_commands
WORDS = [f"w{i}" for i in range(37)]
FLAGS = ["--max-tokens", "8", "--dtype", "fp32", "--device", "host", "--threads", "1", "--chunk-size", "256KiB"]


def make_tokenizer(folder):
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="w0")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(pathlib.Path(folder) / "tokenizer.json"))
    settings = {"chat_template": "{% for m in messages %}w7 {{ m['content'] }} w8{% endfor %}"}
    (pathlib.Path(folder) / "tokenizer_config.json").write_text(json.dumps(settings))


def output_of(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def compare(ebb, folder, tokens, flags):
    numbers = output_of([ebb, "generate", "--model", folder, "--prompt-tokens", tokens, *FLAGS])
    want = " ".join(WORDS[int(n)] for n in numbers.split(","))
    text = output_of([ebb, "generate", "--model", folder, *flags, *FLAGS])
    assert text == want, (text, want)
    return text


def run_the_page(ebb, model):
    """Runs the commands of docs/using.md, for a model of 16 positions."""
    block, = (block for block in run_commands.blocks_of("using.md", (ROOT / "docs" / "using.md").read_text())
              if "ebb generate --model DIR --prompt " in block.text)
    block.text = block.text.replace("--max-tokens 50", "--max-tokens 8")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "DIR").symlink_to(pathlib.Path(model).resolve())
        header = array.array("i", [20240520, 1, 200] + [0] * 253)  # of llm.c
        tokens = array.array("H", [i % len(WORDS) for i in range(200)])
        (folder / "FILE.bin").write_bytes(header.tobytes() + tokens.tobytes())
        wrong = run_commands.run(block, ROOT, pathlib.Path(ebb).resolve(), list(folder.iterdir()))
    assert wrong is None, wrong


def main():
    ebb, folder = sys.argv[1:]
    os.environ["EBB_PYTHON"] = sys.executable
    make_tokenizer(folder)
    plain = compare(ebb, folder, "3,1,4", ["--prompt", "w3 w1 w4"])
    chat = compare(ebb, folder, "7,3,1,4,8", ["--prompt", "w3 w1 w4", "--chat"])
    assert len(plain.split()) == 8 and plain != chat, (plain, chat)
    run_the_page(ebb, folder)


if __name__ == "__main__":
    main()
