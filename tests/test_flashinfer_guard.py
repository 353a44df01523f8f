"""What the backend calls exists in the installed flashinfer-python under the names it uses."""

import ast
import inspect
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import flashinfer
import pytest
import torch
from flashinfer import utils
from flashinfer.jit import env
from flashinfer.jit.core import JitSpec, JitSpecNvcc, current_compilation_context

import memory.attention.flashinfer
from bench.flashinfer_emulation import Emulation, emulated
from memory.attention.flashinfer_device import Cpu
from memory.attention.flashinfer_kernels import compile_modules, modules
from memory.attention.flashinfer_plans import stage_ranges
from tests.flashinfer_steps import Beside, make_backend, make_meta, make_spec

Prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper
Decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper

CALLED: dict[tuple[str, str], Callable[..., object]] = {
    ("PrefillPlan", "BatchPrefillWithPagedKVCacheWrapper"): Prefill.__init__,
    ("PrefillPlan", "self._wrapper.plan"): Prefill.plan,
    ("PrefillPlan", "self._wrapper.run"): Prefill.run,
    ("DecodePlan", "BatchDecodeWithPagedKVCacheWrapper"): Decode.__init__,
    # `plan` itself takes whatever it is given and hands it on.
    ("DecodePlan", "self._wrapper.plan"): Decode._plan_impl,
    ("DecodePlan", "self._wrapper.run"): Decode.run,
    ("FlashInferAttention", "apply_rope_with_cos_sin_cache_inplace"): (
        flashinfer.rope.apply_rope_with_cos_sin_cache_inplace
    ),
    ("FlashInferOps", "silu_and_mul"): flashinfer.activation.silu_and_mul,
}


def test_every_keyword_that_is_used_is_one_of_the_installed_version() -> None:
    found = {place: call for place, call in calls() if place in CALLED}
    assert set(found) == set(CALLED)
    for place, call in found.items():
        assert not call.args, f"{place} is called with positional arguments"
        used = {keyword.arg for keyword in call.keywords}
        assert lacking(inspect.signature(CALLED[place]), used) == set(), place


def test_no_other_call_into_flashinfer_goes_unguarded() -> None:
    imported = {
        alias.name
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flashinfer")
        for alias in node.names
    }
    guarded = {name for _, name in CALLED} | {"utils"}
    compiling = {"env", "modules", "gen_rope_module", "gen_act_and_mul_module"}
    assert imported - compiling <= guarded


def test_the_guard_sees_a_keyword_that_went_and_one_that_became_positional() -> None:
    def plan(indptr: object, /, indices: object, *, seq_lens: object = None) -> None: ...

    signature = inspect.signature(plan)
    assert lacking(signature, {"indices", "seq_lens"}) == set()
    assert lacking(signature, {"indptr", "indices", "last_page_len"}) == {
        "indptr",
        "last_page_len",
    }


def test_the_ranges_of_a_decode_plan_are_the_staged_ones() -> None:
    stage_ranges(Cpu(), max_rows=5)
    for rows in range(1, 6):
        staged = utils._cache_buf[f"range_{1 << rows.bit_length()}", "cpu"]
        assert utils._get_range_buf(rows + 1, "cpu").data_ptr() == staged.data_ptr()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_modules_that_are_named_are_those_that_get_loaded(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    spec, loaded, asked = make_spec(dtype=dtype), [], []

    class Anything:
        def __getattr__(self, name: str) -> str:
            return name

    def load(jit: JitSpec) -> Anything:
        loaded.append(jit.name)
        return Anything()

    def ask(kernels: Emulation, *args: object) -> object:
        asked.append(args)
        return emulated_module(kernels, *args)

    generate = flashinfer.prefill.get_batch_prefill_module.__wrapped__
    emulated_module = Emulation.prefill_module
    monkeypatch.setattr(Emulation, "prefill_module", ask)
    with emulated(), torch.inference_mode():
        beside = Beside(spec, make_backend(spec))
        beside.backend.plan(make_meta(spec, [(1, 3)] * 8 + [(2, 2)]))
    monkeypatch.setattr(current_compilation_context, "TARGET_CUDA_ARCHS", {(9, "0a")})
    monkeypatch.setattr(JitSpec, "build_and_load", load)
    for args in asked:
        generate(*args)
    flashinfer.rope.get_rope_module.__wrapped__()
    flashinfer.activation.get_act_and_mul_module.__wrapped__("silu")
    assert len(asked) == 2  # decode and prefill rows
    assert [module.name for module in modules(spec)] == loaded[1:]
    assert loaded[0] == loaded[1]


def test_modules_are_built_once_and_then_found_beside_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = []

    def build(jit: JitSpecNvcc) -> None:
        built.append(jit.name)
        jit.jit_library_path.parent.mkdir(parents=True)
        jit.jit_library_path.write_bytes(b"code")

    monkeypatch.setattr(current_compilation_context, "TARGET_CUDA_ARCHS", {(9, "0a")})
    monkeypatch.setattr(env, "FLASHINFER_AOT_DIR", tmp_path / "aot")
    monkeypatch.setattr(env, "FLASHINFER_JIT_DIR", tmp_path / "cache")
    monkeypatch.setattr(JitSpecNvcc, "build", build)
    wanted = ([torch.bfloat16], [64, 128])
    cached = [module for module, _ in compile_modules(*wanted)]
    assert [module.name for module in cached] == built and len(set(built)) == 4
    placed = [module for module, _ in compile_modules(*wanted, aot=True)]
    shutil.rmtree(tmp_path / "cache")
    assert [module for module, _ in compile_modules(*wanted)] == placed
    assert len(built) == 4
    for module in modules(make_spec()):
        assert module.library == tmp_path / "aot" / module.name / f"{module.name}.so"


def lacking(signature: inspect.Signature, used: set[str | None]) -> set[str | None]:
    """Keywords that the callable does not take as keywords."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken = {name for name, each in signature.parameters.items() if each.kind in by_name}
    return used - taken


def sources() -> list[Path]:
    folder = Path(memory.attention.flashinfer.__file__).parent
    return sorted(folder.glob("flashinfer*.py"))


def calls() -> Iterator[tuple[tuple[str, str], ast.Call]]:
    """(class, callee) of each call in the backend's classes."""
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                for call in ast.walk(node):
                    if isinstance(call, ast.Call):
                        yield (node.name, ast.unparse(call.func)), call
