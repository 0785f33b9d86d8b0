"""Writes conversations with a chat template, and finds the assistant's parts in them: its texts, and the token that
ends each of its turns."""

import dataclasses
import os.path
import re

from script_errors import InputError

from .encoding import Piece
from .sources import checked_text

GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
UNUSED = "ebbanswer"  # a word that no template contains
END_OF_THOUGHTS = "</think>"


def is_learned(message):
    """In exports, the weight 0 excludes an answer."""
    return message["role"] == "assistant" and message.get("weight") != 0


def content_of(message):
    return message["content"] or ""


def names_of_calls(message, where):
    """Returns the names of the tools that a message calls."""
    calls = message.get("tool_calls") or []
    try:
        return [call.get("function", call)["name"] for call in calls]
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(f"{where}: \"tool_calls\" must be a list of "
                         "{\"function\": {\"name\", \"arguments\"}}") from error


class ChatTemplate:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        special = sorted((str(token) for token in tokenizer.all_special_tokens), key=len, reverse=True)
        special += [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
        self.special = re.compile("|".join(map(re.escape, special)) or r"(?!)")

    def piece_of(self, conversation):
        if self.tokenizer.chat_template is None:
            raise InputError(f"{conversation.where}: \"messages\" need a chat template, and the tokenizer has none; "
                             "give one with --chat-template FILE")
        conversation, text = self.with_calls(conversation)
        if GENERATION.search(self.template(conversation)):
            return self.marked(conversation)
        spans = [self.span(conversation, i, text)
                 for i, message in enumerate(conversation.messages) if is_learned(message)]
        return Piece(conversation.where, text, 0, len(text), True, True, learned=spans, is_conversation=True)

    def template(self, conversation):
        try:
            return self.tokenizer.get_chat_template(tools=conversation.tools)
        except ValueError as error:
            raise InputError(f"{conversation.where}: {error}; give one with --chat-template FILE") from error

    def with_calls(self, conversation):
        """Returns the conversation and its text. Messages that call tools may have null as content: most templates need
        an empty text instead, and some need null."""
        messages = conversation.messages
        filled = [{**message, "content": content_of(message)} for message in messages]
        calls = [name for message in messages for name in names_of_calls(message, conversation.where)]
        for candidate in [filled] if filled == messages else [filled, messages]:
            text = self.render(dataclasses.replace(conversation, messages=candidate), candidate)
            if all(name in text for name in calls):
                return dataclasses.replace(conversation, messages=candidate), text
        raise InputError(f"{conversation.where}: the chat template does not write the \"tool_calls\"; give a template "
                         "for tools with --chat-template FILE, or remove the conversation")

    def marked(self, conversation):
        """The template itself marks the assistant's parts."""
        if any("weight" in message for message in conversation.messages):
            raise InputError(f"{conversation.where}: \"weight\" of messages is not possible with a template that marks "
                             "the answers by {% generation %}; remove it, or give another template by --chat-template")
        both = self.apply(conversation, conversation.messages, tokenize=True, return_dict=True,
                          return_assistant_tokens_mask=True)
        encoded = both["input_ids"], [bool(mask) for mask in both["assistant_masks"]]
        return Piece(conversation.where, "", 0, 0, True, True, is_conversation=True, encoded=encoded)

    def render(self, conversation, messages, prompt=False):
        return checked_text(self.apply(conversation, messages, tokenize=False, add_generation_prompt=prompt),
                            conversation.where)

    def apply(self, conversation, messages, **arguments):
        try:
            return self.tokenizer.apply_chat_template(messages, tools=conversation.tools, **arguments)
        except Exception as error:  # templates can raise any error
            roles = ", ".join(message["role"] for message in messages[:8])
            raise InputError(f"{conversation.where}: the chat template refuses the first {len(messages)} messages "
                             f"({roles}): {error}") from error

    def span(self, conversation, i, text):
        """Returns the span of the assistant's message i in the whole text. It begins after the generation prompt."""
        messages = conversation.messages
        prompt = self.text_before(conversation, i, text)
        if not text.startswith(prompt):
            raise InputError(f"{conversation.where}: the chat template writes the messages before message {i} "
                             f"differently if message {i} follows, so the assistant's part cannot be found; give a "
                             "template with {% generation %} by --chat-template")
        start = len(prompt)
        until = self.render(conversation, messages[:i + 1])
        if not text.startswith(until):
            return start, self.end_of_content(conversation, i, text, start)
        if content_of(messages[i]).strip() and not self.special.sub("", text[start:len(until)]).strip():
            raise InputError(f"{conversation.where}: the chat template does not write the text of message {i}; give "
                             "another one with --chat-template FILE")
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

    def end_of_content(self, conversation, i, text, start):
        """For templates that write an answer differently if other messages follow, for example without its thoughts."""
        wanted = content_of(conversation.messages[i]).rpartition(END_OF_THOUGHTS)[2].strip()
        at = text.find(wanted, start)
        if at < 0:
            raise InputError(f"{conversation.where}: the chat template changes the text of message {i}, so the "
                             "assistant's part cannot be found; give a template with {% generation %} by "
                             "--chat-template")
        end = at + len(wanted)
        turn = self.special.match(text, end + len(text[end:]) - len(text[end:].lstrip()))
        return turn.end() if turn else end
