"""Finds the parts of a conversation that its chat template does not write. It changes a part, and compares the text of
the template with the text of the whole conversation. A template that refuses the change has read the part."""

from script_errors import InputError

from .sources import SHARES, is_filled

UNUSED = "ebbanswer"  # a word that no template contains
CALLS = ("tool_calls", "function_call")
HANDLED = {"role", "content", "weight", "tool_call_id", *CALLS, *SHARES}  # keys that are checked elsewhere
TEXTS = {"reasoning_content", "reasoning", "thinking", "refusal", "audio", "images"}  # keys that replace a content


def content_of(message):
    return message["content"] or ""


def functions_of(message, where):
    """Returns the names and arguments of the calls in a message: pairs of the key and the function."""
    found = [("tool_calls", call) for call in message.get("tool_calls") or []]
    if message.get("function_call"):
        found.append(("function_call", message["function_call"]))
    try:
        functions = [(key, call.get("function", call)) for key, call in found]
        if all(isinstance(function["name"], str) for _, function in functions):
            return functions
    except (AttributeError, KeyError, TypeError):
        pass
    raise InputError(f"{where}: \"tool_calls\" must be a list of {{\"function\": {{\"name\", \"arguments\"}}}}, and "
                     "\"function_call\" must be {\"name\", \"arguments\"}")


class Comparison:
    """`render(conversation, messages)` returns the text of the template. `text`: that of the conversation."""

    def __init__(self, render, conversation, text):
        self.render, self.conversation, self.text = render, conversation, text
        self.messages = conversation.messages

    def is_same(self, messages):
        try:
            return self.render(self.conversation, messages) == self.text
        except InputError:
            return False

    def is_same_with(self, i, message):
        return self.is_same([*self.messages[:i], message, *self.messages[i + 1:]])

    def lost_call(self):
        """Returns the message and the key of the first call whose name or arguments are not written, or None."""
        for i, message in enumerate(self.messages):
            for key, changed in changed_calls(message, self.conversation.where):
                if self.is_same_with(i, changed):
                    return i, key
        return None

    def lost_and_changed_contents(self):
        """Returns the messages whose content is not written, and those whose content is written differently."""
        marks = {i: f"{UNUSED}{i}x" for i, message in enumerate(self.messages) if content_of(message).strip()}
        try:
            marked = self.render(self.conversation, [{**message, "content": marks.get(i, message["content"])}
                                                     for i, message in enumerate(self.messages)])
        except InputError:
            marked = ""
        lost = [i for i, mark in marks.items()
                if mark not in marked and self.is_same_with(i, {**self.messages[i], "content": UNUSED})]
        return lost, [i for i in marks if i not in lost and content_of(self.messages[i]).strip() not in self.text]

    def lost_keys(self):
        """Yields each message and key that is not written."""
        keys = {key for message in self.messages for key, value in message.items() if is_filled(value)} - HANDLED
        for key in sorted(keys):
            holders = [i for i, message in enumerate(self.messages) if is_filled(message.get(key))]
            none_is_written = self.is_same([without(message, key) for message in self.messages])
            yield from ((i, key) for i in holders
                        if none_is_written or self.is_same_with(i, without(self.messages[i], key)))


def without(message, key):
    return {name: value for name, value in message.items() if name != key}


def changed_calls(message, where):
    """Yields the key, and the message with another name or other arguments in one of its calls."""
    for at, (key, function) in enumerate(functions_of(message, where)):
        for changed in changed_functions(function):
            if key == "function_call":
                yield key, {**message, key: changed}
                continue
            calls = list(message[key])
            calls[at] = {**calls[at], "function": changed} if "function" in calls[at] else changed
            yield key, {**message, key: calls}


def changed_functions(function):
    yield {**function, "name": UNUSED}
    arguments = function.get("arguments")
    if is_filled(arguments) and arguments != "{}":
        other = {UNUSED: UNUSED} if isinstance(arguments, dict) else f'{{"{UNUSED}": "{UNUSED}"}}'
        yield {**function, "arguments": other}
