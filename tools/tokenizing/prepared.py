"""Makes the tokens of a run from its text, and keeps them in the cache: what `ebb` needs from `--data` and
`--tokenizer`. Conversations become rows of the sequence length, with labels for the answers. Texts follow each other, with
the tokenizer's end of text between them. Where there are several documents, attention does not cross their borders."""

import contextlib
import os
import re
import shutil
import stat

from script_errors import InputError, MissingPackage, import_package

from . import cache, inputs, sources, vocabularies
from .chat_templates import INSTALL
from .notices import Notices
from .tokenizer import FILE, MORE_TEMPLATES, TEMPLATE, load_tokenizer, read_template

TRAIN = "train:"
# How the names of a tokenizer's files begin. A checkpoint copies such files (model_zoo/model_files.cpp).
PREFIXES = ("added_tokens", "chat_template", "generation_config", "merges", "sentencepiece", "special_tokens", "spiece", "spm",
            "tekken", "tokenizer", "vocab")
MASKED_SHARE = "0.15"  # of BERT
OF_THE_TOOL = re.compile(r"--(too-long|separator|end-of-text|mask-words)\b")


def prepare(request, busy):
    """request: {"tool": version of this program, "cache": folder, "tokenizer": name, "flag": that names the tokenizer,
    "chat_template": file or null, "length": T, "masked": whether the model predicts masked words, "sets": [{"flag",
    "paths"}, ...]}. The first set is that of the training; a trained tokenizer sees only this one."""
    sets = [DataSet(entry) for entry in request["sets"]]
    tokenizer = tokenizer_of(request, sets, busy)
    made = [data.tokens(request, tokenizer, busy) for data in sets]
    vocabulary = made[0]["vocabulary"] if made else len(load_tokenizer(tokenizer, request["flag"]))
    return {"tokenizer": {"folder": tokenizer, "vocabulary": vocabulary}, "sets": made}


@contextlib.contextmanager
def naming(flag):
    """Adds the flag to errors about its data."""
    try:
        yield
    except MissingPackage:
        raise
    except InputError as error:
        text = str(error) if str(error).startswith("--") else f"{flag} {error}"
        if found := OF_THE_TOOL.search(text):
            text += f" ({found[0]} is a flag of tools/tokenize.py, whose files --data takes)"
        raise InputError(text) from error


class DataSet:
    """The text of one flag."""

    def __init__(self, entry):
        self.flag, self.paths = entry["flag"], entry["paths"]
        with naming(self.flag):
            self.notices = Notices()
            self.files = inputs.files_of(self.paths, self.notices)
            for file in self.files:
                if not stat.S_ISREG(os.stat(file).st_mode):
                    raise InputError(f"{file}: it is no file, and text is read more than once; write it to a file")
            self.has_conversations = any(map(is_conversation, self.files))

    def key(self):
        return [cache.file_key(file) for file in self.files]

    def tokens(self, request, tokenizer, busy):
        """Returns the paths of the files of tokens, and what is known about them."""
        length = request["length"] if self.has_conversations and not request["masked"] else None
        name = re.sub(r"[^\w-]", "_", os.path.basename(os.path.abspath(self.paths[0])).split(".")[0])[:40] or "data"
        key = cache.key_of(request["tool"], key_of_tokenizer(tokenizer), self.key(), length, request["masked"], name)
        with naming(self.flag):
            folder, result, made = cache.kept(request["cache"], "tokens", key,
                                              lambda folder: self.make(tokenizer, length, request["masked"],
                                                                       os.path.join(folder, name)), busy)
        paths = {kind: os.path.join(folder, file) for kind, file in result["paths"].items()}
        return {**result, "paths": paths, "made": made, "cache": folder, "rows": length is not None}

    def make(self, tokenizer, length, masked, prefix):
        import_package("numpy", install=INSTALL)
        from .command import parse_arguments
        from .tokenizing import Tokenizing

        flags = ["--tokenizer", tokenizer, "--output", prefix]
        flags += ["--mask-words", MASKED_SHARE] if masked else ["--documents"]
        flags += ["--labels", "--seq-length", str(length)] if length else []
        options = parse_arguments([*flags, "--", *self.paths])
        options.only_several_documents = True
        run = Tokenizing(options, self.files, None, self.notices)
        run.run()
        paths = {kind: os.path.basename(path) for kind, path in run.files.paths.items()
                 if kind in run.files.files and kind != "record"}
        return {"paths": paths, "summary": run.summary(), "notices": self.notices.lines(), "vocabulary": run.vocabulary}


def is_conversation(file):
    """Whether the first document of a file is a conversation."""
    if not inputs.is_json(file):
        return False
    first = next(iter(sources.documents([file], None, Notices())), None)
    return isinstance(first, sources.Conversation)


def files_of_tokenizer(name):
    """The paths of a tokenizer's files; empty for the name of a model on the hub."""
    folders = [name, os.path.join(name, MORE_TEMPLATES)]
    return sorted(entry.path for folder in folders if os.path.isdir(folder) for entry in os.scandir(folder)
                  if entry.is_file() and (folder != name or entry.name.startswith(PREFIXES)))


def key_of_tokenizer(name):
    """A copy of a tokenizer, as in a checkpoint, has the same key."""
    return [cache.content_key(file) for file in files_of_tokenizer(name)] or name


def tokenizer_of(request, sets, busy):
    """Returns the folder of the tokenizer, or the name that it has on the hub."""
    name = request["tokenizer"]
    if name.startswith(TRAIN):
        name = trained(request, sets[0], busy)
    return with_template(request, name, busy) if request["chat_template"] else name


def trained(request, data, busy):
    size = int(request["tokenizer"][len(TRAIN):])

    def make(folder):
        return vocabularies.train(data.files, size, data.has_conversations, folder, Notices())

    with naming(data.flag):
        return cache.kept(request["cache"], "tokenizers", cache.key_of(request["tool"], size, data.key()), make, busy)[0]


def with_template(request, name, busy):
    """A copy of the tokenizer with the chat template of the user."""
    if not os.path.exists(os.path.join(name, FILE)):
        raise InputError(f"--chat-template: {name} has no {FILE}, beside which the template could be kept")
    template = read_template(request["chat_template"], "--chat-template")

    def make(folder):
        for file in files_of_tokenizer(name):
            if os.path.dirname(file) == os.path.normpath(name):
                shutil.copyfile(file, os.path.join(folder, os.path.basename(file)))
        vocabularies.write(os.path.join(folder, TEMPLATE), template)
        return True

    key = cache.key_of(request["tool"], key_of_tokenizer(name), template)
    return cache.kept(request["cache"], "tokenizers", key, make, busy)[0]
