"""What is wrong with an input."""


class InputError(Exception):
    """Its text is a message for the user: file, line, what is wrong and what is allowed."""
