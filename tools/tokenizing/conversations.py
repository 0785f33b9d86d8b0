"""Writes conversations with a chat template, and finds the assistant's parts in them: its texts, and the token that
ends each of its turns."""

import re

from .encoding import Piece
from .errors import InputError

GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")


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
        if GENERATION.search(self.tokenizer.get_chat_template(tools=conversation.tools)):
            return self.marked(conversation)
        text = self.render(conversation, conversation.messages)
        spans = [self.span(conversation, i, text)
                 for i, message in enumerate(conversation.messages) if message["role"] == "assistant"]
        return Piece(conversation.where, text, 0, len(text), True, True, learned=spans, is_conversation=True)

    def marked(self, conversation):
        """The template itself marks the assistant's parts."""
        both = self.apply(conversation, conversation.messages, tokenize=True, return_dict=True,
                          return_assistant_tokens_mask=True)
        encoded = both["input_ids"], [bool(mask) for mask in both["assistant_masks"]]
        return Piece(conversation.where, "", 0, 0, True, True, is_conversation=True, encoded=encoded)

    def render(self, conversation, messages, prompt=False):
        return self.apply(conversation, messages, tokenize=False, add_generation_prompt=prompt)

    def apply(self, conversation, messages, **arguments):
        try:
            return self.tokenizer.apply_chat_template(messages, tools=conversation.tools, **arguments)
        except Exception as error:  # templates can raise any error
            raise InputError(f"{conversation.where}: the chat template refuses the first {len(messages)} messages: "
                             f"{error}") from error

    def span(self, conversation, i, text):
        """Returns the span of the assistant's message i in the whole text. It begins after the generation prompt."""
        messages = conversation.messages
        prompt = self.render(conversation, messages[:i], prompt=True)
        if not text.startswith(prompt):
            raise InputError(f"{conversation.where}: the chat template writes the messages before message {i} "
                             "differently if message {i} follows, so the assistant's part cannot be found; give a template "
                             "with {% generation %} by --chat-template")
        start = len(prompt)
        until = self.render(conversation, messages[:i + 1])
        if text.startswith(until):
            return start, self.end_of_turn(text, start, len(until))
        return start, self.end_of_content(conversation, i, text, start)

    def end_of_turn(self, text, start, end):
        """Returns the end of the token that ends the turn, or if there is none, the end of the text without blanks."""
        for match in self.special.finditer(text, start, end):
            if not text[match.end():end].strip():
                return match.end()
        return start + len(text[start:end].rstrip())

    def end_of_content(self, conversation, i, text, start):
        """For templates that write an answer differently if other messages follow, for example without its thoughts."""
        content = conversation.messages[i].get("content")
        wanted = content.strip() if isinstance(content, str) else ""
        at = text.find(wanted, start) if wanted else -1
        if at < 0:
            raise InputError(f"{conversation.where}: the chat template changes the text of message {i}, so the "
                             "assistant's part cannot be found; give a template with {% generation %} by "
                             "--chat-template")
        end = at + len(wanted)
        turn = self.special.match(text, end + len(text[end:]) - len(text[end:].lstrip()))
        return turn.end() if turn else end
