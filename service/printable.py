"""Other people's text on a terminal."""


def printable(text: str) -> str:
    """The text with every character escaped that a terminal would obey, or show as nothing: a
    caller may name a request so that it clears the operator's screen."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
