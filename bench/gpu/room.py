"""What an engine under check may use."""

from dataclasses import dataclass

PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class Room:
    """Pages (the scratch page on top), host pages, what a step may hold, and how long a
    request may become (tokens)."""

    pages: int
    host_pages: int
    rows: int
    step_tokens: int
    context_tokens: int = 1024
