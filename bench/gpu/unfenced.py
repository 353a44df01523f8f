"""What plans in a row come to without the fence between them: told, never judged, since this
is not what is served. Only where it harms does the row of `plans` prove that the fence helps.

In a process of its own, which a fault of the device may end. Steps are of as many decode rows,
so that a block which gets another step's plan still finds the row that it names.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from unittest.mock import patch

import torch

from bench.gpu.findings import Findings
from bench.gpu.place import Place
from bench.gpu.plans import PLANS, ROWS, Row, decode_rows
from memory.attention.flashinfer_device import Past, device_for


def check(place: Place, findings: Findings) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        try:
            found = process.submit(wrong_outputs, place).result()
        except BrokenProcessPool as error:
            found = str(error)
    if isinstance(found, str):
        findings.note(f"without a fence: {found}")
    else:
        findings.figure(f"wrong without a fence, of {PLANS} outputs", found)


def wrong_outputs(place: Place) -> int | str:
    """How many; or what was raised, in a line."""
    try:
        with _without_fences(place):
            row = Row(place, [decode_rows(i, ROWS) for i in range(PLANS)])
        alone, outs = row.one_by_one(), row.at_once()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return sum(not torch.equal(*pair) for pair in zip(outs, alone, strict=True))


@contextmanager
def _without_fences(place: Place) -> Iterator[None]:
    """For the backends that are made in it."""
    kind = type(device_for(place.device))
    with patch.object(kind, "event", lambda device: Past()):
        yield
