"""Text to tokens and back, for a model that generates: the prompt, and the text of each new token."""

from script_errors import InputError

from .tokenizer import load_tokenizer

UNFINISHED = "\ufffd"  # a character of which the last tokens have only a part
ANSWER = "ebbanswer"  # a word that no template contains


class Speaking:
    def __init__(self, name, flag, template=None):
        self.flag, self.name = flag, name
        self.tokenizer = load_tokenizer(name, flag, template)
        self.begin()

    def begin(self):
        self.ids, self.shown, self.read = [], 0, 0

    def about(self):
        return {"vocabulary": len(self.tokenizer), "ends": self.end_tokens()}

    def end_tokens(self):
        """The end of text, and the token with which the chat template ends an answer."""
        ends = [self.tokenizer.id_of("eos_token"), self.end_of_answer()]
        return [token for token in dict.fromkeys(ends) if token is not None]

    def end_of_answer(self):
        if not self.tokenizer.templates:
            return None
        messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": ANSWER}]
        try:
            behind = self.tokenizer.render(messages).rpartition(ANSWER)[2].strip()
        except Exception:  # templates can raise any error; chat() reports it
            return None
        ends = [text for text in self.tokenizer.special_texts() if behind.startswith(text)]
        return self.tokenizer.token(max(ends, key=len)) if ends else None

    def encode(self, text):
        return self.tokenizer.encode(text)

    def chat(self, messages):
        """Returns the tokens of a conversation and of the begin of the next answer."""
        if not self.tokenizer.templates:
            raise InputError(f"--chat: the tokenizer of '{self.name}' has no chat template; give one with "
                             "--chat-template FILE, or continue a text with --prompt")
        try:
            text = self.tokenizer.render(messages, prompt=True)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"--chat: the model's chat template cannot be used: {error}; without --chat, --prompt is "
                             "continued as it is") from error
        return self.tokenizer.encode(text, special=False)

    def add(self, token):
        """Returns the text that is certain after this token. A token may be a part of a character, and may look
        different at the begin of a text; so the last tokens are decoded together with those before."""
        self.ids.append(token)
        before = self.tokenizer.decode(self.ids[self.shown:self.read])
        text = self.tokenizer.decode(self.ids[self.shown:])
        if text.endswith(UNFINISHED) or len(text) <= len(before):
            return ""
        self.shown, self.read = self.read, len(self.ids)
        return text[len(before):]

    def end(self):
        """Returns the text that was not certain, and begins a new text."""
        before = self.tokenizer.decode(self.ids[self.shown:self.read])
        text = self.tokenizer.decode(self.ids[self.shown:])[len(before):]
        self.begin()
        return text
