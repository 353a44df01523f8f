"""What a step's plan costs the host, eager and for a graph: nothing else of a decode step
grows in Python with the batch."""

from bench.gpu.findings import Findings, Gate
from bench.gpu.place import Place
from bench.gpu.steps import RowShape, random_tables, step_meta
from bench.gpu.timing import host_s
from memory.attention.interface import AttentionBackend

MOST = Gate(150.0, least=False)
POINTS = ((1, 256), (32, 256), (256, 256), (256, 4096))
MIXED = [RowShape(1024)] * 32 + [RowShape(512, 256)]
ROUNDS = 50


def check(place: Place, findings: Findings) -> None:
    spec = place.spec(9, 3, 64)
    num_pages = max(rows * length for rows, length in POINTS) // spec.page_size + 1
    backend = place.attention(spec, max(rows for rows, _ in POINTS), 4096 // spec.page_size)
    backend.alloc_pool(num_pages)
    for rows, length in POINTS:
        shapes = [RowShape(length)] * rows
        for way, graph_rows in (("eager", None), ("graph", rows)):
            seconds = _plan_s(place, backend, shapes, num_pages, graph_rows)
            name = f"{way}, {rows} rows of {length}"
            findings.figure(name, seconds * 1e6, "us", MOST)
    seconds = _plan_s(place, backend, MIXED, num_pages, None)
    findings.figure("eager, 32 rows of 1024 and a chunk", seconds * 1e6, "us", MOST)


def _plan_s(
    place: Place,
    backend: AttentionBackend,
    shapes: list[RowShape],
    num_pages: int,
    graph_rows: int | None,
) -> float:
    size = backend.spec.page_size
    tables = random_tables(shapes, size, num_pages, seed=2)
    meta = step_meta(shapes, tables, size, graph_rows)
    backend.plan(meta)
    return host_s(place, lambda: backend.plan(meta), ROUNDS)
