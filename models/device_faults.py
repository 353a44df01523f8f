"""Tells a step that failed from a device that did."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from models.errors import DeviceLost


@contextmanager
def device_faults(device: torch.device) -> Iterator[None]:
    """Raises DeviceLost for what leaves `device` without a defined state, or memory; anything
    else is raised as it is.

    A fault of a GPU stays: all that it is asked for afterwards fails too. Who notices first
    may be a library with an error of its own kind, so after any the device is asked."""
    try:
        yield
    except DeviceLost:
        raise
    except (torch.AcceleratorError, torch.OutOfMemoryError) as error:
        raise _lost(error) from error
    except Exception as error:
        fault = fault_of(device)
        if fault is None:
            raise
        raise _lost(fault) from error


def fault_of(device: torch.device) -> Exception | None:
    """Why a GPU cannot be used any more, if so. Waits for what it was given."""
    if device.type != "cuda":
        return None
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        return error
    return None


def first_line(error: Exception) -> str:
    """Of what it says, or its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _lost(error: Exception) -> DeviceLost:
    return DeviceLost(f"{type(error).__name__}: {first_line(error)}")
