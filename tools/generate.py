#!/usr/bin/env python3
"""Continues a text with `ebb generate`, with the tokenizer in the model's folder.

Usage: tools/generate.py --model DIR --prompt TEXT [--chat] [--ebb PATH] [flags of `ebb generate`]

Each token is printed as soon as it is known. With --chat, the prompt becomes a user's message in the model's chat
template. The tool needs the Python package transformers. Other flags are passed to `ebb generate`: --max-tokens,
--temperature, --device-memory, ...
"""

import errno
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from script_errors import InputError, Parser, import_transformers, run

BUILT = pathlib.Path(__file__).resolve().parent.parent / "build" / "release" / "tools" / "ebb"
UNFINISHED = "\ufffd"  # the decoder's output for an incomplete character


def parse(arguments):
    parser = Parser(prog="generate.py", description=__doc__.splitlines()[0], allow_abbrev=False,
                    epilog="Other flags are passed to `ebb generate`.")
    parser.add_argument("--model", required=True, help="a Hugging Face folder with its tokenizer, or a hub id")
    parser.add_argument("--prompt", required=True, help="the text to continue")
    parser.add_argument("--chat", action="store_true", help="put the prompt as a user's message into the chat template")
    parser.add_argument("--ebb", help="path of the program (default: ebb from PATH, or else the release build)")
    return parser.parse_known_args(arguments)


def checked_prompt(prompt):
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise InputError("--prompt: the text is not UTF-8") from error
    return prompt


def program(name):
    """Returns the path of `ebb`. `name`: the value of --ebb, or None."""
    path = name or shutil.which("ebb") or str(BUILT)
    if shutil.which(path):
        return path
    raise InputError(f"{path}: there is no such program; build it with 'cmake --preset release && cmake --build "
                     "--preset release', or name it with --ebb PATH")


def load_tokenizer(model):
    transformers = import_transformers()
    try:
        return transformers.AutoTokenizer.from_pretrained(os.path.expanduser(model))
    except Exception as error:  # the libraries below transformers raise any error for a damaged file
        raise InputError(f"--model {model}: transformers cannot load a tokenizer from it ({error}); without a "
                         "tokenizer, use 'ebb generate --prompt-tokens'") from error


def prompt_tokens(tokenizer, prompt, chat):
    if not chat:
        return tokenizer(prompt)["input_ids"]
    message = [{"role": "user", "content": prompt}]
    try:
        text = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    except Exception as error:  # templates can raise any error
        raise InputError(f"--chat: the model's chat template cannot be used: {error}; without --chat the prompt is "
                         "continued as it is") from error
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


def start(command, num_tokens):
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
    except OSError as error:
        reason = f"a prompt of {num_tokens} tokens is too long for a command line" if error.errno == errno.E2BIG else (
            error.strerror)
        raise InputError(f"{command[0]}: {reason}") from error


def show(process, tokenizer):
    """Prints the text of the tokens while the process writes them."""
    added, shown = [], ""
    for token in numbers(process.stdout):
        added.append(token)
        # All tokens are decoded together, because a token may be part of a character, or may look different in the
        # middle of a word.
        text = tokenizer.decode(added, skip_special_tokens=True)
        if not text.endswith(UNFINISHED):
            print(text[len(shown):], end="", flush=True)
            shown = text
    print(tokenizer.decode(added, skip_special_tokens=True)[len(shown):])


def main(arguments):
    options, others = parse(arguments)
    ebb, prompt = program(options.ebb), checked_prompt(options.prompt)
    tokenizer = load_tokenizer(options.model)
    tokens = prompt_tokens(tokenizer, prompt, options.chat)
    if not tokens:
        raise InputError("--prompt: the prompt has no tokens: give some text")
    command = [ebb, "generate", "--model", options.model, "--prompt-tokens", ",".join(map(str, tokens)), *others]
    with start(command, len(tokens)) as process:
        # Ctrl-C also reaches ebb, which ends after a token. Its last tokens are still shown.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            show(process, tokenizer)
        except OSError:  # nothing reads the text
            process.kill()
            raise
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(run("generate.py", main, sys.argv[1:]))
