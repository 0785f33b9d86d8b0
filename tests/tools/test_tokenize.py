#!/usr/bin/env python3
"""Tests tools/tokenize.py: its files contain the tokens of the chat template and the labels of the answers, and the loss
of `ebb` on them agrees with transformers.

Usage: test_tokenize.py EBB. The tests create tiny tokenizers and models. Without transformers (EBB_PYTHON names a Python
that has it) most tests are skipped, and the exit code is 77.
"""

import io
import json
import os
import pathlib
import subprocess
import sys
import unittest

from tokenize_support import (CHATML, IGNORED, SPECIAL, TEXT, TOOLS, TokenizeTest, byte_level, has_transformers,
                              messages, metaspace, needs_transformers, run_tests, word_piece)

import run_commands  # tokenize_support knows its folder

if has_transformers:
    import numpy
    import torch
    import transformers

EBB = None

MARKED = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
          "{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}"
          "{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
INSTRUCT = ("<s>{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]{% else %}"
            " {{ m['content'] | trim }} </s>{% endif %}{% endfor %}")
# Like the template of Qwen3: only the last answer begins with its thoughts.
THINKING = ("{% set last = namespace(at=0) %}{% for m in messages %}{% if m['role'] == 'user' %}{% set last.at = loop.index0 %}"
            "{% endif %}{% endfor %}{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
            "{% if m['role'] == 'assistant' and loop.index0 > last.at %}<think>\n\n</think>\n\n{% endif %}"
            "{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
PLAIN = ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
         "{% if add_generation_prompt %}assistant:{% endif %}")

CONVERSATIONS = [
    [("user", "hello"), ("assistant", "the quick fox")],
    [("system", "be brief"), ("user", "what rains?"), ("assistant", "it rains 12 \N{GRINNING FACE} in Spain"),
     ("user", "where?\n\nsay it"), ("assistant", "over\nthe\n\ndog: \u00e9\u00df\u6f22")],
    [("user", "jumps"), ("assistant", "a  b   c"), ("user", "hello"), ("assistant", "hello")],
]


class PythonsOwnModule(TokenizeTest):
    def test_can_be_imported_by_scripts_in_the_same_folder(self):
        text = f"import sys; sys.path.insert(0, {str(TOOLS)!r}); import inspect, tokenize; print(tokenize.NAME)"
        outcome = subprocess.run([sys.executable, "-S", "-c", text], capture_output=True, text=True, check=False)
        self.assertEqual(outcome.stdout, "1\n", outcome.stderr)


@needs_transformers
class Conversations(TokenizeTest):
    def check_template(self, template, answer=str, end="<|im_end|>"):
        """Expects the tokens of the template, and as labels the answers of the assistant with their end."""
        tokenizer = byte_level(template)
        rows = [{"messages": messages(c)} for c in CONVERSATIONS]
        files = self.tokenize(tokenizer, "--labels", "--documents", self.write_lines(rows))
        self.assertEqual(len(files.starts), len(CONVERSATIONS))
        for (tokens, labels), conversation in zip(files.documents(), CONVERSATIONS):
            expected = tokenizer.apply_chat_template(messages(conversation), tokenize=False)
            self.assertEqual(tokenizer.decode(tokens), expected)
            self.assertEqual(list(tokens), tokenizer(expected, add_special_tokens=False)["input_ids"])
            self.check_shift(tokens, labels)
            said = [answer(content) for role, content in conversation if role == "assistant"]
            self.assertEqual(tokenizer.decode(labels[labels != IGNORED]), "".join(text + end for text in said))

    def test_with_messages_that_end_with_a_token(self):
        self.check_template(CHATML)

    def test_with_a_template_that_marks_answers(self):
        self.check_template(MARKED)

    def test_with_a_template_without_a_prompt_for_answers(self):
        self.check_template(INSTRUCT, answer=lambda text: " " + text, end=" </s>")

    def test_with_messages_that_end_with_a_line(self):
        self.check_template(PLAIN, answer=lambda text: " " + text, end="")

    def test_with_thoughts_that_only_the_last_answer_has(self):
        tokenizer = byte_level(THINKING)
        files = self.tokenize(tokenizer, "--labels", "--documents", self.write_lines([{"messages": messages(c)}
                                                                                      for c in CONVERSATIONS[:2]]))
        said = [tokenizer.decode(labels[labels != IGNORED]) for _, labels in files.documents()]
        no_thought = "<think>\n\n</think>\n\n"
        self.assertEqual(said[0], no_thought + CONVERSATIONS[0][1][1] + "<|im_end|>")
        self.assertEqual(said[1], CONVERSATIONS[1][2][1] + "<|im_end|>" + no_thought + CONVERSATIONS[1][4][1]
                         + "<|im_end|>")

    def test_with_a_template_that_changes_earlier_parts(self):
        changing = "{{ messages | length }}" + CHATML
        self.refused(byte_level(changing), "input.jsonl:1: the chat template writes the messages before message 1 "
                     "differently", "--labels", self.write_lines([{"messages": messages(CONVERSATIONS[0])}]))

    def test_refused_by_the_template(self):
        picky = "{% if messages[0]['role'] != 'user' %}{{ raise_exception('users begin') }}{% endif %}" + CHATML
        lines = self.write_lines([{"messages": messages(CONVERSATIONS[0])}, {"messages": messages(CONVERSATIONS[1])}])
        self.refused(byte_level(picky), "input.jsonl:2: the chat template refuses the first 5 messages (system, user, "
                     "assistant, user, assistant): users begin",
                     lines)

    def test_need_a_template(self):
        self.refused(byte_level(None), "--chat-template", self.write_lines([{"messages": messages(CONVERSATIONS[0])}]))
        files = self.tokenize(None, "--chat-template", self.write("template", CHATML), self.path("input.jsonl"))
        self.assertIsNone(files.labels)

    def test_need_an_answer_to_learn(self):
        self.refused(byte_level(), "nothing to learn", "--labels",
                     self.write_lines([{"messages": [{"role": "user", "content": "hello"}]}]))

    def test_invalid_rows_are_errors(self):
        tokenizer = byte_level()
        for row, part in (({"messages": []}, "at least one message"), ({"messages": [{"role": "user"}]}, "message 0"),
                          ({"messages": ["hi"]}, "message 0 must be"), ({"txt": "a"}, "it has txt"), ([1], "an object")):
            self.refused(tokenizer, "input.jsonl:2: ", self.write_lines([{"text": "good"}, row]))
            self.refused(tokenizer, part, self.path("input.jsonl"))
        self.refused(tokenizer, "input.jsonl:1: not JSON", self.write("input.jsonl", "{\"text\": \n"))


@needs_transformers
class Texts(TokenizeTest):
    def test_end_with_the_end_of_text(self):
        tokenizer = byte_level()
        rows = [{"text": TEXT}, {"text": ""}, {"text": "fox"}]
        files = self.tokenize(tokenizer, "--labels", "--documents", self.write_lines(rows))
        self.assertEqual([tokenizer.decode(t) for t, _ in files.documents()], [TEXT + SPECIAL[0], "fox" + SPECIAL[0]])
        for tokens, labels in files.documents():
            self.assertEqual(list(labels), [*tokens[1:], IGNORED])
        files = self.tokenize(tokenizer, "--end-of-text", "none", self.path("input.jsonl"))
        self.assertEqual(tokenizer.decode(files.tokens), TEXT + "fox")
        for path in self.folder.glob("out*"):
            path.unlink()
        self.refused(tokenizer, "--end-of-text <no>: the tokenizer has no such token", "--end-of-text", "<no>",
                     self.path("input.jsonl"))

    def test_have_the_special_tokens_of_the_tokenizer(self):
        tokenizer = metaspace()
        files = self.tokenize(tokenizer, self.write("a.txt", "the fox"))
        self.assertEqual(list(files.tokens), tokenizer("the fox")["input_ids"] + [tokenizer.eos_token_id])
        tokenizer = word_piece()
        files = self.tokenize(tokenizer, self.path("a.txt"))
        self.assertEqual(list(files.tokens), tokenizer("the fox")["input_ids"])

    def test_are_files_or_parts_of_files(self):
        tokenizer = byte_level()
        a, b = self.write("a.txt", "the fox|||the dog|||"), self.write("b.txt", "it rains")
        files = self.tokenize(tokenizer, "--labels", "--documents", "--separator", "|||", a, b)
        self.assertEqual([tokenizer.decode(t, skip_special_tokens=True) for t, _ in files.documents()],
                         ["the fox", "the dog", "it rains"])
        files = self.tokenize(tokenizer, "--labels", "--documents", a, b)
        self.assertEqual(len(files.starts), 2)

    def test_must_be_utf8(self):
        self.refused(byte_level(), "bad.txt: byte 4 is not UTF-8", self.write("bad.txt", b"the \xff fox"))
        self.refused(byte_level(), "bad.txt: byte 4 is not UTF-8", self.write("bad.txt", b"the \xe6\xbc"))

    def test_must_exist(self):
        self.refused(byte_level(), "none.txt: No such file", self.path("none.txt"))
        self.refused(byte_level(), "empty.txt: there is no text", self.write("empty.txt", ""))


@needs_transformers
class LongTexts(unittest.TestCase):
    """A long text that is encoded in pieces has the tokens of the whole text."""

    def check_pieces(self, tokenizer, text, size, block):
        from tokenizing import encoding, sources, texts
        from tokenizing.tokenizer import Tokenizer

        blocks = [text[i:i + block] for i in range(0, len(text), block)]
        pieces = list(texts.pieces_of(sources.Text("text", blocks), size))
        ids = numpy.concatenate([tokens.ids for tokens in encoding.encode(Tokenizer(tokenizer.backend_tokenizer), pieces)])
        self.assertEqual(list(ids), tokenizer(text, add_special_tokens=False)["input_ids"])
        self.assertEqual("".join(p.text[p.first:p.last] for p in pieces), text)
        self.assertEqual([p.begins for p in pieces], [True] + [False] * (len(pieces) - 1))
        self.assertEqual([p.ends for p in pieces], [False] * (len(pieces) - 1) + [True])
        return len(pieces)

    def test_have_the_tokens_of_the_whole(self):
        text = "".join(f"{TEXT}\n{'  ' * (i % 4)}{TEXT[i % 50:]}.\n\n{i} \u6f22\u5b57 " for i in range(40))
        for tokenizer in (byte_level(), metaspace(), word_piece()):
            for size, block in ((100, 37), (300, 5000), (64, 1000)):
                self.assertGreater(self.check_pieces(tokenizer, text, size, block), 20)

    def test_may_be_chinese(self):
        line = "\u6f22\u5b57\u5f88\u957f\u3002\u4eca\u65e5\u306f\uff01\u6f22\u5b57\uff0c\u5929\u6c14"
        for text in (line * 300, (line + "\u3002\n") * 300, ("\u6f22\u5b57\uff0c" * 9) * 300):
            for tokenizer in (byte_level(), metaspace(), word_piece()):
                self.assertGreater(self.check_pieces(tokenizer, text, 64, 500), 20)

    def test_may_be_without_blanks(self):
        self.check_pieces(byte_level(), "x" * 5000 + " fox" + "y" * 700, 100, 64)

    def test_are_read_in_blocks_that_split_characters(self):
        from tokenizing import sources

        text = "a\u00e9\u6f22\N{GRINNING FACE}" * 100
        before, sources.BLOCK = sources.BLOCK, 7
        try:
            self.assertEqual("".join(sources.decoded_blocks(io.BytesIO(text.encode()), "file")), text)
        finally:
            sources.BLOCK = before


@needs_transformers
class Packed(TokenizeTest):
    LENGTHS = [5, 9, 3, 16, 40, 1, 7, 16, 2]  # including the end of text

    def pack(self, *arguments):
        tokenizer = byte_level()
        rows = [{"text": "<|im_end|>" * (n - 1)} for n in self.LENGTHS if n > 1]
        files = self.tokenize(tokenizer, "--seq-length", "16", *arguments, self.write_lines(rows))
        self.assertEqual(len(files.tokens) % 16, 1, "whole rows and one more token")
        self.assertEqual(len(files.labels), len(files.tokens))
        for tokens, labels in files.documents():
            if (labels == IGNORED).all():
                continue
            self.assertEqual(list(labels), [*tokens[1:], IGNORED])
        for start, (tokens, _) in zip(files.starts, files.documents()):
            self.assertLessEqual(start % 16 + len(tokens), 16, "a document must not cross the end of a row")
        return files, [len(tokens) for tokens, labels in files.documents() if (labels != IGNORED).any()]

    def test_documents_lie_within_rows(self):
        files, lengths = self.pack()
        self.assertEqual(lengths, [5, 9, 3, 16, 16, 16, 8, 7, 16, 2])
        self.assertEqual(int((files.labels != IGNORED).sum()), sum(lengths) - len(lengths))
        self.assertIn("8 documents, ", files.said)
        self.assertIn("1 documents were longer", files.said)

    def test_long_ones_are_cut_or_dropped(self):
        self.assertEqual(self.pack("--too-long", "truncate")[1], [5, 9, 3, 16, 16, 7, 16, 2])
        files, lengths = self.pack("--too-long", "drop")
        self.assertEqual(lengths, [5, 9, 3, 16, 7, 16, 2])
        self.assertIn("1 documents were longer and were dropped\n", files.said)

    def test_conversations_whose_answer_is_cut_off_are_left_out_and_reported(self):
        def rows(*lengths):
            return self.write_lines([{"messages": messages([("user", "x" * n), ("assistant", "a")])} for n in lengths])

        tokenizer = byte_level()
        outcome = self.run_tool(tokenizer, "--seq-length", "64", rows(1, 200))
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertIn("1 conversations were longer and were truncated", outcome.stdout)
        self.assertIn("left out 1 conversations whose first answer begins after 64 tokens", outcome.stderr)
        self.assertIn("input.jsonl:2", outcome.stderr)
        self.assertEqual(len(self.written(outcome).tokens), 65)
        for flags, part in (([], "truncated; the first answer begins after that in 2"), (["--too-long", "drop"], "dropped")):
            outcome = self.run_tool(None, "--seq-length", "64", *flags, rows(200, 300))
            self.assertEqual(outcome.returncode, 2)
            self.assertIn("2 documents are longer and were " + part, outcome.stderr)
        outcome = self.run_tool(None, "--seq-length", "64", self.write("empty.txt", ""))
        self.assertIn("empty.txt: there is no text", outcome.stderr)


@needs_transformers
class MaskedWords(TokenizeTest):
    def test_are_masked_and_are_the_labels(self):
        tokenizer = word_piece()
        files = self.tokenize(tokenizer, "--mask-words", "0.15", "--documents", self.write("a.txt", (TEXT + "\n") * 200))
        whole = numpy.array(tokenizer((TEXT + "\n") * 200)["input_ids"])
        chosen = files.labels != IGNORED
        self.assertTrue((files.labels[chosen] == whole[chosen]).all())
        self.assertTrue((files.tokens[~chosen] == whole[~chosen]).all())
        self.assertFalse(chosen[[0, -1]].any(), "[CLS] and [SEP] must not be masked")
        self.assertAlmostEqual(chosen.mean(), 0.15, delta=0.02)
        self.assertAlmostEqual((files.tokens[chosen] == tokenizer.mask_token_id).mean(), 0.8, delta=0.05)
        self.assertAlmostEqual((files.tokens[chosen] == whole[chosen]).mean(), 0.1, delta=0.05)
        self.assertEqual(json.loads(pathlib.Path(self.path("out.bin.json")).read_text())["targets"], "masked")
        outcome = self.run_tool(byte_level(), "--mask-words", "0.15", self.path("a.txt"))
        self.assertIn("no mask token", outcome.stderr)


@needs_transformers
class Program(TokenizeTest):
    def test_prints_what_it_wrote(self):
        byte_level().save_pretrained(self.folder / "tokenizer")
        outcome = subprocess.run(
            [sys.executable, TOOLS / "tokenize.py", "--tokenizer", self.path("tokenizer"), "--output", self.path("out"),
             "--documents", self.write("a.txt", TEXT)], capture_output=True, text=True, check=False)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertRegex(outcome.stdout, r"^1 documents, \d+ tokens \(u16\), \d+ targets\n")
        names = [self.path("out" + suffix) for suffix in (".bin", ".documents", ".bin.json")]
        self.assertEqual(outcome.stdout.splitlines()[1:], names)


@needs_transformers
class Trained(TokenizeTest):
    """The loss of the first step of ebb on packed conversations agrees with transformers on each conversation alone."""

    def learned_ids(self, tokenizer, conversation):
        """Returns the tokens and their labels, encoded part by part without a template."""
        ids, labels = [], []
        for role, content in conversation:
            is_learned = role == "assistant"
            for part, learned in ((f"<|im_start|>{role}\n", False), (content + "<|im_end|>", is_learned), ("\n", False)):
                part_ids = tokenizer(part, add_special_tokens=False)["input_ids"]
                ids += part_ids
                labels += part_ids if learned else [IGNORED] * len(part_ids)
        return torch.tensor([ids]), torch.tensor([labels])

    @staticmethod
    @torch.no_grad() if has_transformers else (lambda body: body)
    def losses(model, ids, labels):
        logits = model(input_ids=ids).logits[0, :-1]
        return torch.nn.functional.cross_entropy(logits, labels[0, 1:], ignore_index=IGNORED, reduction="sum").item()

    def make_model(self, tokenizer, positions=256):
        config = transformers.LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=positions, bos_token_id=None, eos_token_id=None)
        torch.manual_seed(5)
        model = transformers.LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.2)
        model.save_pretrained(self.folder / "model")
        return transformers.LlamaForCausalLM.from_pretrained(self.folder / "model", dtype=torch.float64)

    def test_as_the_documents_write_it(self):
        page = TOOLS.parent / "docs" / "using.md"
        block, = (block for block in run_commands.blocks_of(page.name, page.read_text())
                  if "tools/tokenize.py" in block.text)
        tokenizer = byte_level()
        self.make_model(tokenizer, positions=1024)
        (self.folder / "model").rename(self.folder / "my-model")
        tokenizer.save_pretrained(self.folder / "my-model")
        lines = self.write_lines([{"messages": messages(c)} for c in CONVERSATIONS * 30])
        os.rename(lines, self.path("chat.jsonl"))
        files = [self.folder / "my-model", self.folder / "chat.jsonl"]
        self.assertIsNone(run_commands.run(block, TOOLS.parent, pathlib.Path(EBB).resolve(), files))

    def test_on_packed_conversations(self):
        tokenizer = byte_level()
        model = self.make_model(tokenizer)
        conversations = CONVERSATIONS * 3
        files = self.tokenize(tokenizer, "--seq-length", "128",
                              self.write_lines([{"messages": messages(c)} for c in conversations]))
        rows = len(files.tokens) // 128
        sums, count = 0.0, 0
        for conversation in conversations:
            ids, labels = self.learned_ids(tokenizer, conversation)
            self.assertLessEqual(ids.shape[1], 128)
            sums += self.losses(model, ids, labels)
            count += int((labels[0, 1:] != IGNORED).sum())
        self.assertGreater(len(files.starts), rows + 1, "a row has several documents")
        outcome = subprocess.run(
            [EBB, "train", "--model", self.folder / "model", "--data", self.path("out.bin"), "--labels",
             self.path("out.labels"), "--documents", self.path("out.documents"), "--seq-length", "128",
             "--micro-batch-size", "1", "--gradient-accumulation", str(rows), "--steps", "1", "--dtype", "fp32", "--device",
             "host", "--threads", "2", "--chunk-size", "1MiB", "--log", self.path("log")],
            capture_output=True, text=True, check=False)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        loss = json.loads(pathlib.Path(self.path("log")).read_text().splitlines()[0])["loss"]
        self.assertAlmostEqual(loss / (sums / count), 1, delta=1e-5)


if __name__ == "__main__":
    EBB = sys.argv.pop(1)
    run_tests()
