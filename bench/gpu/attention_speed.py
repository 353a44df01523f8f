"""Decode attention against what the memory can do, and mixed steps.

Keys and values of a step are read once, so a kernel that waits for nothing but memory takes
their bytes over the copy's rate. Small steps cannot: there a launch costs more. Runs over all
layers of a pool, so many that a layer's pages have left the device's cache when it is their
turn again, as in a model; a small step would find all of four layers there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bench.gpu.copy_speed import ceiling_gb_per_s
from bench.gpu.findings import Findings, Gate
from bench.gpu.place import Place
from bench.gpu.steps import RowShape, pages_for, random_tables, step_meta
from bench.gpu.timing import device_s
from memory.attention.interface import AttentionBackend, KVSpec, StepMeta

HEADS = {"default model": (9, 3, 64), "8B": (32, 8, 128)}
POINTS = ((1, 256), (32, 256), (256, 256), (32, 4096), (256, 4096))
WHOLE = (32, 256, 1024)  # layers, rows, context: what a model's step attends to
HALF = Gate(0.5, least=True)
GATED = (256, 4096)
LAYERS = 4
CACHES = 4  # of the device's size: what all layers hold, and no cache keeps
SPARE_BYTES = 2**30
DECODES = [RowShape(1024)] * 32
CHUNK = RowShape(512, 256)


def check(place: Place, findings: Findings) -> None:
    ceiling = ceiling_gb_per_s(place)
    cache_bytes = torch.cuda.get_device_properties(place.device).L2_cache_size
    for name, heads in HEADS.items():
        for point in POINTS:
            if findings.out_of_time(f"{name}, {point}"):
                return
            at = f"{name}, batch {point[0]}, context {point[1]}"
            of_one = _kv_bytes(place.spec(*heads, num_layers=1), *point)
            spec = place.spec(*heads, num_layers=layers_past(cache_bytes, of_one))
            if _kv_bytes(spec, *point) > torch.cuda.mem_get_info()[0] - SPARE_BYTES:
                findings.note(f"{at}: not enough device memory")
                continue
            rate = _decode_gb_per_s(place, spec, *point)
            share, gate = rate / ceiling, HALF if point == GATED else None
            findings.figure(at, rate, "GB/s")
            findings.figure(f"{at}, of the ceiling", share, gate=gate)
            place.clear()
        _mixed(place, findings, place.spec(*heads, num_layers=LAYERS), name)
        _whole(place, findings, heads, name)


def layers_past(cache_bytes: int, layer_bytes: int) -> int:
    """So many layers of `layer_bytes` that no cache of `cache_bytes` holds most of them."""
    return max(LAYERS, -(-CACHES * cache_bytes // layer_bytes))


def _decode_gb_per_s(place: Place, spec: KVSpec, rows: int, context: int) -> float:
    shapes = [RowShape(context)] * rows
    backend, meta = _planned(place, spec, shapes, graph_rows=rows)
    return _kv_bytes(spec, rows, context) / _seconds(place, backend, spec, meta) / 1e9


def _kv_bytes(spec: KVSpec, rows: int, context: int) -> int:
    """Keys and values of all layers."""
    return rows * context * spec.page_bytes // spec.page_size


def _mixed(place: Place, findings: Findings, spec: KVSpec, name: str) -> None:
    """Decode rows beside a chunk: in one kernel, or in one each."""
    shapes = [*DECODES, CHUNK]
    for how, num_decodes in (("one launch", 0), ("split", len(DECODES))):
        backend, meta = _planned(place, spec, shapes)
        meta.num_decodes = num_decodes  # 0: nobody is known to be a decode row
        backend.plan(meta)
        seconds = _seconds(place, backend, spec, meta) / spec.num_layers
        findings.figure(f"{name}, mixed step, {how}", seconds * 1e6, "us a layer")


def _whole(place: Place, findings: Findings, heads: tuple[int, int, int], name: str) -> None:
    """All layers of a model's decode step, one after the other."""
    layers, rows, context = WHOLE
    spec = place.spec(*heads, num_layers=layers)
    at = f"{name}, {layers} layers, batch {rows}, context {context}"
    if _kv_bytes(spec, rows, context) > torch.cuda.mem_get_info()[0] - SPARE_BYTES:
        findings.note(f"{at}: not enough device memory")
        return
    backend, meta = _planned(place, spec, [RowShape(context)] * rows, graph_rows=rows)
    findings.figure(at, _seconds(place, backend, spec, meta) * 1e3, "ms a step")
    place.clear()


def _planned(
    place: Place,
    spec: KVSpec,
    shapes: Sequence[RowShape],
    graph_rows: int | None = None,
) -> tuple[AttentionBackend, StepMeta]:
    """A backend that has planned a step over a pool of noise, its pages in random order."""
    num_pages = pages_for(shapes, spec.page_size) + 1
    widest = max(-(-shape.length // spec.page_size) for shape in shapes)
    backend = place.attention(spec, graph_rows or 1, widest)
    backend.alloc_pool(num_pages).normal_()
    tables = random_tables(shapes, spec.page_size, num_pages, seed=1)
    meta = step_meta(shapes, tables, spec.page_size, graph_rows)
    backend.plan(meta)
    return backend, meta


def _seconds(place: Place, backend: AttentionBackend, spec: KVSpec, meta: StepMeta) -> float:
    """Device seconds for all layers."""
    tokens = int(meta.qo_indptr[-1])
    q = torch.randn(tokens, spec.num_q_heads, spec.head_dim, device=spec.device).to(spec.dtype)
    out = torch.empty_like(q)

    def layers(q: Tensor = q) -> None:
        for layer in range(spec.num_layers):
            backend.run(layer, q, out)

    # As one graph, so that the host's launches are not in it.
    return device_s(place.recorder()(layers), rounds=10)
