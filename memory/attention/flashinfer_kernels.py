"""The compiled modules that the `flashinfer` backend loads, and building them beforehand.

    FLASHINFER_CUDA_ARCH_LIST=9.0a CUDA_HOME=/usr/local/cuda \\
        python -m memory.attention.flashinfer_kernels --head-dim 64 --dtype bf16 --aot

builds what is missing with nvcc and ninja, a minute or two for each head_dim and dtype, and
prints a line a module. `--aot` puts the libraries beside the package's own files, where
FlashInfer looks first and from where they can be copied with it (they fit this version of
flashinfer-python alone); without it they stay in its cache under FLASHINFER_WORKSPACE_BASE.
With all of them in place no compiler is needed, and FLASHINFER_DISABLE_JIT=1 makes a missing
one an error. Where a GPU is visible, FLASHINFER_CUDA_ARCH_LIST is optional; MAX_JOBS bounds
the compilers that run at a time.
"""

import argparse
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from flashinfer.jit import env
from flashinfer.jit.activation import gen_act_and_mul_module
from flashinfer.jit.attention import modules as attention
from flashinfer.jit.rope import gen_rope_module

from memory.attention.interface import KVSpec

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
NO_POSITIONS = 0


@dataclass(frozen=True, slots=True)
class Module:
    """`library` is None until it is compiled."""

    name: str
    library: Path | None


def modules(spec: KVSpec) -> list[Module]:
    """What the backend loads for this model, wherever it finds it. RuntimeError where there
    is neither a GPU nor FLASHINFER_CUDA_ARCH_LIST."""
    return [_module(jit) for jit in _jit_specs([spec.dtype], [spec.head_dim])]


def compile_modules(
    dtypes: Iterable[torch.dtype], head_dims: Iterable[int], aot: bool = False
) -> Iterator[tuple[Module, float]]:
    """Build what is missing, one module after the other; seconds of each. RuntimeError with
    the compiler's words where it fails."""
    for jit in _jit_specs(dtypes, head_dims):
        started_s = time.perf_counter()
        if not jit.is_compiled:
            jit.build()
        module = _module(jit)
        if aot and module.library is not None:
            target = env.FLASHINFER_AOT_DIR / module.name / module.library.name
            module = Module(module.name, _placed(module.library, target))
        yield module, time.perf_counter() - started_s


def _jit_specs(dtypes: Iterable[torch.dtype], head_dims: Iterable[int]) -> list[Any]:
    """FlashInfer's own descriptions of the modules. Prefill and decode rows share one."""
    # Since 0.7 the wrappers load a module for keys and values of equal strides, as ours are.
    generate = getattr(
        attention, "_gen_batch_prefill_primary_module", attention.gen_batch_prefill_module
    )
    dims = list(head_dims)
    specs = [
        generate(
            backend="fa2",
            dtype_q=dtype,
            dtype_kv=dtype,
            dtype_o=dtype,
            dtype_idx=torch.int32,
            head_dim_qk=dim,
            head_dim_vo=dim,
            pos_encoding_mode=NO_POSITIONS,
            use_sliding_window=False,
            use_logits_soft_cap=False,
            use_fp16_qk_reduction=False,
        )
        for dtype in dtypes
        for dim in dims
    ]
    return [*specs, gen_rope_module(), gen_act_and_mul_module("silu")]


def _module(jit: Any) -> Module:
    return Module(jit.name, jit.get_library_path() if jit.is_compiled else None)


def _placed(library: Path, target: Path) -> Path:
    if library != target:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--head-dim", type=int, action="append", required=True)
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--aot", action="store_true", help="beside the package's own files")
    wanted = parser.parse_args()
    dtypes = [DTYPES[name] for name in wanted.dtype or ["bf16"]]
    for module, seconds in compile_modules(dtypes, wanted.head_dim, wanted.aot):
        size = module.library.stat().st_size if module.library else 0
        print(f"{seconds:6.1f} s {size / 1e6:6.2f} MB  {module.name}", flush=True)


if __name__ == "__main__":
    main()
