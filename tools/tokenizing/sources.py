"""Reads documents from text files, and from JSON lines with "text" or "messages". No file is loaded as a whole."""

import dataclasses
import json
import pathlib
import typing

from .errors import InputError

BLOCK = 1 << 20  # characters read at once


@dataclasses.dataclass
class Text:
    where: str  # "file" or "file:line", for messages
    blocks: typing.Iterable[str]  # of the text, in order


@dataclasses.dataclass
class Conversation:
    where: str
    messages: list
    tools: typing.Optional[list]


def documents(paths, separator=None):
    """Yields all documents of all inputs. A text file is one document, or several that `separator` divides."""
    for path in paths:
        if pathlib.Path(path).suffix in (".jsonl", ".ndjson"):
            yield from json_lines(path)
        elif separator is None:
            yield Text(str(path), text_blocks(path))
        else:
            yield from separated(path, separator)


def text_blocks(path):
    with open(path, "rb") as binary:
        yield from decoded_blocks(binary, path)


def decoded_blocks(binary, path):
    """Decodes like open(), but errors contain the position."""
    rest, offset = b"", 0
    while True:
        block = binary.read(BLOCK)
        data = rest + block
        if not data:
            return
        try:
            text, rest = data.decode("utf-8"), b""
        except UnicodeDecodeError as error:
            is_cut = block and error.reason == "unexpected end of data"
            if not is_cut:
                raise InputError(f"{path}: byte {offset + error.start} is not UTF-8 ({error.reason}): texts must be "
                                 "UTF-8") from error
            text, rest = data[:error.start].decode("utf-8"), data[error.start:]
        offset += len(data) - len(rest)
        if text:
            yield text


def separated(path, separator):
    """Yields the documents between separators. Only some blocks of one document are in memory."""
    blocks = text_blocks(path)
    state = {"rest": "", "ended": False}

    def one_document():
        while True:
            at = state["rest"].find(separator)
            if at >= 0:
                head, state["rest"] = state["rest"][:at], state["rest"][at + len(separator):]
                if head:
                    yield head
                return
            kept = len(separator) - 1  # the separator may begin here
            head = state["rest"][:-kept] if kept else state["rest"]
            state["rest"] = state["rest"][len(head):]
            if head:
                yield head
            block = next(blocks, None)
            if block is None:
                state["ended"] = True
                if state["rest"]:
                    yield state["rest"]
                return
            state["rest"] += block

    while not state["ended"]:
        text = one_document()
        yield Text(str(path), text)
        for _ in text:  # skips text that was not read
            pass


def json_lines(path):
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield document_of(line, f"{path}:{number}")


def document_of(line, where):
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise InputError(f"{where}: a line must be an object with \"text\" or \"messages\"")
    if "messages" in row and "text" not in row:
        return Conversation(where, checked_messages(row["messages"], where), row.get("tools"))
    if isinstance(row.get("text"), str) and "messages" not in row:
        return Text(where, [row["text"]] if row["text"] else [])
    raise InputError(f"{where}: give either \"text\", a string, or \"messages\"; it has {', '.join(sorted(row))}")


def checked_messages(messages, where):
    if not isinstance(messages, list) or not messages:
        raise InputError(f"{where}: \"messages\" must be a list of at least one message")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InputError(f"{where}: message {i} must be an object with a \"role\" and a \"content\"")
        if "content" not in message and "tool_calls" not in message:
            raise InputError(f"{where}: message {i}, of '{message['role']}', has no \"content\"")
    return messages
