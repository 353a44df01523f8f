"""Once more after memory ran out."""

from collections.abc import Callable
from typing import TypeVar

import torch

from models.device_faults import first_line

T = TypeVar("T")


def second_try(work: Callable[[], T]) -> tuple[T, str | None]:
    """What `work` returns, and why the first try failed, if it did. When it runs out of a
    device's memory, what torch has kept of earlier work is given back, and it is called again;
    what it raises then is raised. So it must do the same when part of it was done already."""
    try:
        return work(), None
    except torch.OutOfMemoryError as error:
        why = first_line(error)
    # Not within `except`: there the error keeps the tensors of its frames.
    torch.cuda.empty_cache()
    return work(), why
