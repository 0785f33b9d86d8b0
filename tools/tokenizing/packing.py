"""Documents into rows of T tokens, none of them across a row's end: where one does not fit, the row is filled and the
next begins. Where it is longer than a row, it is split, cut short or dropped."""

import numpy

from .token_files import IGNORED


class Packer:
    """Takes the place of the files that it writes to."""

    def __init__(self, files, length, filler):
        self.files, self.length, self.filler = files, length, filler
        self.ids, self.targets, self.overflowed = [], [], False
        self.num_waiting = self.num_too_long = self.num_filled = 0
        self.too_long = "split"

    def begin(self, too_long):
        """`too_long`: what to do where the document is: split, truncate or drop."""
        self.too_long, self.overflowed = too_long, False

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
        """Whether the rest of the document is wanted."""
        self.num_too_long += not self.overflowed
        self.overflowed = True
        if self.too_long != "split":
            return False
        self.write()
        return True

    def end(self):
        if self.overflowed and self.too_long == "drop":
            self.forget()
        else:
            self.write()

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
        """A document of its own, of which nothing is learned."""
        if count == 0:
            return
        self.num_filled += count
        self.files.begin()
        self.files.add(numpy.full(count, self.filler), numpy.full(count, IGNORED))
        self.files.end()

    def finish(self):
        """The last row, and the one token that ebb train's last sample wants behind it."""
        self.fill(-self.files.num_tokens % self.length)
        self.fill(1)
