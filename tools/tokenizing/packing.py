"""Packs documents into rows of T tokens. No document crosses the end of a row: if it does not fit, the row is filled up
and the next row begins. A document that is longer than a row is split, truncated or dropped."""

import numpy

from .token_files import IGNORED


class Packer:
    """Has the interface of TokenFiles, and writes packed rows to `files`."""

    def __init__(self, files, length, filler):
        self.files, self.length, self.filler = files, length, filler
        self.ids, self.targets, self.overflowed = [], [], False
        self.num_waiting = self.num_filled = 0
        self.num_more = 0  # documents of `files` that are filling or further parts of a document
        self.num_too_long = {"split": 0, "truncate": 0, "drop": 0}
        self.too_long, self.lost = "split", None

    def begin(self, too_long, lost=None):
        """`too_long`: what to do if the document is longer than a row: split, truncate or drop. A document that has no
        label in its row after it was truncated is left out, and `lost` is called, if given."""
        self.too_long, self.overflowed, self.lost = too_long, False, lost

    def add(self, ids, targets):
        while len(ids) > 0:
            room = self.length - self.num_waiting
            if room == 0:
                if not self.make_room():
                    return
                continue
            self.ids.append(ids[:room])
            self.targets.append(targets[:room])
            self.num_waiting += len(ids[:room])
            ids, targets = ids[room:], targets[room:]

    def make_room(self):
        """Writes a full row, if the document may be split. Returns False if the rest of the document is not needed."""
        self.num_too_long[self.too_long] += not self.overflowed
        self.overflowed = True
        if self.too_long != "split":
            return False
        self.write()
        self.num_more += 1
        return True

    def end(self):
        if self.overflowed and self.too_long == "drop":
            self.forget()
        elif self.overflowed and self.too_long == "truncate" and self.lost and not self.is_learned():
            self.lost()
            self.forget()
        else:
            self.write()

    def is_learned(self):
        """Whether a row has a label. The first token has no token before it, so it is no label."""
        return bool((numpy.concatenate(self.targets)[1:] != IGNORED).any())

    def write(self):
        if self.num_waiting == 0:
            return
        room = -self.files.num_tokens % self.length
        if self.num_waiting > room > 0:
            self.fill(room)
        self.files.begin()
        self.files.add(numpy.concatenate(self.ids), numpy.concatenate(self.targets))
        self.files.end()
        self.forget()

    def forget(self):
        self.ids, self.targets, self.num_waiting = [], [], 0

    def fill(self, count):
        """Fills up a row with a document without labels."""
        if count == 0:
            return
        self.num_filled += count
        self.num_more += 1
        self.files.begin()
        self.files.add(numpy.full(count, self.filler), numpy.full(count, IGNORED))
        self.files.end()

    def finish(self):
        """Fills up the last row, and adds the one token that `ebb train` needs after the last sample."""
        self.fill(-self.files.num_tokens % self.length)
        self.fill(1)
