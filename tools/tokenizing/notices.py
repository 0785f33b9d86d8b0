"""Counts what is left out of the files or is interpreted in an unusual way. Each kind is reported once, on stderr, with
its count and the place of its first occurrence."""

from script_errors import say

MOST_KINDS = 50  # so that a file with many different keys does not fill the terminal


class Notices:
    def __init__(self):
        self.kinds = {}  # text -> [count, first place]

    def expect(self, text):
        """Keeps a place for this kind, so that add() counts it however many other kinds there are."""
        self.kinds.setdefault(text, [0, ""])

    def add(self, text, place):
        """`text`: the kind, a sentence with {count} for the number of its occurrences."""
        if text not in self.kinds and len(self.kinds) >= MOST_KINDS:
            text = "{count} more parts of the inputs are of other kinds and were left out"
        count, first = self.of(text)
        self.kinds[text] = [count + 1, first or place]

    def of(self, text):
        """Returns the count of a kind and the place of its first occurrence."""
        return self.kinds.get(text, [0, ""])

    def lines(self):
        return [f"{text.replace('{count}', str(count))}; the first is {place}"
                for text, (count, place) in self.kinds.items() if count]

    def report(self):
        for line in self.lines():
            say("tokenize.py", "notice", line)
