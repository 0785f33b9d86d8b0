"""What the tests of tools/tokenize.py share: tiny tokenizers, and a test case that runs the tool. Without transformers
(EBB_PYTHON names a Python that has it) the tests of `needs_transformers` are skipped."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
IGNORED = -100

sys.path[:0] = [str(TOOLS), str(TOOLS.parent / "tests" / "docs")]
has_transformers = all(importlib.util.find_spec(name) for name in ("numpy", "torch", "transformers"))
needs_transformers = unittest.skipUnless(has_transformers, f"{sys.executable} has no torch, transformers and numpy; "
                                                           "EBB_PYTHON names another")
if has_transformers:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import numpy
    import transformers
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = "the quick brown fox jumps over the lazy dog, and it rains in Spain.\nNumbers: 12 345.\n\n  Indented; done!"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "[/INST]"]

CHATML = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def byte_level(template=CHATML):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT] * 10, trainers.BpeTrainer(
        vocab_size=360, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>",
                                                extra_special_tokens=SPECIAL[1:])
    fast.chat_template = template
    return fast


def metaspace():
    """Like the tokenizer of Llama 2: it adds <s> and a blank before every text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.train_from_iterator([TEXT] * 10, trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>", *SPECIAL, "<0x0A>"], show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[
        ("<s>", tokenizer.token_to_id("<s>"))])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator([TEXT] * 10, trainers.WordPieceTrainer(vocab_size=120, special_tokens=names,
                                                                         show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[
        (name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")])
    keys = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(keys, names)))


def messages(conversation):
    return [{"role": role, "content": content} for role, content in conversation]


class Files:
    """The files that the tool wrote."""

    def __init__(self, prefix, outcome):
        self.said = outcome.stdout
        data = pathlib.Path(prefix + ".bin").read_bytes()
        magic, _, count = numpy.frombuffer(data[:12], numpy.uint32)
        self.tokens = numpy.frombuffer(data[1024:], {20240520: numpy.uint16, 20240801: numpy.uint32}[int(magic)])
        assert count == len(self.tokens)
        self.labels = self.read(prefix + ".labels", numpy.int32)
        self.starts = self.read(prefix + ".documents", numpy.int64)

    @staticmethod
    def read(path, kind):
        return numpy.fromfile(path, kind) if os.path.exists(path) else None

    def documents(self):
        """Returns the tokens and labels of each document."""
        ends = [*self.starts[1:], len(self.tokens)]
        return [(self.tokens[a:b], self.labels[a:b]) for a, b in zip(self.starts, ends)]


class TokenizeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ebb-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def path(self, name):
        return str(self.folder / name)

    def write(self, name, content):
        (self.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return self.path(name)

    def write_lines(self, rows):
        return self.write("input.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def run_tool(self, tokenizer, *arguments):
        if tokenizer is not None:
            tokenizer.save_pretrained(self.folder / "tokenizer")
        from script_errors import run
        from tokenizing.command import main  # in this process, as importing transformers takes seconds

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            flags = ["--tokenizer", self.path("tokenizer"), "--output", self.path("out")]
            code = run("tokenize.py", main, [*flags, *arguments])
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def tokenize(self, tokenizer, *arguments):
        outcome = self.run_tool(tokenizer, *arguments)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        return self.written(outcome)

    def written(self, outcome):
        return Files(self.path("out"), outcome)

    def refused(self, tokenizer, part, *arguments):
        outcome = self.run_tool(tokenizer, *arguments)
        self.assertEqual(outcome.returncode, 2, outcome.stderr)
        self.assertIn(part, outcome.stderr)
        self.assertEqual([p.name for p in self.folder.glob("out*")], [], "an incomplete file must be removed")

    def check_shift(self, tokens, labels):
        for i in numpy.flatnonzero(labels != IGNORED):
            self.assertEqual(labels[i], tokens[i + 1])


def run_tests():
    """Exit code 77: tests were skipped."""
    result = unittest.main(exit=False, verbosity=2).result
    sys.exit(77 if result.wasSuccessful() and result.skipped else not result.wasSuccessful())
