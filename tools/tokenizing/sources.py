"""Reads documents from text files, and from JSON with "text" or "messages". No file is loaded as a whole."""

import dataclasses
import json
import typing

from script_errors import InputError

from .inputs import is_json, open_text, refuse_nul
from .json_rows import rows_of_lines, rows_of_list

BLOCK = 1 << 20  # characters read at once
SHARES = ("train", "training", "trainable", "loss", "loss_weight")  # how other tools name the weight of a message
TEXT_PARTS = ("text", "input_text", "output_text")


@dataclasses.dataclass
class Text:
    where: str  # "file" or "file:line", for messages
    blocks: typing.Iterable[str]  # of the text, in order


@dataclasses.dataclass
class Conversation:
    where: str
    messages: list
    tools: typing.Optional[list]


def documents(files, separator, notices):
    """Yields all documents of all files. A text file is one document, or several that `separator` divides, if it is not
    None. `notices` gets what is left out."""
    for path in files:
        if is_json(path):
            yield from json_documents(path, notices)
        elif separator is None:
            yield Text(str(path), text_blocks(path, notices))
        else:
            yield from separated(path, separator, notices)


def text_blocks(path, notices):
    with open_text(path) as binary:
        if begins_with_json(binary.peek(BLOCK)):
            notices.add("{count} text files begin with JSON and are read as prose (a name that ends in .jsonl is read "
                        "as JSON; write a pipe to such a file)", path)
        yield from decoded_blocks(binary, path)


def begins_with_json(begin):
    """Whether this is the begin of a list of objects, a whole object in the first line, or an object whose first line
    is its brace. Blanks and empty lines before it do not count."""
    begin = begin.lstrip()
    first, _, rest = begin.partition(b"\n")
    if b"".join(begin[:1000].split()).startswith(b'[{"') or (first.strip() == b"{" and rest.lstrip()[:1] == b'"'):
        return True
    try:
        return begin[:1] == b"{" and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


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
                                 "UTF-8 (iconv -f ENCODING -t UTF-8 converts them)") from error
            text, rest = data[:error.start].decode("utf-8"), data[error.start:]
        if "\0" in text:
            at = offset + len(text[:text.index("\0")].encode())
            refuse_nul(path, at)
        offset += len(data) - len(rest)
        if text:
            yield text


def separated(path, separator, notices):
    """Yields the documents between separators. Only some blocks of one document are in memory."""
    blocks = text_blocks(path, notices)
    state = {"rest": "", "ended": False, "found": False}

    def one_document():
        while True:
            at = state["rest"].find(separator)
            if at >= 0:
                state["found"] = True
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
    if not state["found"]:
        notices.add(f"{{count}} text files do not contain the separator {separator!a} and are one document each (bash "
                    "writes line ends as --separator $'\\n\\n', or $'\\r\\n\\r\\n' for files of Windows)", path)


def json_documents(path, notices):
    """JSON lines, or one list."""
    with open_text(path) as file:
        begin = file.peek(BLOCK).lstrip()[:1]
        rows = rows_of_list(decoded_blocks(file, path), path) if begin == b"[" else rows_of_lines(file, path)
        for where, row in rows:
            yield document_of(row, where, notices)


def shown(value):
    """Returns the begin of a value as JSON, for messages."""
    return json.dumps(value)[:60]


def document_of(row, where, notices):
    if not isinstance(row, dict):
        raise InputError(f"{where}: a row must be an object with \"text\" or \"messages\", not {shown(row)}")
    if "messages" in row and "text" not in row:
        notice_keys(row, {"messages", "tools"}, where, notices)
        return Conversation(where, messages_of(row["messages"], where), tools_of(row, where))
    if isinstance(row.get("text"), str) and "messages" not in row:
        notice_keys(row, {"text"}, where, notices)
        return Text(where, [checked_text(row["text"], where)] if row["text"] else [])
    keys = ", ".join(sorted(row)[:20]) or "no key"
    raise InputError(f"{where}: give either \"text\", a string, or \"messages\", a list of {{\"role\", \"content\"}}; "
                     f"it has {keys}")


def is_filled(value):
    """Whether leaving out this value of a key loses something."""
    return value is not None and value not in ("", [], {})


def notice_keys(row, known, where, notices):
    for key in sorted(row.keys() - known):
        if is_filled(row[key]):
            notices.add(f"left out \"{key}\" of {{count}} rows: the tool reads \"text\", or \"messages\" and \"tools\"",
                        where)


def tools_of(row, where):
    """Returns the descriptions of tools, or None."""
    tools = row.get("tools") or None
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise InputError(f"{where}: \"tools\" must be a list of objects, not {shown(tools)}")
    return tools


def checked_text(text, where):
    """JSON may contain half of a character, which no tokenizer accepts."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: character {error.start} is half of a surrogate pair ({text[error.start]!a}); "
                         "remove it") from error
    return text


def messages_of(messages, where):
    if not isinstance(messages, list) or not messages:
        raise InputError(f"{where}: \"messages\" must be a list of at least one message")
    return [message_of(message, f"{where}: message {i}") for i, message in enumerate(messages)]


def message_of(message, where):
    """Returns a message whose content is a string, or None if the message consists of calls of tools."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise InputError(f"{where} must be an object with a \"role\" and a \"content\"")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part_of(part, where) for part in content)
    check_weight(message, where)
    if content is None and not (message.get("tool_calls") or message.get("function_call")):
        raise InputError(f"{where}, of '{message['role']}', has no \"content\"")
    if content is not None and not isinstance(content, str):
        raise InputError(f"{where}: \"content\" must be a string or a list of {{\"type\": \"text\", \"text\": ...}}, "
                         f"not {shown(content)}")
    return {**message, "content": content}


def check_weight(message, where):
    """Refuses keys of other tools that exclude an answer or weaken it, as it would be learned like all others."""
    weight = message.get("weight")
    if weight is not None and (isinstance(weight, str) or weight not in (0, 1)):
        raise InputError(f"{where}: \"weight\" is {shown(weight)}; allowed are 0 (not learned) and 1")
    for key in SHARES:
        if message.get(key) is not None and (isinstance(message[key], str) or message[key] != 1):
            raise InputError(f"{where}: \"{key}\" is {shown(message[key])}, and this tool reads only "
                             "\"weight\": write \"weight\": 0 if the message is not learned, or remove the key")


def part_of(part, where):
    """Returns the text of a part of a message's content."""
    if isinstance(part, dict) and part.get("type") in TEXT_PARTS and isinstance(part.get("text"), str):
        return part["text"]
    raise InputError(f"{where}: the model learns from text alone, and a part of the content is "
                     f"{shown(part)}; remove the message or the part")
