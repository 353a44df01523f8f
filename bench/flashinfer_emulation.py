"""FlashInfer's own Python on a CPU: only its compiled modules are replaced, by torch.

Its wrappers then check arguments, copy into graph buffers and keep plans as on a GPU. What
the kernels would do is done here in float32, slowly, and with the kernels' own demands:
int32 metadata, equal strides of keys and values, a plan that belongs to what is run. Nothing
is said about the numerics or the speed of the real kernels.

Works with flashinfer-python 0.6.18.post1 to 0.7.4.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import flashinfer
import torch
from torch import Tensor

from bench.flashinfer_tape import Tape
from memory.attention.flashinfer_device import Cpu, Event

CAUSAL = 1
NHD = 0


class UnfencedPlan(RuntimeError):
    """A plan was written over pinned memory from which the plan before is still copied."""


class Emulation:
    """What is on its way to the pretended device, and what was asked of it: `modules` has
    the name of every compiled module that was loaded, `split_kv` whether each plan might
    split a context, `launches` the (rows, tokens) of each run of attention."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.split_kv: list[bool] = []
        self.launches: list[tuple[int, int]] = []
        self._copying: dict[int, Tensor] = {}
        self._tape: Tape | None = None

    def event(self) -> Event:
        return _Event(self._copying)

    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        """A `models.graphs.Capture`."""
        self._tape = tape = Tape()
        try:
            with tape:
                work()
        finally:
            self._tape = None
        return tape.replay

    def plan(
        self,
        float_workspace: Tensor,
        int_workspace: Tensor,
        pinned: Tensor,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        kv_lens: Tensor,
        total_rows: int,
        batch_size: int,
        *options: Any,
    ) -> list[int]:
        """A schedule that is just the rows' lengths."""
        if pinned.data_ptr() in self._copying:
            raise UnfencedPlan("plan() over a pinned buffer that is still copied from")
        self._copying[pinned.data_ptr()] = pinned
        self.split_kv.append(not options[9])
        _expect(batch_size > 0, "the planner divides by the number of rows")
        for name, tensor, size in (
            ("qo_indptr", qo_indptr, batch_size + 1),
            ("kv_indptr", kv_indptr, batch_size + 1),
            ("kv_lens", kv_lens, batch_size),
        ):
            _expect(tensor.dtype == torch.int32 and tensor.is_cpu, f"{name}: int32, host")
            _expect(tensor.shape == (size,), f"{name} of {size}: {tuple(tensor.shape)}")
        _expect(int(qo_indptr[-1]) <= total_rows, "more query rows than planned for")
        pinned.view(torch.int32)[:batch_size] = kv_lens
        int_workspace.view(torch.int32)[:batch_size] = pinned.view(torch.int32)[:batch_size]
        return [batch_size]

    def prefill_module(self, backend: str, *args: Any) -> SimpleNamespace:
        _expect(backend == "fa2", f"backend {backend}")
        dtypes, (head_dim, value_dim) = args[:3], args[4:6]
        _expect(head_dim == value_dim, "head dimensions differ")
        self.modules.append(f"prefill {dtypes[0]} {head_dim}")

        def paged_run(*run_args: Any) -> None:
            q, k_cache, out = run_args[3], run_args[4], run_args[10]
            _expect((q.dtype, k_cache.dtype, out.dtype) == dtypes, "dtypes")
            self.launches.append((len(run_args[9]), len(q)))
            self._launch(_paged_run, *run_args)

        return SimpleNamespace(plan=self.plan, paged_run=paged_run)

    def rope_module(self) -> SimpleNamespace:
        self.modules.append("rope")
        run = partial(self._launch, _rope)
        return SimpleNamespace(apply_rope_pos_ids_cos_sin_cache=run)

    def activation_module(self, name: str) -> SimpleNamespace:
        _expect(name == "silu", f"activation {name}")
        self.modules.append(name)
        return SimpleNamespace(silu_and_mul=partial(self._launch, _silu_and_mul))

    def _launch(self, kernel: Callable[..., None], *args: Any) -> None:
        if self._tape is None:
            kernel(*args)
        else:
            self._tape.kernel(kernel, *args)


@contextmanager
def emulated() -> Iterator[Emulation]:
    """FlashInfer with `spec.device` "cpu" computes, as long as this lasts."""
    emulation = Emulation()
    unpinned = _Unpinned()

    def event(device: Cpu) -> Event:
        return emulation.event()

    with ExitStack() as stack:
        for target, name, value in (
            (flashinfer.decode, "torch", unpinned),
            (flashinfer.prefill, "torch", unpinned),
            (flashinfer.decode, "get_batch_prefill_module", emulation.prefill_module),
            (flashinfer.prefill, "get_batch_prefill_module", emulation.prefill_module),
            (flashinfer.rope, "get_rope_module", emulation.rope_module),
            (flashinfer.activation, "get_act_and_mul_module", emulation.activation_module),
            (Cpu, "event", event),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield emulation


class _Event:
    """Copies that were under way when it was recorded are done once it was waited for."""

    def __init__(self, copying: dict[int, Tensor]) -> None:
        self._copying = copying
        self._recorded: set[int] = set()

    def record(self) -> None:
        self._recorded = set(self._copying)

    def synchronize(self) -> None:
        for pinned in self._recorded:
            self._copying.pop(pinned, None)
        self._recorded = set()


class _Unpinned:
    """torch as FlashInfer's wrappers see it, without pinned memory."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *size: Any, pin_memory: bool = False, **options: Any) -> Tensor:
        return torch.empty(*size, **options)


def _paged_run(
    float_workspace: Tensor,
    int_workspace: Tensor,
    plan: list[int],
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    qo_indptr: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    last_page_len: Tensor,
    out: Tensor,
    lse: Tensor | None,
    mask_mode: int,
    layout: int,
    window_left: int,
    enable_pdl: bool,
    *variant: Any,
) -> None:
    sm_scale = variant[7]
    _expect(k_cache.stride() == v_cache.stride(), "strides of keys and values differ")
    _expect(q.stride(-1) == k_cache.stride(-1) == 1, "a head is not one piece")
    _expect(out.is_contiguous(), "out is not contiguous")
    _expect((layout, window_left, lse) == (NHD, -1, None), "layout, window or lse")
    for tensor in (qo_indptr, kv_indptr, kv_indices, last_page_len):
        _expect(tensor.dtype == torch.int32, "metadata is not int32")
    page_size = k_cache.shape[1]
    lens = (kv_indptr.diff() - 1) * page_size + last_page_len
    _expect(
        torch.equal(lens, int_workspace.view(torch.int32)[: plan[0]]),
        "the plan is of other rows than the metadata",
    )
    for row, length in enumerate(lens.tolist()):
        pages = kv_indices[int(kv_indptr[row]) : int(kv_indptr[row + 1])].long()
        k, v = (cache[pages].flatten(0, 1)[:length].float() for cache in (k_cache, v_cache))
        tokens = slice(int(qo_indptr[row]), int(qo_indptr[row + 1]))
        out[tokens] = _attended(q[tokens].float(), k, v, sm_scale, mask_mode).to(out.dtype)


def _attended(q: Tensor, k: Tensor, v: Tensor, scale: float, mask_mode: int) -> Tensor:
    """q [tokens, q_heads, dim], k and v [length, kv_heads, dim]; the last query is at the
    end."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("thd,lhd->htl", q, k) * scale
    if mask_mode == CAUSAL:
        ends = torch.arange(len(k) - len(q), len(k))[:, None]
        scores = scores.masked_fill(torch.arange(len(k)) > ends, -torch.inf)
    return torch.einsum("htl,lhd->thd", scores.softmax(dim=-1), v)


def _rope(
    q: Tensor,
    k: Tensor,
    q_out: Tensor,
    k_out: Tensor,
    table: Tensor,
    positions: Tensor,
    interleave: bool,
) -> None:
    _expect(not interleave, "interleaved coordinates")
    _expect(table.dtype == torch.float32 and table.is_contiguous(), "the table")
    _expect(positions.is_contiguous() and len(q) == len(k) == len(positions), "positions")
    cos, sin = table[positions.long()][:, None].chunk(2, dim=-1)
    for x, out in ((q, q_out), (k, k_out)):
        _expect(x.stride(-1) == 1, "a head is not one piece")
        a, b = x.float().chunk(2, dim=-1)
        out.copy_(torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1))


def _silu_and_mul(out: Tensor, x: Tensor, enable_pdl: bool) -> None:
    _expect(x.is_contiguous() and out.is_contiguous(), "rows are not contiguous")
    gate, up = x.float().chunk(2, dim=-1)
    out.copy_(torch.nn.functional.silu(gate) * up)


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise RuntimeError(f"FlashInfer's kernels: {what}")
