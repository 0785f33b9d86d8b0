#!/usr/bin/env python3
"""Tests what tools/tokenize.py reads and refuses: formats of files, oddities of exported conversations, and damaged
tokenizers. Tests that tokenize are skipped without transformers (EBB_PYTHON), and the exit code is then 77."""

import bz2
import gzip
import io
import json
import lzma
import os
import pathlib
import re
import sys
import tarfile
from unittest import mock

from tokenize_support import (CHATML, IGNORED, TEXT, TokenizeTest, byte_level, needs_transformers,
                              run_tests)

from script_errors import InputError  # tokenize_support knows the folder of the tools
from tokenizing import inputs, sources
from tokenizing.notices import Notices

ROWS = [{"text": "one"}, {"text": "two \u00e9\u6f22\n"}, {"text": "\\\"]}, [{"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
# Like the template of Qwen2.5: it cannot write an empty conversation.
WITH_SYSTEM = "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nbe good<|im_end|>\n{% endif %}" + CHATML
CALLS = "{% for c in m.tool_calls or [] %}call:{{ c['function']['name'] }}{% endfor %}"
WITH_TOOLS = CHATML.replace("<|im_end|>", CALLS + "<|im_end|>", 1)
NULL_FOR_TOOLS = WITH_TOOLS.replace("m.tool_calls or []", "(m.tool_calls if m.content is not string else []) or []")


def archive():
    """Returns a tar archive of one text."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo("a.txt")
        member.size = len(TEXT)
        tar.addfile(member, io.BytesIO(TEXT.encode()))
    return out.getvalue()


class Inputs(TokenizeTest):
    def texts(self, path):
        self.notices = Notices()
        files = inputs.files_of([path], self.notices)
        return [(text.where.removeprefix(str(self.folder) + "/"), "".join(text.blocks))
                for text in sources.documents(files, None, self.notices)]

    def refused_input(self, part, path):
        with self.assertRaises(InputError) as raised:
            self.texts(path)
        self.assertIn(part, str(raised.exception))
        self.assertIn(os.path.basename(path), str(raised.exception))

    def test_json_has_lines_or_one_list(self):
        numbers = [f":{i}" for i in (1, 2, 3)]
        line, indented = json.dumps(ROWS), "\n" + json.dumps(ROWS, indent=1)
        for text, places in ((LINES, numbers), (line, [":1"] * 3), (indented, [":3", ":6", ":9"]),
                             (LINES.replace("\n", "\r\n"), numbers), ("\ufeff" + LINES, numbers),
                             ("\ufeff" + line, [":1"] * 3)):
            for name in ("a.json", "a.jsonl", "A.JSON", "a.b.ndjson"):
                expected = [(name + place, row["text"]) for place, row in zip(places, ROWS)]
                self.assertEqual(self.texts(self.write(name, text)), expected)

    def test_a_list_may_be_cut_anywhere(self):
        text = json.dumps([*ROWS, {"text": "x" * 300, "n": [1.5e3, True, None, {}]}])
        for size in (1, 2, 3, 7, 50):
            blocks = [text[i:i + size] for i in range(0, len(text), size)]
            self.assertEqual([row for _, row in sources.rows_of_list(blocks, "a")], json.loads(text))

    def test_a_broken_item_is_found_without_reading_on(self):
        blocks = iter(['[{"text": "a"}, {"text": oops, ' + " " * 100, "more", "never read"])
        with self.assertRaisesRegex(InputError, "a:1: not JSON: Expecting value"):
            list(sources.rows_of_list(blocks, "a"))
        self.assertEqual(next(blocks), "more")

    def test_other_json_is_refused(self):
        for text, part in (('{"data": [{"text": "x"}]}', "it has data"),
                           ('{\n"text": "x"\n}', ":1: not JSON"), ("[1]", "not 1"),
                           ('"x"', "must be an object"), ('[{"text": "x"}', "found the end"),
                           ('[{"text": "x"}] x', "after the list"),
                           ('[{"text": "x"} {"text": "y"}]', "expected ',' or ']'"),
                           ('[{"text": "x"},\n{"text": y}]', ":2: not JSON"),
                           ("prose", "allowed are JSON lines (an object in each line) or one list"),
                           ('{"text": 5}', "a string"),
                           ('{"text": null}', "a string"), ('{"text": "a", "messages": []}', "either"),
                           ("[" * 100000, "recursion"),
                           ('{"text": ' + "[" * 100000, "recursion"), ('{"text": "a\\ud800"}', "surrogate"),
                           ("{}", "no key"), ('{"text": "a", "text": "b"}', 'the key "text" occurs twice'),
                           ('[{"text": "a", "text": "b"}]', 'the key "text" occurs twice'),
                           ('{"text": "' + "a" * 99 + "\n", "not JSON"), ("[{},]", "no key"),
                           (b'{"text": "\xff"}', "not JSON")):
            self.refused_input(part, self.write("a.json", text))

    def test_packed_files_are_unpacked(self):
        for suffix, pack in ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)):
            self.assertEqual(len(self.texts(self.write("a.jsonl" + suffix, pack(LINES.encode())))), 3)
            self.assertEqual(self.texts(self.write("a.txt" + suffix, pack(TEXT.encode()))), [("a.txt" + suffix, TEXT)])
            whole = pack(os.urandom(4000))
            self.refused_input("damaged or incomplete", self.write("cut.txt" + suffix, whole[:2000]))
        self.refused_input("damaged or incomplete", self.write("a.gz", gzip.compress(b"x")[:-6] + b"000000"))

    def test_files_that_are_no_text_are_refused_with_what_to_do(self):
        for name, content, part in (
                ("a.txt", TEXT.encode("utf-16"), "iconv -f UTF-16 "), ("a.txt", TEXT.encode("utf-16-le"), "UTF-16LE"),
                ("a.txt", TEXT.encode("utf-16-be"), "-f UTF-16BE "), ("a.tgz", gzip.compress(archive()), "tar -xf"),
                ("a.tar", archive(), "tar -xf"),
                ("a.jsonl", LINES.encode("utf-16"), "iconv"), ("a.jsonl", LINES.encode("utf-16-be"), "-f UTF-16BE "), ("a.txt", b"a\0b", "byte 1 is NUL"),
                ("a.pdf", b"%PDF-1.7", "pdftotext"),
                ("a.parquet", b"PAR1\x15\4", "read_parquet"), ("a.npy", b"\x93NUMPY\1\0", "tofile"),
                ("a.csv", b"a,b\n", "read_csv"),
                ("a.zst", b"\x28\xb5\x2f\xfd\0", "zstd -d"), ("a.zip", b"PK\3\4", "unzip"),
                ("a.bin", b"\x88\xd8\x34\1", "ebb train"),
                ("a b.txt", b"\xff\xfe", "a b.txt' >"),
                ("a.txt", b"version https://git-lfs.github.com", "git lfs pull"),
                ("a.txt", "caf\u00e9".encode("latin-1"), "byte 3 is not UTF-8")):
            self.refused_input(part, self.write(name, content))

    def test_json_lines_in_a_file_of_prose_are_reported(self):
        for name, text, reported in (("a.txt", LINES, True), ("a", LINES, True), ("a.txt", TEXT, False),
                                     ("a.txt", json.dumps(ROWS, indent=1), True), ("a.txt", "\n " + LINES, True),
                                     ("a.txt", json.dumps(ROWS[0], indent=1), True), ("a.txt", "{\nbraces", False), ("a.txt", "{braces}\n", False),
                                     ("a.txt", "[1] is a list\n", False), ("a.txt", "5\n", False),
                                     ("a.txt", json.dumps({"text": "x" * 50000}), True)):
            self.assertEqual(self.texts(self.write(name, text)), [(name, text)])
            self.assertEqual("read as prose" in "".join(self.notices.lines()), reported, self.notices.lines())
        files = [self.write(name, LINES) for name in ("a.txt", "b.txt", "c.txt")]
        for separator in (None, "|"):
            notices = Notices()
            for text in sources.documents(files, separator, notices):
                list(text.blocks)
            said = [line for line in notices.lines() if "read as prose" in line]
            self.assertEqual(len(said), 1, said)
            self.assertRegex(said[0], "^3 text files begin with JSON .*; the first is " + re.escape(files[0]))

    def test_folders_are_read_sorted(self):
        for name in ("d/b.txt", "d/a/c.txt", "d/a.json"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            self.write(name, LINES if name.endswith("json") else name)
        self.assertEqual([where for where, _ in self.texts(self.path("d"))],
                         ["d/a.json:1", "d/a.json:2", "d/a.json:3", "d/a/c.txt", "d/b.txt"])
        (self.folder / "d" / "link").symlink_to("..")
        self.refused_input("twice", self.path("d"))
        (self.folder / "d" / "link").unlink()
        (self.folder / "d" / "link").symlink_to("nowhere")
        self.refused_input("a link to nowhere", self.path("d"))
        (self.folder / "d" / "link").unlink()
        os.mkfifo(self.path("d/pipe"))
        self.refused_input("a pipe", self.path("d"))
        (self.folder / "empty").mkdir()
        self.refused_input("no file", self.path("empty"))
        with mock.patch("os.scandir", side_effect=PermissionError(13, "Permission denied", self.path("d"))):
            self.refused_input(self.path("d") + ": Permission denied", self.path("d"))

    def test_names_tell_which_files_are_json(self):
        for name in ("a.json", "d/A.JSONL", "a.jl", "a.b.jsonlines", "a.ndjson.gz", "a.json.XZ", "a.json.bz2"):
            self.assertTrue(inputs.is_json(name), name)
        for name in (".json", "d/.json", ".json.gz", "json", "ajson", "a.json.txt", "a.json.gz.gz", "a.jsonx", "a.gz",
                     "a.json/b", "a.json\n"):
            self.assertFalse(inputs.is_json(name), name)

    def test_files_of_folders_that_are_no_text_are_left_out_and_reported(self):
        (self.folder / "d").mkdir()
        self.write("d/a.txt", TEXT)
        self.write("d/b.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"x" * 100)
        notices = Notices()
        self.assertEqual(inputs.files_of([self.path("d")], notices), [self.path("d/a.txt")])
        self.assertEqual(notices.lines(), [f"left out 1 files that are no text; the first is {self.path('d/b.png')}"])
        self.refused_input("is no text, because byte 8 is NUL", self.path("d/b.png"))
        self.write("d/c.txt", TEXT.encode("utf-16-le"))
        self.assertIn(self.path("d/c.txt"), inputs.files_of([self.path("d")], Notices()))

    def test_hidden_files_and_backups_in_folders_are_left_out_and_reported(self):
        for name in ("d/.git/config", "d/.hidden", "d/a.txt~", "d/a.txt"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            self.write(name, name)
        notices = Notices()
        self.assertEqual(inputs.files_of([self.path("d")], notices), [self.path("d/a.txt")])
        self.assertEqual(notices.lines(), ["left out 3 hidden files and backups of folders (name them to read them); the "
                                           f"first is {self.path('d/.git')}"])
        self.assertEqual(inputs.files_of([self.path("d/.hidden")], notices), [self.path("d/.hidden")])

    def test_a_file_that_is_read_twice_is_reported(self):
        text = self.write("a.txt", "a")
        os.symlink("a.txt", self.path("b.txt"))
        notices = Notices()
        self.assertEqual(len(inputs.files_of([text, self.path("b.txt")], notices)), 2)
        said = f"1 files are named twice and are read twice; the first is {self.path('b.txt')}"
        self.assertEqual(notices.lines(), [said])

    def test_kinds_of_notices_are_limited_but_expected_ones_are_counted(self):
        notices = Notices()
        notices.expect("left out {count} x")
        notices.expect("left out {count} y")
        for i in range(200):
            notices.add(f"left out {{count}} of {i}", f"a:{i}")
        for place in ("a:7", "a:8"):
            notices.add("left out {count} x", place)
        lines = notices.lines()
        self.assertLess(len(lines), 60)
        self.assertEqual(lines[0], "left out 2 x; the first is a:7")
        self.assertRegex(lines[-1], r"^\d+ more parts of the inputs")
        self.assertEqual((notices.of("left out {count} x"), notices.of("left out {count} y")[0]), ([2, "a:7"], 0))

    def test_a_separator_that_does_not_occur_is_reported(self):
        notices = Notices()
        files = [self.write("a.txt", "a|b"), self.write("b.txt", "a\r\n\r\nb")]
        self.assertEqual(len(list(sources.documents(files, "|", notices))), 3)
        line, = notices.lines()
        self.assertIn("1 text files do not contain the separator '|'", line)
        self.assertIn("b.txt", line)

    def test_messages_are_texts(self):
        def content(message):
            return sources.document_of({"messages": [message]}, "a:1", Notices()).messages[0]["content"]

        def part(text):
            return {"type": "text", "text": text}

        self.assertEqual(content({"role": "user", "content": [part("a"), part("b")]}), "ab")
        self.assertEqual(content({"role": "user", "content": ""}), "")
        self.assertIsNone(content({"role": "assistant", "content": None, "tool_calls": [{}]}))
        for message, problem in (({"role": "user", "content": None}, "no \"content\""),
                                 ({"role": "user", "content": 5}, "not 5"),
                                 ({"role": "user", "content": [{"type": "image_url"}]}, "text alone"),
                                 ({"role": "user", "content": {"a": 1}}, "must be a string"),
                                 ({"role": 5, "content": ""}, "a \"role\""),
                                 ({"role": "user", "content": [part(None)]}, "text alone"),
                                 ({"content": "x"}, "a \"role\"")):
            with self.assertRaises(InputError) as raised:
                content(message)
            self.assertIn("a:1: message 0", str(raised.exception))
            self.assertIn(problem, str(raised.exception))


class Arguments(TokenizeTest):
    """These are refused before transformers is loaded."""

    def test_are_checked(self):
        text = self.write("a.txt", TEXT)
        for part, arguments in (
                ("--seq-length 1: allowed is", ["--seq-length", "1", text]),
                ("--seq-length", ["--seq-length", "x", text]),
                ("2 to 16777216", ["--seq-length", "99999999999", text]), ("--seed -1", ["--seed", "-1", text]),
                ("--mask-words nan", ["--mask-words", "nan", text]),
                ("needs --seq-length", ["--too-long", "drop", text]),
                ("INPUT ''", [""]), ("required: INPUT", []), ("--output ''", ["--output", "", text]),
                ("--nope", ["--nope", text]),
                ("--chat-template none: No such file", ["--chat-template", "none", text]),
                ("is not UTF-8", ["--chat-template", self.write("t", b"\xff"), text]),
                ("Is a directory", ["--chat-template", self.path(""), text]),
                ("remove the flag", ["--separator", "|", self.write("a.jsonl", LINES)])):
            outcome = self.run_tool(None, *arguments)
            self.assertEqual(outcome.returncode, 2, outcome.stderr)
            self.assertIn(part, outcome.stderr)
            self.assertEqual(outcome.stderr.count("\n"), 1, outcome.stderr)


@needs_transformers
class Conversations(TokenizeTest):
    def learn(self, template, *conversations, flags=()):
        """Returns the learned text of each conversation, and what the tool said."""
        rows = [{"messages": [message if isinstance(message, dict) else {"role": message[0], "content": message[1]}
                              for message in conversation]} for conversation in conversations]
        self.tokenizer = byte_level(template)
        outcome = self.run_tool(self.tokenizer, "--labels", "--documents", *flags, self.write_lines(rows))
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.files = self.written(outcome)
        learned = [self.tokenizer.decode(labels[labels != IGNORED]) for _, labels in self.files.documents()]
        return learned, outcome.stderr

    def test_may_begin_with_an_answer(self):
        opened = [("assistant", "hello"), ("user", "q"), ("assistant", "a")]
        for template in (CHATML, WITH_SYSTEM):
            self.assertEqual(self.learn(template, opened), (["hello<|im_end|>a<|im_end|>"], ""))
            self.assertEqual(self.learn(template, opened[:1])[0], ["hello<|im_end|>"])
            # The word of the answer is also in the text before it.
            self.assertEqual(self.learn(template, [("assistant", "be"), ("user", "q")])[0], ["be<|im_end|>"])
        self.assertEqual(self.learn(WITH_SYSTEM, [("system", "s"), *opened])[0], ["hello<|im_end|>a<|im_end|>"])

    def test_may_have_two_answers_in_a_row(self):
        self.assertEqual(self.learn(CHATML, [("user", "q"), ("assistant", "a"), ("assistant", "b")])[0],
                         ["a<|im_end|>b<|im_end|>"])

    def test_may_have_empty_texts(self):
        self.assertEqual(self.learn(CHATML, [("user", ""), ("assistant", "a")], [("user", "q"), ("assistant", "")])[0],
                         ["a<|im_end|>", "<|im_end|>"])

    def test_without_an_answer_are_left_out_and_counted(self):
        good = [("user", "q"), ("assistant", "a")]
        learned, said = self.learn(CHATML, [("system", "s")], good, [("human", "q"), ("gpt", "a")], good)
        self.assertEqual(learned, ["a<|im_end|>"] * 2)
        self.assertIn("left out 2 conversations without an answer", said)
        self.assertIn("input.jsonl:1 with the roles system", said)
        self.refused_anew(CHATML, "2 were left out, the first is", [{"role": "system", "content": "s"}], count=2)

    def test_weights_of_zero_are_not_learned(self):
        answers = [{"role": "assistant", "content": text, "weight": weight} for text, weight in (("a", 0), ("b", 1))]
        self.assertEqual(self.learn(CHATML, [("user", "q"), answers[0], ("user", "q"), answers[1]])[0], ["b<|im_end|>"])

    def test_calls_of_tools_need_a_template_that_writes_them(self):
        function = {"type": "function", "function": {"name": "sum", "arguments": {}}}
        call = {"role": "assistant", "content": None, "tool_calls": [function]}
        self.assertEqual(self.learn(WITH_TOOLS, [("user", "q"), call])[0], ["call:sum<|im_end|>"])
        self.assertEqual(self.learn(NULL_FOR_TOOLS, [("user", "q"), call, ("assistant", "a")])[0],
                         ["call:sum<|im_end|>a<|im_end|>"])
        self.refused_anew(CHATML, "does not write the \"tool_calls\"", [{"role": "user", "content": "q"}, call])
        self.refused_anew(WITH_TOOLS, "must be a list of", [{**call, "tool_calls": ["sum"]}])

    def test_calls_that_the_template_drops_are_refused(self):
        def call(name, **arguments):
            return {"role": "assistant", "content": None, "tool_calls": [
                {"type": "function", "function": {"name": name, "arguments": arguments}}]}

        user = {"role": "user", "content": "use sum"}
        part = "does not write the \"tool_calls\" of message "
        self.refused_anew(CHATML, part + "1", [user, call("sum")])  # the name is in another message
        self.refused_anew(WITH_TOOLS, part + "1", [user, call("sum", a=5)])  # only the name is written
        last = WITH_TOOLS.replace("m.tool_calls or []", "(m.tool_calls if loop.last else []) or []")
        self.refused_anew(last, part + "1", [user, call("sum"), call("sum")])
        old = {"role": "assistant", "content": "", "function_call": {"name": "sum", "arguments": "{}"}}
        self.refused_anew(CHATML, "does not write the \"function_call\" of message 1", [user, old])
        self.refused_anew(CHATML, "does not write the \"function_call\"", [user, {**old, "content": None}])
        arguments = WITH_TOOLS.replace("['name'] }}", "['name'] }}{{ c['function']['arguments'] | tojson }}")
        self.assertEqual(self.learn(arguments, [user, call("sum", a=5)]),
                         (['call:sum{"a": 5}<|im_end|>'], ""))

    def test_calls_are_learned_if_the_template_removes_thoughts(self):
        """Like the template of Qwen3, which writes thoughts only into the last answer."""
        thoughts = "{% if loop.last and m.role == 'assistant' %}<think></think>{% endif %}"
        calls = WITH_TOOLS.replace("['name'] }}", "['name'] }}({{ c['function']['arguments'] | tojson }})</call>\n")
        call = {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": name, "arguments": {"a": 5}}} for name in ("sum", "add")]}
        learned, said = self.learn(calls.replace("{{ m['content'] }}", thoughts + "{{ m['content'] }}"), [
            ("user", "q"), call, ("tool", "5)</call>"), ("assistant", "five")])
        self.assertEqual(said, "")
        calls = 'call:sum({"a": 5})</call>\ncall:add({"a": 5})</call>\n<|im_end|>'
        self.assertEqual(learned, [calls + "<think></think>five<|im_end|>"])

    def test_empty_answers_are_never_learned_instead_of_dropped_texts(self):
        pair = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
        for answer in ("{% generation %}<|im_end|>{% endgeneration %}",
                       "{{ m.content }}{% generation %}<|im_end|>{% endgeneration %}"):
            template = ("{% for m in messages %}{{ m.role }}:{% if m.role == 'user' %}{{ m.content }}{% else %}" + answer
                        + "{% endif %}{% endfor %}")
            self.refused_anew(template, "message 1", pair)
        self.refused_anew("{% for m in messages %}{{ m.role }}:{{ m.content if m.role == 'user' }}<|im_end|>{% endfor %}",
                          "does not write the text of message 1", pair)
        for key in ("reasoning_content", "refusal"):
            self.refused_anew(CHATML, f"does not write the \"{key}\" of message 1",
                              [pair[0], {"role": "assistant", "content": "", key: "no"}])

    def test_parts_that_are_left_out_are_reported_once(self):
        pair = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
        only_pairs = CHATML.replace("{{ m['content'] }}", "{{ m['content'] if m.role in ['user', 'assistant'] }}")
        tool = {"role": "tool", "content": "5"}
        thought = {**pair[1], "reasoning_content": "t", "tool_calls": None}
        for template, conversation, part in (
                (CHATML, [pair[0], thought], 'left out "reasoning_content" of 2 messages, which the chat template'),
                (CHATML, [{**pair[0], "images": ["a"]}, pair[1]], 'left out "images" of 2 messages'),
                (only_pairs, [{"role": "system", "content": "s"}, *pair], "2 messages of the role 'system', which"),
                (only_pairs, [pair[0], tool, pair[1]], "2 messages of the role 'tool', which"),
                (CHATML, [*pair, {"role": "gpt", "content": "b"}], "2 messages of the role 'gpt' are not learned"),
                (CHATML, [{**pair[0], "weight": 1}, pair[1]], '"weight" has no effect in 2')):
            said = self.learn(template, conversation, conversation)[1]
            self.assertIn(part, said)
            self.assertIn("the first is " + self.path("input.jsonl:1: message"), said)
            self.assertEqual(said.count("\n"), 1, said)
        written = CHATML.replace("{{ m['content'] }}", "{{ m.reasoning_content }}{{ m['content'] }}")
        self.assertEqual(self.learn(written, [pair[0], thought]), (["ta<|im_end|>"], ""))

    def test_keys_of_rows_that_are_left_out_are_reported_once(self):
        pair = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
        tools = [{"type": "function", "function": {"name": "sum"}}]
        for more, part in (({"system": "s"}, 'left out "system" of 2 rows'), ({"functions": tools}, '"functions" of 2'),
                           ({"tools": tools}, 'left out "tools" of 2 conversations, which the chat template')):
            lines = self.write_lines([{"messages": pair, **more}] * 2)
            said = self.run_tool(byte_level(), "--labels", lines).stderr
            self.assertIn(part, said)
            self.assertIn("the first is " + self.path("input.jsonl:1"), said)
            self.assertEqual(said.count("\n"), 1, said)
        written = byte_level("{{ tools | tojson if tools else '' }}" + CHATML)
        self.assertEqual(self.run_tool(written, "--labels", lines).stderr, "")
        for value, count in ((None, 0), (1, 1)):
            said = self.run_tool(None, "--labels", self.write_lines([{"text": "a b c", "x": value}])).stderr
            self.assertEqual(said.count('left out "x" of 1 rows'), count, said)
        wrong = self.run_tool(None, self.write_lines([{"messages": pair, "tools": "[]"}]))
        self.assertIn("\"tools\" must be a list of objects", wrong.stderr)

    def test_weights_are_zero_or_one(self):
        for key, value in (("weight", 0.5), ("weight", "0"), ("train", False), ("loss_weight", 0), ("train", "false")):
            self.refused_anew(CHATML, f"\"{key}\" is {json.dumps(value)}", [
                {"role": "user", "content": "q"}, {"role": "assistant", "content": "a", key: value}])
        self.assertEqual(self.learn(CHATML, [{"role": "assistant", "content": "a", "train": True}]),
                         (["a<|im_end|>"], ""))

    def test_without_labels_all_messages_are_learned(self):
        said = self.run_tool(byte_level(), self.write_lines([{"messages": [{"role": "user", "content": "q"}]}])).stderr
        self.assertIn("1 conversations have no answer of the assistant, and all their messages are learned", said)

    def refused_anew(self, template, part, conversation, count=1):
        for path in self.folder.glob("out*"):
            path.unlink()
        self.refused(byte_level(template), part, "--labels", self.write_lines([{"messages": conversation}] * count))
        self.refused(None, "input.jsonl:1", "--labels", self.path("input.jsonl"))

    def test_are_refused_if_the_template_does_not_write_them(self):
        pair = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
        self.refused_anew("{% for m in messages %}<|im_start|>{% endfor %}",
                          "does not write the text of message 1", pair)
        self.refused_anew("{% for", "the chat template refuses", pair)
        self.refused_anew("{% if messages[1]['role'] != 'x' %}{{ raise_exception('no\nsuch role') }}{% endif %}",
                          "no such role", pair)

    def test_thoughts_that_the_template_removes(self):
        removed = "m['content'].split('</think>')[-1] if not loop.last else m['content']"
        thoughtful = [("user", "q"), ("assistant", "<think>t</think>a"), ("user", "q"), ("assistant", "b")]
        self.assertEqual(self.learn(CHATML.replace("m['content']", removed), thoughtful)[0],
                         ["a<|im_end|>b<|im_end|>"])


@needs_transformers
class Tokenizers(TokenizeTest):
    def refused_tokenizer(self, name, part):
        outcome = self.run_tool(None, "--tokenizer", name, self.write("a.txt", TEXT))
        self.assertEqual((outcome.returncode, outcome.stderr.count("\n")), (2, 1), outcome.stderr)
        self.assertIn(part, outcome.stderr)

    def test_that_do_not_exist_or_are_damaged(self):
        self.refused_tokenizer("org/none", "no such folder")
        self.refused_tokenizer(self.path("none.json"), "no such folder")
        self.refused_tokenizer(self.write("b.json", "[1]"), "cannot load")
        self.refused_tokenizer(str(self.folder), "cannot load")
        byte_level().save_pretrained(self.folder / "cut")
        self.write("cut/tokenizer.json", pathlib.Path(self.path("cut/tokenizer.json")).read_bytes()[:100])
        self.refused_tokenizer(self.path("cut"), "cannot load")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.argv.pop(1)  # the program ebb, which these tests do not need
    run_tests()
