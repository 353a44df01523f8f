"""FlashInfer's ways that are not served with, beside those that are: decode on CUDA cores,
with three query heads to a key head, and the short plan of a graph, which copies no page
tables. What they would save decides whether they are worth having."""

import os
from typing import Any

import torch
from flashinfer import BatchDecodeWithPagedKVCacheWrapper
from flashinfer.decode import fast_decode_plan
from torch import Tensor

from bench.gpu.findings import Findings, Skipped
from bench.gpu.place import Place
from bench.gpu.steps import RowShape, pages_for, random_tables, step_meta
from bench.gpu.timing import device_s, host_s
from memory.attention.flashinfer_device import device_for
from memory.attention.interface import KVSpec, StepMeta

HEADS = (9, 3, 64)
ROWS, CONTEXT = 256, 4096
WORKSPACE_BYTES = 2**27
ROUNDS = 50


def check(place: Place, findings: Findings) -> None:
    if place.on_gpu and os.environ.get("FLASHINFER_DISABLE_JIT"):
        raise Skipped("FLASHINFER_DISABLE_JIT forbids to build decode on CUDA cores")
    spec = place.spec(*HEADS, num_layers=1)
    shapes = [RowShape(CONTEXT)] * ROWS
    num_pages = pages_for(shapes, spec.page_size) + 1
    tables = random_tables(shapes, spec.page_size, num_pages, seed=1)
    step = _Step(place, spec, num_pages, step_meta(shapes, tables, spec.page_size))
    for name, tensor_cores in (("tensor cores", True), ("CUDA cores", False)):
        rate = ROWS * CONTEXT * spec.page_bytes / spec.page_size / step.run_s(tensor_cores)
        findings.figure(f"decode on {name}", rate / 1e9, "GB/s")
    whole_s, short_s = step.plans_s()
    findings.figure("plan of a graph", whole_s * 1e6, "us")
    findings.figure("short plan of a graph", short_s * 1e6, "us")


class _Step:
    """Decode rows over one layer of noise."""

    def __init__(self, place: Place, spec: KVSpec, num_pages: int, meta: StepMeta) -> None:
        self._place, self._spec, self._meta = place, spec, meta
        self._indices = meta.kv_indices.to(place.device)
        shape = (num_pages, 2, spec.page_size, spec.num_kv_heads, spec.head_dim)
        self._kv = torch.randn(shape, device=place.device, dtype=spec.dtype)
        self._q = torch.randn(
            ROWS, spec.num_q_heads, spec.head_dim, device=place.device, dtype=spec.dtype
        )

    def run_s(self, tensor_cores: bool) -> float:
        """Device seconds of a run of the kernel."""
        wrapper, out = self._wrapper(tensor_cores), torch.empty_like(self._q)
        wrapper.plan(
            indptr=self._meta.kv_indptr, last_page_len=self._meta.last_page_len, **self._how()
        )

        def run() -> None:
            wrapper.run(q=self._q, paged_kv_cache=self._kv, out=out)

        return device_s(run, ROUNDS)

    def plans_s(self) -> tuple[float, float]:
        """Host seconds of a graph's plan, and of one without its copies."""
        meta = self._meta
        wrapper = self._wrapper(
            True,
            use_cuda_graph=True,
            paged_kv_indptr_buffer=self._buffer(meta.kv_indptr),
            paged_kv_indices_buffer=self._buffer(meta.kv_indices),
            paged_kv_last_page_len_buffer=self._buffer(meta.last_page_len),
        )

        where: dict[str, Any] = {
            "indptr": meta.kv_indptr,
            "last_page_len": meta.last_page_len,
            **self._how(),
        }
        fence = device_for(self._place.device).event()

        def whole() -> None:
            fence.synchronize()
            wrapper.plan(**where)
            fence.record()

        def short() -> None:
            fence.synchronize()
            fast_decode_plan(wrapper, global_override_indptr_cpu=meta.kv_indptr, **where)
            fence.record()

        return host_s(self._place, whole, ROUNDS), host_s(self._place, short, ROUNDS)

    def _buffer(self, values: Tensor) -> Tensor:
        return torch.zeros_like(values, device=self._place.device)

    def _wrapper(self, tensor_cores: bool, **graph: Any) -> BatchDecodeWithPagedKVCacheWrapper:
        workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=self._place.device)
        return BatchDecodeWithPagedKVCacheWrapper(
            float_workspace_buffer=workspace,
            kv_layout="NHD",
            use_tensor_cores=tensor_cores,
            backend="fa2",
            **graph,
        )

    def _how(self) -> dict[str, Any]:
        s = self._spec
        return {
            "indices": self._indices,
            "num_qo_heads": s.num_q_heads,
            "num_kv_heads": s.num_kv_heads,
            "head_dim": s.head_dim,
            "page_size": s.page_size,
            "q_data_type": s.dtype,
            "kv_data_type": s.dtype,
        }
