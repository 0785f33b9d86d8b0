"""The command line of tools/tokenize.py."""

import argparse
import os

from script_errors import InputError, Parser, import_package

from . import inputs, output_paths
from .chat_templates import INSTALL
from .notices import Notices
from .tokenizer import read_template

MAX_ROW = 1 << 24

DESCRIPTION = """\
Makes token files for `ebb train` from text files and JSON, with a Hugging Face tokenizer. A text file is one document.
A file of JSON (.jsonl, .ndjson, .json) has one object per line, or one list of objects. Each object is one document:
{"text": ...}, or {"messages": [{"role": ..., "content": ...}, ...]} for the tokenizer's chat template. Files may be
packed by gzip, bzip2 or xz, and may be larger than memory. Text is UTF-8. A pipe (/dev/stdin) is one text file.
Hidden files and backups in folders are left out.

PREFIX.bin contains the tokens, for --data. PREFIX.labels (--labels) contains a label for each token: the next token of
the same document. In conversations, only the assistant's messages and the token after each of them are labels.
Without --labels, all messages are learned.
PREFIX.documents (--documents) contains the positions where documents begin. PREFIX.bin.json records for what the files
were made, and `ebb train` checks it.
"""

EXAMPLE = """\
  tools/tokenize.py --tokenizer my-model --labels --documents --seq-length 1024 --output chat chat.jsonl
  ebb train --model my-model --data chat.bin --labels chat.labels --documents chat.documents --seq-length 1024
"""


def parse_arguments(arguments):
    parser = Parser(prog="tokenize.py", description=DESCRIPTION, epilog="Example:\n" + EXAMPLE,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    path = os.path.expanduser
    add("inputs", nargs="+", type=path, metavar="INPUT", help="files of text or JSON, or folders of them")
    add("--tokenizer", required=True, type=path, metavar="DIR", help="a model's folder, a hub id, or a tokenizer.json")
    add("--output", required=True, type=path, metavar="PREFIX", help="prefix of the names of the output files")
    add("--labels", action="store_true", help="write PREFIX.labels")
    add("--documents", action="store_true", help="write PREFIX.documents")
    add("--seq-length", type=int, metavar="T",
        help="put whole documents into rows of T tokens, for `ebb train --seq-length T`; writes labels and documents")
    add("--too-long", choices=("split", "truncate", "drop"),
        help="what to do with documents of more than T tokens [texts: split, conversations: truncate]")
    add("--end-of-text", default="auto", metavar="auto|none|TOKEN",
        help="token to add after each document [auto: after texts, the tokenizer's; the chat template ends "
             "conversations]")
    add("--separator", metavar="TEXT", help="text between two documents of a text file [a file is one document]")
    add("--chat-template", type=path, metavar="FILE", help="chat template to use instead of the tokenizer's")
    add("--mask-words", type=float, metavar="SHARE",
        help="for masked-language models: hide this share of the tokens (BERT: 0.15); their labels are the hidden "
             "tokens")
    add("--seed", type=int, default=1, metavar="N", help="seed of the choice of hidden tokens [1]")
    add("--token-type", choices=("auto", "u16", "u32"), default="auto",
        help="type of a token in PREFIX.bin [u16 if the vocabulary fits]")
    add("--no-header", action="store_true", help="write PREFIX.bin without a header; ebb then needs --token-type")
    options = parser.parse_args(arguments)
    options.only_several_documents = False  # of prepared.py: one document needs no PREFIX.documents
    check(parser, options)
    return options


def check(parser, options):
    if options.seq_length is not None and not 2 <= options.seq_length <= MAX_ROW:
        parser.error(f"--seq-length {options.seq_length}: allowed is a whole number from 2 to {MAX_ROW}")
    if options.too_long and not options.seq_length:
        parser.error(f"--too-long {options.too_long} needs --seq-length T")
    if options.mask_words is not None and not 0 < options.mask_words < 1:
        parser.error(f"--mask-words {options.mask_words}: allowed is a share between 0 and 1")
    if options.seed < 0:
        parser.error(f"--seed {options.seed}: allowed is a whole number from 0")
    for flag, value in (("--output", options.output), ("--tokenizer", options.tokenizer)):
        if not value:
            parser.error(f"{flag} '': allowed is a name")
    if "" in options.inputs:
        parser.error("INPUT '': allowed is the name of a file or folder")
    if options.separator == "":
        parser.error("--separator '': allowed is a text")
    if options.seq_length:
        options.documents = True
    if options.seq_length or options.mask_words:
        options.labels = True


def main(arguments):
    options = parse_arguments(arguments)
    notices = Notices()
    files = inputs.files_of(options.inputs, notices)
    if options.separator and all(map(inputs.is_json, files)):
        raise InputError("--separator divides text files, and all inputs are JSON, whose documents are its objects; "
                         "remove the flag")
    template = read_template(options.chat_template, "--chat-template") if options.chat_template else None
    output_paths.check(options.output, [*files, *output_paths.files_of_tokenizer(options.tokenizer),
                                        *filter(None, [options.chat_template])])
    import_package("numpy", install=INSTALL)
    from .tokenizing import Tokenizing  # after the arguments are checked, because importing takes seconds

    run = Tokenizing(options, files, template, notices)
    run.run()
    run.report()
    print(run.summary())
    for path in run.files.written():
        print(path)
    return 0
