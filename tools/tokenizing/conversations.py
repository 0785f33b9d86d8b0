"""Writes conversations with a chat template, and finds the assistant's parts in them: its texts, and the token that
ends each of its turns."""

import contextlib
import dataclasses
import itertools
import os.path
import re

from script_errors import InputError

from .encoding import Piece
from .sources import checked_text
from .written import TEXTS, UNUSED, Comparison, changed_calls, content_of, functions_of

GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
LONG_CALL = 20  # characters that show that a text is the end of a call
END_OF_THOUGHTS = "</think>"


def roles_of(messages):
    """Returns the first roles, for messages to the user."""
    return ", ".join(message["role"] for message in messages[:8])


def is_learned(message):
    """In exports, the weight 0 excludes an answer."""
    return message["role"] == "assistant" and message.get("weight") != 0


def same_end(a, b):
    """Returns the longest text with which both texts end."""
    return os.path.commonprefix([a[::-1], b[::-1]])[::-1]


def said_by(message):
    """Returns the text of an answer after its thoughts, which templates often leave out."""
    return content_of(message).rpartition(END_OF_THOUGHTS)[2].strip()


def is_in(learned, message, where):
    """Whether the learned text contains an answer with its calls."""
    names = [function["name"] for _, function in functions_of(message, where)]
    return all(part in learned for part in (said_by(message), *names))


def lost_text(where, i):
    return InputError(f"{where}: the chat template does not write the text of message {i}; give another one with "
                      "--chat-template FILE")


def not_found(where, what):
    """`what`: what the chat template does."""
    return InputError(f"{where}: the chat template {what}, so the assistant's part cannot be found; give a template "
                      "with {% generation %} by --chat-template")


@contextlib.contextmanager
def refusing(conversation, messages):
    """Templates can raise any error."""
    try:
        yield
    except InputError:  # a package is missing
        raise
    except Exception as error:
        raise InputError(f"{conversation.where}: the chat template refuses the first {len(messages)} messages "
                         f"({roles_of(messages)}): {error}") from error


def marks_of(encoding, spans):
    """Returns for each token whether it is within a span of characters."""
    marks = [False] * len(encoding.ids)
    for start, end in spans:
        first, last = encoding.char_to_token(start), encoding.char_to_token(end - 1)
        if first is not None:
            for at in range(first, len(marks) if last is None else last + 1):
                marks[at] = True
    return marks


class ChatTemplate:
    def __init__(self, tokenizer, notices):
        self.tokenizer = tokenizer
        self.notices = notices
        special = sorted(tokenizer.special_texts(), key=len, reverse=True)
        self.special = re.compile("|".join(map(re.escape, special)) or r"(?!)")

    def piece_of(self, conversation):
        if not self.tokenizer.templates:
            raise InputError(f"{conversation.where}: \"messages\" need a chat template, and the tokenizer has none; "
                             "give one with --chat-template FILE, or train a preset with --tokenizer train:8192 on "
                             "conversations, which makes one")
        conversation, text = self.with_calls(conversation)
        self.check_written(conversation, text)
        if GENERATION.search(self.template(conversation)):
            return self.marked(conversation, text)
        spans = [self.span(conversation, i, text)
                 for i, message in enumerate(conversation.messages) if is_learned(message)]
        return Piece(conversation.where, text, 0, len(text), True, True, learned=spans, is_conversation=True)

    def template(self, conversation):
        try:
            return self.tokenizer.template(conversation.tools)
        except ValueError as error:
            raise InputError(f"{conversation.where}: {error}; give one with --chat-template FILE") from error

    def with_calls(self, conversation):
        """Returns the conversation and its text. Messages that call tools may have null as content: most templates need
        an empty text instead, and some need null."""
        messages = conversation.messages
        for message in messages:
            functions_of(message, conversation.where)  # checks them
        filled = [{**message, "content": content_of(message)} for message in messages]
        for candidate in [filled] if filled == messages else [filled, messages]:
            changed = dataclasses.replace(conversation, messages=candidate)
            text = self.render(changed, candidate)
            lost = Comparison(self.render, changed, text).lost_call()
            if lost is None:
                return changed, text
        raise InputError(f"{conversation.where}: the chat template does not write the \"{lost[1]}\" of message "
                         f"{lost[0]} with its name and arguments; give a template for tools with --chat-template FILE, "
                         "write calls as \"tool_calls\", or remove the conversation")

    def check_written(self, conversation, text):
        """Counts what the template leaves out. An answer that it leaves out is refused: it would be learned as an empty
        answer."""
        messages, where = conversation.messages, conversation.where
        comparison = Comparison(self.render, conversation, text)
        if conversation.tools and self.is_same_without_tools(conversation, text):
            self.notices.add("left out \"tools\" of {count} conversations, which the chat template does not write",
                             where)
        lost, changed = comparison.lost_and_changed_contents()
        for i in lost:
            if is_learned(messages[i]) and not functions_of(messages[i], where):
                raise lost_text(where, i)
            self.notices.add(f"left out the text of {{count}} messages of the role '{messages[i]['role']}', which the "
                             "chat template does not write", f"{where}: message {i}")
        for i in filter(lambda i: is_learned(messages[i]), changed):
            self.notices.add("the chat template shortens or changes the text of {count} answers",
                             f"{where}: message {i}")
        for i, key in comparison.lost_keys():
            if key in TEXTS and is_learned(messages[i]) and not (
                    content_of(messages[i]).strip() or functions_of(messages[i], where)):
                raise InputError(f"{where}: the chat template does not write the \"{key}\" of message {i}, which has "
                                 "no other text; give another template with --chat-template FILE, or remove it")
            self.notices.add(f"left out \"{key}\" of {{count}} messages, which the chat template does not write",
                             f"{where}: message {i}")

    def is_same_without_tools(self, conversation, text):
        without_tools = dataclasses.replace(conversation, tools=None)
        return Comparison(self.render, without_tools, text).is_same(conversation.messages)

    def marked(self, conversation, text):
        """The template itself marks the assistant's parts."""
        if any("weight" in message for message in conversation.messages):
            raise InputError(f"{conversation.where}: \"weight\" of messages is not possible with a template that marks "
                             "the answers by {% generation %}; remove it, or give another template by --chat-template")
        with refusing(conversation, conversation.messages):
            text, spans = self.tokenizer.render_marked(conversation.messages, conversation.tools)
        encoding, = self.tokenizer.encode_all([checked_text(text, conversation.where)])
        masks = marks_of(encoding, spans)
        self.check_marks(conversation, text, encoding.offsets, masks)
        return Piece(conversation.where, "", 0, 0, True, True, is_conversation=True, encoded=(encoding.ids, masks))

    def check_marks(self, conversation, text, offsets, masks):
        """Refuses a template that marks an answer without its text, and counts answers that it does not mark."""
        runs = [list(run) for is_marked, run in itertools.groupby(zip(offsets, masks), key=lambda pair: pair[1])
                if is_marked]
        learned = "".join(text[run[0][0][0]:run[-1][0][1]] for run in runs)
        learned = self.special.sub("", learned)
        answers = [i for i, message in enumerate(conversation.messages) if is_learned(message)]
        missing = [i for i in answers if not is_in(learned, conversation.messages[i], conversation.where)]
        if missing and len(runs) > len(answers) - len(missing):
            raise InputError(f"{conversation.where}: the chat template writes the answer in message {missing[0]} "
                             "outside of {% generation %}, so it would not be learned; give another template with "
                             "--chat-template FILE")
        for i in missing:
            self.notices.add("{count} answers are not learned, because the chat template does not mark them by "
                             "{% generation %}", f"{conversation.where}: message {i}")

    def render(self, conversation, messages, prompt=False):
        with refusing(conversation, messages):
            text = self.tokenizer.render(messages, conversation.tools, prompt)
        return checked_text(text, conversation.where)

    def span(self, conversation, i, text):
        """Returns the span of the assistant's message i in the whole text. It begins after the generation prompt."""
        messages = conversation.messages
        prompt = self.text_before(conversation, i, text)
        if not text.startswith(prompt):
            raise not_found(conversation.where, f"writes the messages before message {i} differently if message {i} "
                            "follows")
        start = len(prompt)
        until = self.render(conversation, messages[:i + 1])
        if not text.startswith(until):
            return start, self.end_of_content(conversation, i, text, start)
        if content_of(messages[i]).strip() and not self.special.sub("", text[start:len(until)]).strip():
            raise lost_text(conversation.where, i)
        return start, self.end_of_turn(text, start, len(until))

    def text_before(self, conversation, i, text):
        """Returns the text before the answer i, with the generation prompt. Most templates refuse a prompt without any
        message. For the first message, it is therefore the text before a word that takes the place of the answer."""
        messages = conversation.messages
        if i > 0:
            return self.render(conversation, messages[:i], prompt=True)
        other = self.render(conversation, [{**messages[0], "content": UNUSED}, *messages[1:]])
        return os.path.commonprefix([other.partition(UNUSED)[0], text])

    def end_of_turn(self, text, start, end):
        """Returns the end of the token that ends the turn, or if there is none, the end of the text without blanks."""
        for match in self.special.finditer(text, start, end):
            if not text[match.end():end].strip():
                return match.end()
        return start + len(text[start:end].rstrip())

    def end_of_calls(self, conversation, i, text):
        """Finds what follows the last call of message i when the message is the last one, and finds the same after the
        call in the whole text. A call ends where the text with another call is the same again."""
        before, after = conversation.messages[:i], conversation.messages[i + 1:]
        changed = [message for _, message in changed_calls(conversation.messages[i], conversation.where)][-1]
        until = self.render(conversation, conversation.messages[:i + 1])
        closing = same_end(until, self.render(conversation, [*before, changed]))
        rest = same_end(text, self.render(conversation, [*before, changed, *after]))
        turn = closing[:self.end_of_turn(closing, 0, len(closing))]
        call = until[:len(until) - len(closing)][-LONG_CALL:]
        end = len(text) - len(rest)
        if rest.startswith(turn) and text[:end].endswith(call):
            return end + len(turn)
        raise not_found(conversation.where, f"writes the calls of tools in message {i} differently if other messages "
                        "follow")

    def end_of_content(self, conversation, i, text, start):
        """For templates that write an answer differently if other messages follow, for example without its thoughts."""
        message = conversation.messages[i]
        if functions_of(message, conversation.where):
            return self.end_of_calls(conversation, i, text)
        wanted = said_by(message)
        at = text.find(wanted, start)
        if at < 0 or (not wanted and content_of(message).strip()):
            raise not_found(conversation.where, f"changes the text of message {i}")
        end = at + len(wanted)
        turn = self.special.match(text, end + len(text[end:]) - len(text[end:].lstrip()))
        return turn.end() if turn else end
