"""What the device's memory and the bus can do: the ceilings that others are held against."""

import random
from collections.abc import Callable
from functools import partial

import torch

from bench.gpu.findings import Findings, Gate
from bench.gpu.place import Place
from bench.gpu.timing import device_s, host_s
from memory.attention.interface import AttentionBackend

CEILING_BYTES = 2**31
HOST_TO_DEVICE = Gate(20.0, least=True)  # GB/s: what PCIe 4 with 16 lanes gives at least
MOST_PAGES = 512
MOST_BYTES = 2**30


def check(place: Place, findings: Findings) -> None:
    findings.figure("device copy, read + written", ceiling_gb_per_s(place), "GB/s")
    for heads, layers, name in (((9, 3, 64), 30, "default model"), ((32, 8, 128), 32, "8B")):
        _pages(place, findings, heads, layers, name)


def ceiling_gb_per_s(place: Place) -> float:
    """Bytes read and written by a copy inside the device, per second / 1e9."""
    source = torch.zeros(CEILING_BYTES, dtype=torch.uint8, device=place.device)
    target = torch.empty_like(source)
    return 2 * CEILING_BYTES / device_s(lambda: target.copy_(source), rounds=10) / 1e9


def _pages(
    place: Place, findings: Findings, heads: tuple[int, int, int], layers: int, name: str
) -> None:
    """One copy a page, where they are in no order, and one for all in a row."""
    spec = place.spec(*heads, num_layers=layers)
    pages = min(MOST_PAGES, MOST_BYTES // spec.page_bytes)
    backend = place.attention(spec)
    backend.alloc_pool(pages + 1)
    backend.alloc_host(pages)
    for order, hosts in (
        ("page by page", random.Random(0).sample(range(pages), pages)),
        ("in a row", list(range(pages))),
    ):
        out = [(1 + i, host) for i, host in enumerate(hosts)]
        back = [(host, device) for device, host in out]
        for way, copy, pairs, gate in (
            ("out", backend.copy_out, out, None),
            ("in", backend.copy_in, back, HOST_TO_DEVICE),
        ):
            seconds = _seconds(place, backend, partial(copy, pairs))
            rate = pages * spec.page_bytes / seconds / 1e9
            findings.figure(f"{name}, pages {way}, {order}", rate, "GB/s", gate)


def _seconds(place: Place, backend: AttentionBackend, copy: Callable[[], object]) -> float:
    """Until the copies are done, from the host's point of view."""

    def done() -> None:
        copy()
        backend.fence()
        place.sync()

    done()
    return host_s(place, done, rounds=5)
