"""The error of an invalid input."""


class InputError(Exception):
    """The text is a message for the user, with file, line, problem and allowed values."""
