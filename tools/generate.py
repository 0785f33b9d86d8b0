#!/usr/bin/env python3
"""Continues a text with `ebb generate`, with the tokenizer in the model's folder.

Usage: tools/generate.py --model DIR --prompt TEXT [--chat] [--ebb PATH] [flags of `ebb generate`]

Each token is printed as soon as it is known. With --chat, the prompt becomes a user's message in the model's chat
template. The tool needs the Python package transformers. Other flags are passed to `ebb generate`: --max-tokens,
--temperature, --device-memory, ...
"""

import argparse
import pathlib
import shutil
import signal
import subprocess
import sys

BUILT = pathlib.Path(__file__).resolve().parent.parent / "build" / "release" / "tools" / "ebb"
UNFINISHED = "\ufffd"  # the decoder's output for an incomplete character


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False,
                                     epilog="Other flags are passed to `ebb generate`.")
    parser.add_argument("--model", required=True, help="a Hugging Face folder with its tokenizer, or a hub id")
    parser.add_argument("--prompt", required=True, help="the text to continue")
    parser.add_argument("--chat", action="store_true", help="put the prompt as a user's message into the chat template")
    parser.add_argument("--ebb", help="path of the program (default: ebb from PATH, or else the release build)")
    return parser.parse_known_args()


def prompt_tokens(tokenizer, prompt, chat):
    if not chat:
        return tokenizer(prompt)["input_ids"]
    message = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def numbers(stream):
    """Yields the numbers between commas, each as soon as it is complete."""
    digits = ""
    while byte := stream.read(1):
        if byte.isdigit():
            digits += byte.decode()
        elif digits:
            yield int(digits)
            digits = ""
    if digits:
        yield int(digits)


def main():
    arguments, others = parse()
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    tokens = prompt_tokens(tokenizer, arguments.prompt, arguments.chat)
    if not tokens:
        sys.exit("generate.py: the prompt has no tokens: give some text")
    command = [arguments.ebb or shutil.which("ebb") or str(BUILT), "generate", "--model", arguments.model,
               "--prompt-tokens", ",".join(map(str, tokens)), *others]
    added, shown = [], ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        # Ctrl-C also reaches ebb, which ends after a token. Its last tokens are still shown.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for token in numbers(process.stdout):
            added.append(token)
            # All tokens are decoded together, because a token may be part of a character, or may look different in
            # the middle of a word.
            text = tokenizer.decode(added, skip_special_tokens=True)
            if not text.endswith(UNFINISHED):
                print(text[len(shown):], end="", flush=True)
                shown = text
    rest = tokenizer.decode(added, skip_special_tokens=True)[len(shown):]
    print(rest)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
