"""What plans in a row come to without the fence between them: told, never judged, since this
is not what is served. Only where it harms does the row of `plans` prove that the fence helps.

In a process of its own, which a fault of the device may end, or a kernel that never does. Steps
are of as many decode rows, so that a block which gets another step's plan still finds the row
that it names.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from unittest.mock import patch

import torch

from bench.gpu.findings import Findings
from bench.gpu.place import Place
from bench.gpu.plans import PLANS, ROWS, Row, decode_rows
from memory.attention.flashinfer_device import Past, device_for

SPAWN = get_context("spawn")
WAIT_S = 60.0


def check(place: Place, findings: Findings) -> None:
    found = _of_a_process(place)
    if isinstance(found, str):
        findings.note(f"without a fence: {found}")
    else:
        findings.figure(f"wrong without a fence, of {PLANS} outputs", found)


def _of_a_process(place: Place) -> int | str:
    """What `wrong_outputs` says in one of its own, or how that ended instead."""
    ear, mouth = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_say, args=(place, mouth), daemon=True)
    process.start()
    mouth.close()
    try:
        found: int | str = ear.recv() if ear.poll(WAIT_S) else f"no end within {WAIT_S:.0f} s"
    except EOFError:
        found = "the process died"
    process.kill()
    process.join()
    return found


def _say(place: Place, mouth: Connection) -> None:
    mouth.send(wrong_outputs(place))


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
