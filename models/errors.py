"""What goes wrong with a model's files, in one line for the person who named them."""


class ModelError(Exception):
    """A model cannot be found, read or served. The message is one line and complete."""
