"""Errors for people."""


def one_line(error: BaseException) -> str:
    """What went wrong in one line. Python's own errors say too little without their name."""
    lines = str(error).strip().splitlines()
    if isinstance(error, MemoryError):
        return lines[0] if lines else "not enough memory for the model and its pages"
    name = type(error).__name__
    if not lines:
        return name
    return f"{name}: {lines[0]}" if type(error).__module__ == "builtins" else lines[0]
