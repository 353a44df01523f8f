"""What goes wrong with a model, beside its rows."""


class ModelError(Exception):
    """A model cannot be found, read or served. The message is one line and complete."""


class DeviceLost(Exception):
    """The device that computes failed or is out of memory: whatever it holds is lost, and
    the process has to end."""
