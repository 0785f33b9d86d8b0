"""Reads the rows of JSON lines, or of one JSON list, without loading the whole file."""

import json
import re

from script_errors import InputError

BLANKS = re.compile(r"[ \t\r\n]*")
LOOK_AHEAD = 16  # characters: a number, a literal or an escape that the end of a block cuts is shorter


def object_of(pairs):
    """Refuses a key that occurs twice, as only one of its values would be read."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key \"{next(key for key in keys if keys.count(key) > 1)}\" occurs twice in an object")
    return found


def not_json(where, problem):
    return InputError(f"{where}: not JSON: {problem}; allowed are JSON lines (an object in each line) or one list of "
                      "objects")


def parsed(text, where):
    try:
        return json.loads(text, object_pairs_hook=object_of)
    except (ValueError, RecursionError) as error:
        problem = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        raise not_json(where, problem) from error


def rows_of_lines(file, path):
    """Yields (place, row) for each line of a binary file."""
    for number, line in enumerate(file, 1):
        if line.strip():
            yield f"{path}:{number}", parsed(line.rstrip(), f"{path}:{number}")


def rows_of_list(blocks, path):
    """Yields (place, row) for each item of a list. `blocks`: the text of the list, in parts."""
    text = JsonText(blocks, path)
    text.take("[")
    if text.next() == "]":
        text.take("]")
    else:
        while True:
            text.next()
            place = f"{path}:{text.line}"
            yield place, text.value()
            if text.take(",]") == "]":
                break
    if text.next():
        text.refuse("there is text after the list")


class JsonText:
    """A JSON text that is read in blocks. `line` is the number of the line at the position `at`."""

    def __init__(self, blocks, path):
        self.blocks, self.path = iter(blocks), path
        self.text, self.at, self.line = "", 0, 1
        self.decode = json.JSONDecoder(object_pairs_hook=object_of).raw_decode

    def refuse(self, problem):
        raise not_json(f"{self.path}:{self.line}", problem)

    def read(self):
        """Forgets the text before the position, and reads about as much as there is. Returns False at the end."""
        parts = [self.text[self.at:]]
        self.at, wanted = 0, len(parts[0])
        num_read = 0
        for block in self.blocks:
            parts.append(block)
            num_read += len(block)
            if num_read >= wanted:
                break
        self.text = "".join(parts)
        return num_read > 0

    def move_to(self, at):
        self.line += self.text.count("\n", self.at, at)
        self.at = at

    def next(self):
        """Skips blanks, and returns the next character, or "" at the end."""
        while True:
            self.move_to(BLANKS.match(self.text, self.at).end())
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.read():
                return ""

    def take(self, allowed):
        """Skips blanks and one of the allowed characters, and returns the character."""
        found = self.next()
        if not found or found not in allowed:
            names = " or ".join(f"'{character}'" for character in allowed)
            self.refuse(f"expected {names}, found " + (f"'{found}'" if found else "the end of the file"))
        self.at += 1
        return found

    def value(self):
        """Returns the value at the position. The text of the value may continue in the next blocks."""
        while True:
            try:
                value, end = self.decode(self.text, self.at)
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated string") or error.pos > len(self.text) - LOOK_AHEAD
                if not (is_cut and self.read()):
                    self.move_to(min(error.pos, len(self.text)))
                    self.refuse(error.msg)
            except (ValueError, RecursionError) as error:
                self.refuse(error)
            else:
                self.move_to(end)
                return value
