#!/usr/bin/env python3
"""Tests `ebb` on text: it trains on text and conversations, its checkpoints contain the tokenizer, and it generates text.
The tokens are compared with those of the package tokenizers.

Usage: test_text.py EBB. Without the packages tokenizers, jinja2 and numpy (EBB_PYTHON names a Python that has them) the
tests are skipped, and the exit code is 77.
"""

import fcntl
import gzip
import importlib.util
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import termios
import unittest

PACKAGES = all(importlib.util.find_spec(name) for name in ("tokenizers", "jinja2", "numpy"))
if PACKAGES:
    import numpy
    import tokenizers

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
EBB = None
RATES = None  # a folder with the rates of the machine, which are measured once
IGNORED = -100
LINE = "the quick brown fox jumps over the lazy dog; Gr\u00fc\u00dfe, \u6f22\u5b57, \N{GRINNING FACE} {}!\n"
TEXT = "".join(LINE.replace("{}", str(i)) for i in range(60))
CHATML = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
CONVERSATIONS = [{"messages": [{"role": "user", "content": f"What is {i} and {i}?"},
                               {"role": "assistant", "content": f"It is {2 * i}."}]} for i in range(40)]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SMALL = ["--device", "host", "--dtype", "fp32", "--threads", "1", "--chunk-size", "256KiB"]
STEPS = [*SMALL, "--seq-length", "32", "--micro-batch-size", "2", "--steps", "2"]
CHAT_STEPS = [*SMALL, "--seq-length", "96", "--micro-batch-size", "2", "--steps", "2"]
CONFIG = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 400, "n_positions": 128, "n_ctx": 128,
          "n_embd": 32, "n_layer": 2, "n_head": 2, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
          "tie_word_embeddings": True}


def write_tokenizer(folder, size=360, template=CHATML, texts=(TEXT,)):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return tokenizer


@unittest.skipUnless(PACKAGES, f"{sys.executable} has no tokenizers, jinja2 and numpy; EBB_PYTHON names another")
class TextTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ebb-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {**os.environ, "EBB_PYTHON": sys.executable, "XDG_CACHE_HOME": str(self.folder / "cache")}
        shutil.copytree(RATES, self.folder / "cache")

    def write(self, name, text):
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    def write_rows(self, name, rows=None):
        text = "".join(json.dumps(row) + "\n" for row in (CONVERSATIONS if rows is None else rows))
        self.write(name, gzip.compress(text.encode()) if name.endswith(".gz") else text)

    def start(self, *arguments, stdin=b"", **environment):
        return subprocess.run([EBB, *arguments], cwd=self.folder, env={**self.environment, **environment}, input=stdin,
                              capture_output=True, check=False)

    def ebb(self, *arguments, **more):
        outcome = self.start(*arguments, **more)
        self.assertEqual(outcome.returncode, 0, outcome.stderr.decode())
        self.said = outcome.stderr.decode()
        return outcome.stdout.decode()

    def refused(self, part, *arguments, code=2, **more):
        outcome = self.start(*arguments, **more)
        self.assertEqual(outcome.returncode, code, outcome.stderr.decode())
        self.assertIn(part, outcome.stderr.decode())
        return outcome.stderr.decode()

    def model(self, name="model", **tokenizer):
        """A folder with random weights and a tokenizer."""
        found = write_tokenizer(self.folder / "config", **tokenizer)
        (self.folder / "config" / "config.json").write_text(json.dumps(CONFIG))
        self.write("some.txt", TEXT)
        self.ebb("train", "--model", "config", "--init", "random", "--data", "some.txt", *STEPS[:-1], "1", "--save",
                 "first", "--save-weights-only")
        shutil.copytree(self.folder / "first" / "step-1", self.folder / name)
        shutil.rmtree(self.folder / "first")
        self.forget_tokens()
        for file in ("training.json", "train.toml"):
            (self.folder / name / file).unlink()
        return found

    def forget_tokens(self):
        for kind in ("tokens", "tokenizers"):
            shutil.rmtree(self.folder / "cache" / "ebb" / kind, ignore_errors=True)

    def entries(self, kind="tokens"):
        return sorted(path for path in (self.folder / "cache" / "ebb" / kind).iterdir() if path.is_dir())

    def tokens(self, entry):
        data, = entry.glob("*.bin")
        return list(map(int, numpy.fromfile(data, numpy.uint16)[512:]))


class Presets(TextTest):
    def test_get_a_vocabulary_that_is_trained_on_the_text(self):
        self.write("poem.txt", TEXT)
        self.ebb("train", "--preset", "toy-bytes", "--data", "poem.txt", "--tokenizer", "train:300", *STEPS, "--save", "run",
                 "--sample-steps", "2", "--sample-prompt", "the \u6f22")
        self.assertIn("vocabulary 300", self.said)
        self.assertIn("step 2: the \u6f22", self.said)
        checkpoint = self.folder / "run" / "step-2"
        self.assertEqual(json.loads((checkpoint / "config.json").read_text())["vocab_size"], 300)
        tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
        self.assertEqual(tokenizer.get_vocab_size(), 300)
        self.assertIn('tokenizer = "train:300"', (checkpoint / "train.toml").read_text())
        end = tokenizer.token_to_id("<|endoftext|>")
        entry, = self.entries()
        self.assertEqual(self.tokens(entry), [*tokenizer.encode(TEXT).ids, end])
        flags = [*SMALL, "--max-tokens", "40", "--temperature", "1.5", "--seed", "3"]
        ids = ",".join(map(str, tokenizer.encode("the quick \u6f22").ids))
        numbers = self.ebb("generate", "--model", "run/step-2", "--prompt-tokens", ids, *flags)
        text = self.ebb("generate", "--model", "run/step-2", "--prompt", "the quick \u6f22", *flags)
        added = list(map(int, numbers.split(",")))
        self.assertGreater(len(added), 20)
        self.assertEqual(text, tokenizer.decode(added) + "\n")

    def test_take_the_tokenizer_of_a_model(self):
        self.write("poem.txt", TEXT)
        tokenizer = write_tokenizer(self.folder / "words")
        self.ebb("train", "--preset", "toy-bytes", "--data", "poem.txt", "--tokenizer", "words", *STEPS, "--save", "run")
        checkpoint = self.folder / "run" / "step-2"
        self.assertEqual(json.loads((checkpoint / "config.json").read_text())["vocab_size"], tokenizer.get_vocab_size())
        for file in (self.folder / "words").iterdir():
            self.assertEqual((checkpoint / file.name).read_bytes(), file.read_bytes())

    def test_answer_what_they_learned(self):
        """The whole way from conversations to an answer."""
        self.write_rows("chat.jsonl", [{"messages": [{"role": "user", "content": "hello"},
                                                     {"role": "assistant", "content": "Good day to you!"}]}] * 60)
        self.ebb("train", "--preset", "toy-bytes", "--data", "chat.jsonl", "--tokenizer", "train:300", *STEPS[:-2],
                 "--steps", "40", "--lr", "3e-3", "--save", "run", "--sample-steps", "40", "--sample-prompt", "hello")
        self.assertIn("step 40: hello -> Good day to you!\n", self.said)
        answer = self.ebb("generate", "--model", "run/step-40", "--chat", *SMALL, stdin=b"hello\n")
        self.assertEqual(answer, "Good day to you!\n")

    def test_need_a_tokenizer_for_text(self):
        self.write("poem.txt", TEXT)
        said = self.refused("--tokenizer DIR", "train", "--preset", "gpt2", "--data", "poem.txt")
        self.assertIn("--tokenizer train:8192", said)
        for value, part in (("train:40", "259"), ("train:x", "259"), ("train:", "259"), ("none", "train:N"),
                            (".", "no tokenizer")):
            self.refused(part, "train", "--preset", "gpt2", "--data", "poem.txt", "--tokenizer", value)
        self.write("short.txt", "a")
        self.refused("too little", "train", "--preset", "gpt2", "--data", "short.txt", "--tokenizer", "train:300")

    def test_over_bytes_need_no_python(self):
        self.write("poem.txt", TEXT)
        self.ebb("train", "--preset", "toy-bytes", "--data", "poem.txt", *STEPS, EBB_PYTHON="/none")
        self.ebb("generate", "--preset", "toy-bytes", "--prompt", "x", "--max-tokens", "3", *SMALL, EBB_PYTHON="/none")


class Models(TextTest):
    def test_learn_conversations(self):
        tokenizer = self.model()
        for name in ("chat.jsonl", "chat.jsonl.gz"):
            self.write_rows(name)
            self.ebb("train", "--model", "model", "--data", name, *CHAT_STEPS, "--eval-data", "some.txt", "--save", "run-" + name)
        self.assertIn("--eval-data is text", self.said)
        entries = [entry for entry in self.entries() if list(entry.glob("chat.labels"))]
        self.assertEqual(len(entries), 2)
        self.assertIn("--data is text: 40 conversations, ", self.said)
        for entry in entries:
            tokens, labels = self.tokens(entry), numpy.fromfile(entry / "chat.labels", numpy.int32)
            starts = list(numpy.fromfile(entry / "chat.documents", numpy.int64))
            self.assertEqual(len(tokens) % 96, 1, "rows of the sequence length, and one more token")
            answers = tokenizer.decode([int(label) for label in labels if label != IGNORED], skip_special_tokens=False)
            self.assertEqual(answers, "".join(f"It is {2 * i}.<|im_end|>" for i in range(40)))
            wanted = tokenizer.encode("<|im_start|>user\nWhat is 0 and 0?<|im_end|>\n<|im_start|>assistant\nIt is 0.<|im_end|>"
                                      "\n").ids
            self.assertEqual(tokens[:len(wanted)], wanted)
            self.assertEqual(starts[0], 0)
        for file in (self.folder / "config").iterdir():
            if file.name != "config.json":
                self.assertEqual((self.folder / "run-chat.jsonl" / "step-2" / file.name).read_bytes(), file.read_bytes())

    def test_are_evaluated_and_profiled_on_text(self):
        tokenizer = self.model()
        self.write("poem.txt", TEXT)
        text = self.ebb("eval", "--model", "model", "--data", "poem.txt", *STEPS[:-2])
        tokens = numpy.array([*tokenizer.encode(TEXT).ids, tokenizer.token_to_id("<|endoftext|>")], numpy.uint16)
        self.write("poem.bin", tokens.tobytes())
        self.assertEqual(self.ebb("eval", "--model", "model", "--data", "poem.bin", "--token-type", "u16", *STEPS[:-2]), text)
        self.ebb("profile", "--model", "model", "--data", "poem.txt", *STEPS, "--html", "report.html")

    def test_of_several_documents(self):
        """Attention does not cross the borders of documents."""
        tokenizer = self.model()
        self.write_rows("texts.json", [{"text": TEXT[:100 + i]} for i in range(20)])
        self.ebb("train", "--model", "model", "--data", "texts.json", *STEPS)
        entry, = self.entries()
        starts = numpy.fromfile(entry / "texts.documents", numpy.int64)
        sizes = [len(tokenizer.encode(TEXT[:100 + i]).ids) + 1 for i in range(20)]
        self.assertEqual(list(starts), [sum(sizes[:i]) for i in range(20)])
        self.assertEqual(list(entry.glob("*.labels")), [])
        self.assertIn("20 documents", self.said)

    def test_get_another_template(self):
        self.model(template=None)
        self.write_rows("chat.jsonl")
        self.refused("--chat-template", "train", "--model", "model", "--data", "chat.jsonl", *STEPS)
        self.refused("--chat-template", "generate", "--model", "model", "--chat", "--prompt", "x", *SMALL)
        self.write("template", CHATML)
        self.ebb("train", "--model", "model", "--data", "chat.jsonl", "--chat-template", "template", *CHAT_STEPS, "--save", "run")
        self.assertEqual((self.folder / "run" / "step-2" / "chat_template.jinja").read_text(), CHATML)
        self.ebb("generate", "--model", "run/step-2", "--chat", "--prompt", "x", "--max-tokens", "3", *SMALL)
        (self.folder / "template").unlink()
        self.ebb("train", "--resume", "--save", "run", "--steps", "3")
        self.assertNotIn("other tokens", self.said)

    def test_refuse_what_cannot_be_meant(self):
        self.model()
        self.write("poem.txt", TEXT)
        self.write("labels", b"")
        train = ["train", "--model", "model", *STEPS]
        self.refused("--labels 'labels' belongs to token files", *train, "--data", "poem.txt", "--labels", "labels")
        self.refused("--tokenizer train:300: a new vocabulary is for presets", *train, "--data", "poem.txt", "--tokenizer",
                     "train:300")
        write_tokenizer(self.folder / "large", size=500, texts=[TEXT, *map(str, range(5000))])
        self.refused("'large': the tokenizer has 500 tokens, but the vocabulary of the model 'model' has 400", *train, "--data", "poem.txt", "--tokenizer", "large")
        self.refused("the tokenizer has 500 tokens", "generate", "--model", "model", "--tokenizer", "large", "--prompt", "5",
                     *SMALL)
        self.write("tokens.bin", numpy.zeros(600, numpy.uint16).tobytes())
        self.refused("--data is token files", "train", "--preset", "gpt2", "--data", "tokens.bin", "--tokenizer", "train:300")
        self.write_rows("chat.jsonl", [{"messages": "no"}])
        self.refused("chat.jsonl:1", *train, "--data", "chat.jsonl")
        self.write_rows("chat.jsonl", [{"messages": [{"role": "user", "content": "x" * 900},
                                                     {"role": "assistant", "content": "y"}]}])
        self.refused("--too-long is a flag of tools/tokenize.py", *train, "--data", "chat.jsonl")
        self.write("model/tokenizer.json", "{")
        self.refused("cannot load", *train, "--data", "poem.txt")
        for file in (self.folder / "model").glob("*token*"):
            file.unlink()
        self.refused("has no tokenizer: give --tokenizer DIR", *train, "--data", "poem.txt")
        self.refused("--prompt-tokens", "generate", "--model", "model", "--prompt", "x")


class Python(TextTest):
    def test_must_exist_and_have_the_packages(self):
        self.write("poem.txt", TEXT)
        train = ["train", "--preset", "toy-bytes", "--data", "poem.txt", "--tokenizer", "train:300", *STEPS]
        self.refused("EBB_PYTHON '/none' cannot be started", *train, EBB_PYTHON="/none")
        self.refused("ended with exit code 7", *train, EBB_PYTHON=self.program("broken", "exit 7"))
        bare = self.program("bare", f"exec '{sys.executable}' -I -S \"$@\"")
        self.refused("-m pip install tokenizers jinja2 numpy", *train, EBB_PYTHON=bare)
        (self.folder / "bin").mkdir()
        os.rename(bare, self.folder / "bin" / "python3")
        venv = self.folder / "data" / "ebb" / "python"
        self.refused(f"python3 -m venv '{venv}' && '{venv}/bin/pip' install tokenizers jinja2 numpy", *train,
                     EBB_PYTHON="", PATH=str(self.folder / "bin"), XDG_DATA_HOME=str(self.folder / "data"))
        (venv / "bin").mkdir(parents=True)
        os.rename(self.program("good", f"exec '{sys.executable}' \"$@\""), venv / "bin" / "python3")
        self.ebb(*train, EBB_PYTHON="", PATH=str(self.folder / "bin"), XDG_DATA_HOME=str(self.folder / "data"))
        self.ebb(*train, EBB_PYTHON=str(self.folder / "bin" / "python3"))
        self.assertIn("found in", self.said, "tokens that are in the cache need no packages")

    def test_that_ends_after_an_answer_is_a_failure_and_no_wrong_input(self):
        self.model()
        once = self.program("once", f"'{sys.executable}' \"$@\" | head -n 1")
        self.refused("ended with exit code 0", "generate", "--model", "model", "--prompt", "the", *SMALL, code=1,
                     EBB_PYTHON=once)

    def program(self, name, command):
        self.write(name, f"#!/bin/sh\n{command}\n")
        (self.folder / name).chmod(0o755)
        return str(self.folder / name)


class Cache(TextTest):
    def test_is_used_until_something_changes(self):
        self.write("poem.txt", TEXT)
        train = ["train", "--preset", "toy-bytes", "--data", "poem.txt", "--tokenizer", "train:300", *STEPS]
        first = self.ebb(*train)
        self.assertIn(f"kept in '{self.folder}/cache/ebb/tokens/", self.said)
        entry, = self.entries()
        self.assertEqual(self.ebb(*train).splitlines()[-1], first.splitlines()[-1], "the same state")
        self.assertIn(f"found in '{entry}'", self.said)
        for damage in (lambda: os.truncate(entry / "poem.bin", 1000), (entry / "entry.json").unlink,
                       (entry / "poem.bin").unlink, lambda: (entry / "entry.json").write_text("{}")):
            damage()
            self.assertEqual(self.ebb(*train).splitlines()[-1], first.splitlines()[-1])
            self.assertIn(f"kept in '{entry}'", self.said)
        tokenizer, = (path / "tokenizer.json" for path in self.entries("tokenizers"))
        before = tokenizer.read_bytes()
        tokenizer.unlink()
        self.ebb(*train)
        self.assertEqual(tokenizer.read_bytes(), before, "training a vocabulary again gives the same")
        self.write("poem.txt", TEXT + "more\n")
        self.ebb(*train)
        self.assertIn("kept in", self.said)
        self.assertEqual(len(self.entries()), 2)

    def test_serves_a_resumed_run(self):
        self.write("poem.txt", TEXT)
        train = ["train", "--preset", "toy-bytes", "--tokenizer", "train:300", "--data", "poem.txt", *STEPS]
        self.ebb(*train, "--save", "run")
        self.ebb("train", "--resume", "--save", "run", "--steps", "3")
        self.assertIn("found in", self.said)
        self.assertNotIn("the data", self.said)
        self.forget_tokens()
        self.ebb("train", "--resume", "--save", "run", "--steps", "4")
        self.assertIn("kept in", self.said)
        self.assertNotIn("the data", self.said)
        self.write("poem.txt", TEXT.replace("quick", "slow"))
        self.ebb("train", "--resume", "--save", "run", "--steps", "5")
        self.assertIn("resume: the data", self.said)
        files = [(self.folder / "run" / f"step-{step}" / "tokenizer.json").read_bytes() for step in (2, 5)]
        self.assertEqual(*files)

    def test_depends_on_every_file_that_a_checkpoint_copies(self):
        """The lists of C++ and of Python agree."""
        source = (TOOLS.parent / "model_zoo" / "model_files.cpp").read_text()
        names = re.findall(r'{"([^"]+)"', source[source.index("kCompanions[]"):source.index("kMostBytes")])
        self.assertIn("tokenizer.json", names)
        sys.path.append(str(TOOLS))
        from tokenizing import prepared

        for name in names:
            self.write(name, "old")
            before = prepared.key_of_tokenizer(str(self.folder))
            self.write(name, "new")
            self.assertNotEqual(prepared.key_of_tokenizer(str(self.folder)), before, name)

    def test_must_be_writable(self):
        self.write("poem.txt", TEXT)
        self.refused("set XDG_CACHE_HOME", "train", "--preset", "toy-bytes", "--tokenizer", "train:300", "--data", "poem.txt",
                     *STEPS, XDG_CACHE_HOME=str(self.folder / "poem.txt"))

    def test_an_interrupted_run_leaves_nothing(self):
        self.write("poem.txt", "".join(f"{i} {TEXT}" for i in range(3000)))
        train = subprocess.Popen([EBB, "train", "--preset", "toy-bytes", "--tokenizer", "train:5000", "--data", "poem.txt",
                                  *STEPS], cwd=self.folder, env=self.environment, stderr=subprocess.PIPE)
        folder = self.folder / "cache" / "ebb"
        while train.poll() is None and not list(folder.glob("*/*.unfinished")):
            pass
        train.terminate()
        self.assertEqual(train.communicate()[1].count(b"SIGTERM"), 1)
        self.assertEqual(train.returncode, 143)
        self.assertEqual([path for path in folder.glob("*/*") if path.is_dir()], [])


class Chat(TextTest):
    def test_answers_a_message(self):
        tokenizer = self.model()
        flags = ["--max-tokens", "12", "--temperature", "2", *SMALL]
        prompt = tokenizer.encode("<|im_start|>user\nhello\nyou<|im_end|>\n<|im_start|>assistant\n").ids
        numbers = self.ebb("generate", "--model", "model", "--prompt-tokens", ",".join(map(str, prompt)), *flags)
        ids = list(map(int, numbers.split(",")))
        ends = [i for i, token in enumerate(ids) if token in (0, 2)]
        wanted = tokenizer.decode(ids[:ends[0]] if ends else ids) + "\n"
        self.assertEqual(self.ebb("generate", "--model", "model", "--chat", *flags, stdin=b"hello\nyou\n"), wanted)
        self.assertEqual(self.ebb("generate", "--model", "model", "--chat", "--prompt", "hello\nyou", *flags), wanted)
        self.refused("standard input is empty", "generate", "--model", "model", "--chat", *flags)
        self.refused("not UTF-8", "generate", "--model", "model", "--chat", *flags, stdin=b"\xff")
        self.refused("over bytes has no chat template", "generate", "--preset", "toy-bytes", "--chat", "--prompt", "x")
        self.refused("one of --prompt", "generate", "--model", "model", "--chat", "--prompt-tokens", "1")

    def test_ends_at_a_signal_while_it_reads(self):
        self.model()
        with subprocess.Popen([EBB, "generate", "--model", "model", "--chat", *SMALL], cwd=self.folder, stdin=subprocess.PIPE,
                              env=self.environment, stderr=subprocess.PIPE) as chat:
            os.write(chat.stdin.fileno(), b"hello")
            while int.from_bytes(fcntl.ioctl(chat.stdin, termios.FIONREAD, bytes(4)), sys.byteorder) > 0:
                self.assertIsNone(chat.poll())
            chat.terminate()
            said = chat.stderr.read()
        self.assertEqual(chat.returncode, 143)
        self.assertNotIn(b"stopped after token", said, "a part of a message gets no answer")

    def test_on_a_terminal(self):
        """The second answer is that to the whole conversation."""
        tokenizer = self.model()
        flags = ["--max-tokens", "6", *SMALL]
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        chat = subprocess.Popen([EBB, "generate", "--model", "model", "--chat", *flags], cwd=self.folder,
                                env=self.environment, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.close(theirs)
        for message in (b"hello\n", b"what?\n", b"\x04"):
            said = b""
            while not said.endswith(b"> "):
                said += chat.stderr.read1(1)
            os.write(ours, message)
        answers = chat.communicate()[0].decode()
        self.assertEqual(chat.returncode, 0)
        text = wanted = ""
        for message in ("hello", "what?"):
            text += f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"
            ids = ",".join(map(str, tokenizer.encode(text).ids))
            numbers = self.ebb("generate", "--model", "model", "--prompt-tokens", ids, *flags).strip()
            answer = tokenizer.decode([int(number) for number in numbers.split(",")])
            text += f"{answer}<|im_end|>\n"
            wanted += answer + "\n"
        self.assertEqual(answers, wanted)


if __name__ == "__main__":
    EBB = str(pathlib.Path(sys.argv.pop(1)).resolve())
    with tempfile.TemporaryDirectory(prefix="ebb-test-") as RATES:
        subprocess.run([EBB, "train", "--preset", "toy-bytes", "--data", __file__, *STEPS, "--dry-run"], check=True,
                       env={**os.environ, "XDG_CACHE_HOME": RATES}, stdout=subprocess.DEVNULL)
        result = unittest.main(exit=False, verbosity=2).result
    sys.exit(77 if result.wasSuccessful() and result.skipped else not result.wasSuccessful())
