"""`walkway doctor` on made-up machines, and on this one."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import InvalidRequirement
from typer.testing import CliRunner, Result

from cli import gpu_probes, model_probes, probes
from cli.doctor import show
from cli.findings import Finding, Grade
from cli.machine import (
    Choice,
    Fault,
    Gpu,
    GpuKernels,
    Gpus,
    Invariance,
    Machine,
    Model,
    Package,
    Processor,
    Room,
    Serving,
    SharedMemory,
    Workspace,
)
from cli.main import app
from cli.verdicts import judge
from memory.attention.gpu_targets import SPECIFIC, Target
from models.random_weights import LLAMA_8B, SMOLLM2_135M
from service.settings import Attention, Engine, Memory, Settings
from service.settings import Model as ModelSettings
from tests.gpu_libraries import compiled

ALL_TOOLS = {"nvcc": "/usr/bin/nvcc", "ninja": "/usr/bin/ninja", "c++": "/usr/bin/c++"}
NO_TOOLS: dict[str, str | None] = dict.fromkeys(ALL_TOOLS)
H200 = Gpu("NVIDIA H200", (9, 0), 140 << 30, 139 << 30)
NO_GPUS = Gpus((), None, None, None, 0)
ON_CPU = Choice("cpu", "fp32", "cpu", "auto: avx2 C++ kernels")
ON_GPU = Choice("cuda", "bf16", "flashinfer", "auto: FlashInfer's fa2 kernels")
COMPILED = GpuKernels(("prefill", "rope"), (), (), may_compile=False)


def packages(flashinfer: str | None = "0.7.4") -> dict[str, Package]:
    return {
        "torch": Package("2.13.0", ">=2.11"),
        "transformers": Package("5.24.0", ">=5"),
        "grpcio": Package("1.85.3", ">=1.81"),
        "flashinfer-python": Package(flashinfer, "<0.8,>=0.7.1"),
    }


def processor(level: str | None = "avx2") -> Processor:
    return Processor(
        cores=2,
        quota_cores=None,
        torch_level="AVX2",
        torch_threads=2,
        level=level,
        level_why="" if level else "the C++ extension was not built",
        products={"fp32": "onednn", "bf16": "onednn fp32 of bf16 values"},
        fastest_dtype="fp32",
    )


def cpu_machine() -> Machine:
    """One on which the default model runs on its C++ kernels."""
    return Machine(
        packages=packages(flashinfer=None),
        gpus=NO_GPUS,
        model=Model(SMOLLM2_135M),
        serving=Serving(ON_CPU, None, Invariance(True), 3 << 30),
        scheduler=None,
        tools=NO_TOOLS,
        workspace=Workspace("/home/w/.cache/flashinfer", False, True),
        processor=processor(),
        room=Room(16 << 30, None),
        shared_memory=SharedMemory(True, 8 << 30),
    )


def gpu_machine(gpu: Gpu = H200, kernels: GpuKernels = COMPILED) -> Machine:
    """One on which it runs on FlashInfer."""
    return replace(
        cpu_machine(),
        packages=packages(),
        gpus=Gpus((gpu,), "580.95", "13.0", "13.0", 1),
        serving=Serving(
            ON_GPU,
            kernels,
            Invariance(None, "on a GPU it is not promised"),
            device_bytes=1 << 30,
            context_bytes=1 << 28,
        ),
    )


def served(machine: Machine, choice: Choice | Fault) -> Machine:
    return replace(machine, serving=replace(machine.serving, choice=choice))


def faults(machine: Machine, settings: Settings = Settings()) -> list[Finding]:  # noqa: B008
    return [found for found in judge(machine, settings) if found.grade is Grade.FAULT]


def about(topic: str, machine: Machine, settings: Settings = Settings()) -> Finding:  # noqa: B008
    return next(found for found in judge(machine, settings) if found.topic == topic)


@pytest.mark.parametrize("machine", [cpu_machine(), gpu_machine()], ids=["cpu", "gpu"])
def test_a_machine_with_everything_gets_no_advice(machine: Machine) -> None:
    assert {found.grade for found in judge(machine, Settings())} == {Grade.OK}
    assert not [found for found in judge(machine, Settings()) if found.advice]


def test_a_cpu_is_not_told_what_gpus_need() -> None:
    assert about("flashinfer-python", cpu_machine()).said == "not installed; it is for GPUs"
    topics = {found.topic for found in judge(cpu_machine(), Settings())}
    assert not topics & {"GPU kernels", "workspace", "CUDA"}


def test_a_cpu_without_the_extension_runs_slower_and_is_told_how_to_build_it() -> None:
    unbuilt = replace(cpu_machine(), processor=processor(level=None))
    machine = served(unbuilt, replace(ON_CPU, attention="reference", why="auto: not built"))
    assert not faults(machine)
    assert about("attention", machine).grade is Grade.NOTE
    assert "C++ compiler" in (about("C++ kernels", machine).advice or "")


def test_a_gpu_without_flashinfer_runs_slower_and_is_told_what_to_install() -> None:
    machine = replace(gpu_machine(), packages=packages(flashinfer=None))
    machine = served(machine, replace(ON_GPU, attention="reference", why="auto: no flashinfer"))
    assert not faults(machine)
    assert about("attention", machine).grade is Grade.NOTE
    advice = about("flashinfer-python", machine).advice
    assert advice == "pip install 'flashinfer-python<0.8,>=0.7.1'"


def test_kernels_that_can_neither_be_found_nor_compiled_are_a_fault_naming_the_tools() -> None:
    kernels = GpuKernels(("rope",), (), ("prefill",), may_compile=True)
    machine = gpu_machine(kernels=kernels)
    (found,) = faults(replace(machine, tools={**ALL_TOOLS, "nvcc": None}))
    assert found.topic == "GPU kernels"
    assert "1 of 2 are compiled, and nvcc cannot be found" in found.said
    assert "CUDA toolkit" in (found.advice or "")
    assert "ninja" not in (found.advice or "")


def test_kernels_that_will_be_compiled_at_the_start_are_said_to_be() -> None:
    kernels = GpuKernels((), (), ("prefill", "rope"), may_compile=True)
    machine = replace(gpu_machine(kernels=kernels), tools=ALL_TOOLS)
    assert not faults(machine)
    found = about("GPU kernels", machine)
    assert "takes minutes" in found.said
    assert "--head-dim 64 --dtype bf16" in (found.advice or "")


def test_kernels_that_are_missing_where_compiling_is_forbidden_are_a_fault() -> None:
    kernels = GpuKernels(("rope",), (), ("prefill",), may_compile=False)
    (found,) = faults(replace(gpu_machine(kernels=kernels), tools=ALL_TOOLS))
    assert "FLASHINFER_DISABLE_JIT forbids to build prefill" in found.said
    cached = GpuKernels(("rope",), ("prefill",), (), may_compile=False)
    assert faults(replace(gpu_machine(kernels=cached), tools=ALL_TOOLS)) == [found]


def test_kernels_compiled_by_this_machine_still_need_ninja() -> None:
    kernels = GpuKernels((), ("prefill", "rope"), (), may_compile=True)
    machine = replace(gpu_machine(kernels=kernels), tools={**NO_TOOLS, "ninja": "/bin/ninja"})
    assert not faults(machine)
    (found,) = faults(gpu_machine(kernels=kernels))
    assert "ninja" in (found.advice or "")


HOPPER = frozenset({Target(8, 0), Target(9, 0, "a")})
B200 = replace(H200, name="NVIDIA B200", capability=(10, 0))
RTX_5090 = replace(H200, name="NVIDIA GeForce RTX 5090", capability=(12, 0))


@pytest.mark.parametrize("gpu", [B200, RTX_5090], ids=["B200", "RTX 5090"])
def test_kernels_that_were_compiled_for_another_gpu_are_a_fault(gpu: Gpu) -> None:
    kernels = replace(COMPILED, targets={"prefill": HOPPER, "rope": HOPPER})
    (found,) = faults(gpu_machine(gpu, kernels))
    major, minor = gpu.capability
    assert found.topic == "GPU kernels"
    assert found.said == f"compiled for 8.0, 9.0a, and {gpu.name} has {major}.{minor}: prefill"
    assert found.advice == (f"build the image with FLASHINFER_CUDA_ARCH_LIST={major}.{minor}")
    assert not faults(gpu_machine(H200, kernels))


def test_kernels_that_will_be_compiled_for_another_gpu_are_a_fault() -> None:
    kernels = GpuKernels((), (), ("prefill",), may_compile=True, compiles_for=HOPPER)
    machine = replace(gpu_machine(B200, kernels), tools=ALL_TOOLS)
    (found,) = faults(machine)
    assert "8.0, 9.0a, and NVIDIA B200 has 10.0: what FLASHINFER_CUDA_ARCH_LIST" in found.said
    assert found.advice == "compile them with FLASHINFER_CUDA_ARCH_LIST=10.0"
    unset = replace(kernels, compiles_for=frozenset[Target]())
    assert not faults(replace(gpu_machine(B200, unset), tools=ALL_TOOLS))


def several(gpus: tuple[Gpu, ...], seen: int) -> Machine:
    machine = gpu_machine(kernels=replace(COMPILED, targets={"prefill": HOPPER}))
    return replace(machine, gpus=Gpus(gpus, "580.95", "13.0", "13.0", seen))


def test_of_several_gpus_those_that_the_ranks_get_are_judged() -> None:
    assert about("GPU kernels", several((H200, B200), seen=2)).grade is Grade.OK
    assert about("GPU kernels", several((B200, H200), seen=2)).grade is Grade.FAULT
    hidden = about("GPU kernels", several((B200, H200), seen=1))
    assert hidden.grade is Grade.NOTE, "which one torch finds is not known"
    two = Settings(engine=Engine(tensor_parallel=2))
    assert about("GPU kernels", several((H200, B200), seen=2), two).grade is Grade.FAULT


def test_a_full_gpu_that_no_rank_gets_is_no_fault() -> None:
    full = replace(H200, free_bytes=1 << 20)
    assert about("GPU memory", several((H200, full), seen=2)).grade is Grade.OK
    assert about("GPU memory", several((full, H200), seen=2)).grade is Grade.FAULT
    assert about("GPU memory", several((full, H200), seen=1)).grade is Grade.OK
    two = Settings(engine=Engine(tensor_parallel=2))
    assert about("GPU memory", several((H200, full), seen=2), two).grade is Grade.FAULT


def test_a_model_that_does_not_fit_the_gpu_is_a_fault_with_both_sizes() -> None:
    machine = gpu_machine(gpu=replace(H200, free_bytes=10 << 30))
    serving = replace(machine.serving, device_bytes=16 << 30)
    (found,) = faults(replace(machine, serving=serving))
    assert found.topic == "GPU memory"
    assert "take 16 GiB or more, and 10 GiB are free" in found.said
    assert "engine.tensor_parallel" in (found.advice or "")


def test_a_pool_too_small_for_the_longest_request_is_noted() -> None:
    machine = gpu_machine(gpu=replace(H200, free_bytes=2 << 30))
    serving = replace(machine.serving, context_bytes=1 << 30)
    found = about("GPU memory", replace(machine, serving=serving))
    assert found.grade is Grade.NOTE
    assert "922 MiB are left for the pool" in found.said
    assert "model.max_context_tokens" in (found.advice or "")


def test_what_a_model_takes_of_a_gpu_is_its_weights_pool_and_working_memory() -> None:
    def needed(**groups: object) -> int:
        settings = Settings(**groups)
        spec = model_probes.spec_of(LLAMA_8B, settings, "cuda", "bf16")
        return model_probes.device_bytes(LLAMA_8B, settings, spec)

    weights = 8.03e9 * 2
    assert weights < needed() < weights + 2**30
    pool = needed(memory=Memory(pool_bytes=4 << 30)) - needed()
    assert 0.99 * (4 << 30) < pool <= 4 << 30
    halved = needed(engine=Engine(tensor_parallel=2))
    tables = 2 * 2 * LLAMA_8B.vocab_size * LLAMA_8B.hidden_size
    assert halved < (needed() + tables) / 2 + 2**28


def test_shared_memory_that_cannot_be_written_is_a_fault() -> None:
    machine = replace(cpu_machine(), shared_memory=SharedMemory(False, 1 << 30))
    (found,) = faults(machine)
    assert found.topic == "shared memory"
    assert "--ipc=host" in (found.advice or "")


def test_several_ranks_on_gpus_are_told_of_a_containers_small_shared_memory() -> None:
    small = SharedMemory(True, 64 << 20)
    machine = replace(
        gpu_machine(),
        shared_memory=small,
        gpus=Gpus((H200, H200), "580.95", "13.0", "13.0", 2),
    )
    found = about("shared memory", machine, Settings(engine=Engine(tensor_parallel=2)))
    assert (found.grade, found.advice) == (Grade.NOTE, "docker run --ipc=host")
    assert "64 MiB" in found.said
    assert about("shared memory", machine).grade is Grade.OK


def test_this_machines_shared_memory_is_looked_at(tmp_path: Path) -> None:
    found = probes.shared_memory(tmp_path)
    assert found.writable and found.size_bytes > 0


def test_an_old_gpu_is_named_with_the_capability_that_is_needed() -> None:
    machine = gpu_machine(gpu=replace(H200, name="Tesla T4", capability=(7, 5)))
    why = "auto: FlashInfer needs compute capability 8.0, the GPU has 7.5"
    machine = served(machine, replace(ON_GPU, attention="reference", why=why))
    assert not faults(machine)
    found = about("GPU 0", machine)
    assert found.grade is Grade.NOTE
    assert "capability 7.5" in found.said
    assert "8.0" in (found.advice or "")


def test_another_flashinfer_version_is_a_fault_only_where_it_would_be_used() -> None:
    (found,) = faults(replace(gpu_machine(), packages=packages(flashinfer="0.8.1")))
    assert found.said == "0.8.1, not <0.8,>=0.7.1"
    assert found.advice == "pip install 'flashinfer-python<0.8,>=0.7.1'"
    on_cpu = replace(cpu_machine(), packages=packages(flashinfer="0.8.1"))
    assert not faults(on_cpu)
    assert about("flashinfer-python", on_cpu).grade is Grade.NOTE


def test_a_requested_backend_that_cannot_run_is_a_fault_with_the_loaders_words() -> None:
    words = "attention.backend = flashinfer: it needs a GPU, and the model is on the CPU"
    settings = Settings(attention=Attention(backend="flashinfer"))
    machine = served(cpu_machine(), Fault(words))
    (found,) = faults(machine, settings)
    assert found.said == words
    assert about("flashinfer-python", machine, settings).grade is Grade.NOTE


def test_a_reference_backend_that_was_asked_for_is_no_surprise() -> None:
    settings = Settings(attention=Attention(backend="reference"))
    machine = served(cpu_machine(), replace(ON_CPU, attention="reference", why="requested"))
    assert about("attention", machine, settings).grade is Grade.OK


@pytest.mark.parametrize(
    ("torch_cuda", "driver_cuda", "advice"),
    [
        (None, "13.0", "built for CUDA"),
        ("13.0", "12.4", "a driver"),
        ("13.0", "13.0", "VISIBLE"),
    ],
)
def test_a_gpu_that_torch_does_not_see_is_explained(
    torch_cuda: str | None, driver_cuda: str, advice: str
) -> None:
    machine = replace(cpu_machine(), gpus=Gpus((H200,), "550.1", driver_cuda, torch_cuda, 0))
    assert advice in (about("CUDA", machine).advice or "")


def test_a_folder_that_flashinfer_cannot_write_is_a_fault_where_it_would_be_used() -> None:
    sealed = Workspace("/.cache/flashinfer", False, False)
    (found,) = faults(replace(gpu_machine(), workspace=sealed))
    assert "FLASHINFER_WORKSPACE_BASE" in (found.advice or "")
    assert not faults(replace(cpu_machine(), workspace=sealed))


def test_more_ranks_than_gpus_are_a_fault() -> None:
    settings = Settings(engine=Engine(tensor_parallel=2))
    (found,) = faults(gpu_machine(), settings)
    assert found.topic == "tensor parallel"


def test_a_pool_that_does_not_fit_is_a_fault() -> None:
    (found,) = faults(replace(cpu_machine(), room=Room(2 << 30, 2 << 30)))
    assert found.topic == "memory"
    assert "limit 2 GiB" in found.said


def test_more_threads_than_a_container_may_use_are_advised_against() -> None:
    machine = replace(cpu_machine(), processor=replace(processor(), quota_cores=1.0))
    assert about("threads", machine).advice == "set engine.threads = 1"


@pytest.mark.parametrize(
    ("ranks", "threads", "said", "advice"),
    [
        (2, 0, "2 x 1 on 2 cores", None),
        (2, 4, "2 x 2 on 2 cores", "set engine.threads = 2"),
        (3, 0, "3 x 1 on 2 cores", "lower engine.tensor_parallel to 2"),
    ],
)
def test_threads_are_counted_over_all_ranks(
    ranks: int, threads: int, said: str, advice: str | None
) -> None:
    settings = Settings(engine=Engine(tensor_parallel=ranks, threads=threads))
    found = about("threads", cpu_machine(), settings)
    assert (found.said, found.advice) == (said, advice)


@pytest.mark.parametrize("memory", [Memory(num_pages=1000), Memory(pool_bytes=2**30)])
def test_memory_is_that_of_all_ranks(memory: Memory) -> None:
    def wanted(ranks: int) -> int:
        settings = Settings(engine=Engine(tensor_parallel=ranks), memory=memory)
        spec = model_probes.spec_of(SMOLLM2_135M, settings, "cpu", "fp32")
        return model_probes.host_bytes(SMOLLM2_135M, settings, spec)

    config = SMOLLM2_135M
    assert config.tied
    table_bytes = 4 * config.vocab_size * config.hidden_size
    assert wanted(3) - wanted(1) == 2 * table_bytes, "every rank has the embedding"


def test_bf16_on_a_cpu_without_its_instructions_is_advised_against() -> None:
    machine = served(cpu_machine(), replace(ON_CPU, dtype="bf16"))
    assert about("CPU", machine).grade is Grade.NOTE


def test_no_probe_that_fails_is_fatal() -> None:
    broken = Fault("the probe broke")
    machine = replace(
        cpu_machine(),
        gpus=broken,
        workspace=broken,
        processor=broken,
        room=broken,
        serving=Serving(ON_GPU, broken, broken),
        packages=packages(),
    )
    said = [found for found in judge(machine, Settings()) if "the probe broke" in found.said]
    assert len(said) == 6


def test_a_probe_that_raises_becomes_one_line() -> None:
    def probe() -> int:
        raise InvalidRequirement("one line\nand another")

    assert probes.attempt(probe) == Fault("one line")
    assert probes.attempt(lambda: {}["key"]) == Fault("'key'")


def test_limits_of_a_container_are_read(tmp_path: Path) -> None:
    assert probes.limit_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("1073741824\n")
    assert probes.limit_bytes(tmp_path) == 2**30
    (tmp_path / "memory.max").write_text("max\n")
    assert probes.limit_bytes(tmp_path) is None


def test_the_workspace_is_judged_by_the_folder_that_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path / "not" / "there"))
    found = gpu_probes.workspace()
    assert found.variable_set and found.writable
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    assert not gpu_probes.workspace().writable


def test_compiled_kernels_are_told_apart_by_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefill = tmp_path / "flashinfer" / "data" / "aot" / "prefill.so"
    rope = tmp_path / ".cache" / "flashinfer" / "0.7.4" / "90a" / "cached_ops" / "rope.so"
    for library, content in ((prefill, compiled((2, 90, SPECIFIC))), (rope, b"no kernels")):
        library.parent.mkdir(parents=True)
        library.write_bytes(content)
    found = {"prefill": prefill, "rope": rope, "silu": None}
    modules = [SimpleNamespace(name=name, library=path) for name, path in found.items()]
    pretended = SimpleNamespace(modules=lambda spec: modules)  # importing FlashInfer is slow
    monkeypatch.setitem(sys.modules, "memory.attention.flashinfer_kernels", pretended)
    monkeypatch.setenv("FLASHINFER_DISABLE_JIT", "1")
    spec = model_probes.spec_of(SMOLLM2_135M, Settings(), "cuda", "bf16")
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "8.0 9.0a")
    expected = GpuKernels(
        ("prefill",),
        ("rope",),
        ("silu",),
        may_compile=False,
        targets={"prefill": frozenset({Target(9, 0, "a")}), "rope": frozenset()},
        compiles_for=HOPPER,
    )
    assert gpu_probes.gpu_kernels(spec) == expected


def test_gpus_are_described_by_their_driver_also_where_torch_uses_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = SimpleNamespace(
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: H200.name,
        nvmlDeviceGetCudaComputeCapability=lambda handle: H200.capability,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(
            total=H200.total_bytes, free=H200.free_bytes
        ),
        nvmlSystemGetDriverVersion=lambda: "580.95",
        nvmlSystemGetCudaDriverVersion_v2=lambda: 13000,
        nvmlShutdown=lambda: None,
    )
    monkeypatch.setattr(gpu_probes, "_nvml", lambda: driver)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", None)
    assert gpu_probes.gpus() == Gpus((H200,), "580.95", "13.0", None, 0)


def test_what_batch_invariant_attention_leaves_open_on_a_gpu_is_said() -> None:
    wished = Settings(attention=Attention(batch_invariant=True))
    found = model_probes.invariance(SMOLLM2_135M, wished, ON_GPU)
    assert found.holds is None
    assert "matrix products" in found.why
    assert (
        "matrix products" not in model_probes.invariance(SMOLLM2_135M, Settings(), ON_GPU).why
    )


def test_a_large_models_invariance_is_left_to_its_loading() -> None:
    assert model_probes.invariance(LLAMA_8B, Settings(), ON_CPU).holds is None


def test_a_model_that_is_not_here_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert model_probes.model(Settings()) == Model(SMOLLM2_135M, here=False)
    named = Settings(model=ModelSettings(source="nobody/has-this"))
    assert model_probes.model(named) == Model(SMOLLM2_135M, here=False)
    assert not list(tmp_path.iterdir())


def test_what_is_told_fits_80_columns_and_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "batch_prefill_with_kv_cache_dtype_q_bf16_head_dim_qk_128_posenc_0_use_swa_False"
    show(judge(gpu_machine(B200, replace(COMPILED, targets={name: HOPPER})), Settings()), False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert name in "".join(line[27:].strip() for line in lines)


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_this_machine_can_be_examined_for_the_toy() -> None:
    said = doctor("--set", "model.source=toy")
    assert said.exit_code == 0
    assert "would run" in said.stdout


@pytest.mark.parametrize(
    ("settings", "topic", "said", "advice"),
    [
        (["scheduler.name=fcsf"], "scheduler", "'fcsf' is unknown", "walkway schedulers"),
        (["scheduler.options={x=1}"], "scheduler", "no option 'x'", "walkway schedulers"),
        (["engine.tensor_parallel=2"], "model", "no layers to split", "engine.tensor_parallel"),
    ],
)
def test_what_would_not_start_is_a_fault_with_advice(
    settings: list[str], topic: str, said: str, advice: str
) -> None:
    sets = [part for setting in settings for part in ("--set", setting)]
    found = doctor("--json", "--set", "model.source=toy", *sets)
    assert found.exit_code == 1
    faulty = [f for f in json.loads(found.stdout)["findings"] if f["grade"] == "fault"]
    assert [f["topic"] for f in faulty] == [topic]
    assert said in faulty[0]["said"] and advice in faulty[0]["advice"]


def test_for_programs_it_is_json_and_an_exit_code() -> None:
    said = doctor("--json", "--set", "model.source=/no/such/model")
    assert said.exit_code == 1
    found = json.loads(said.stdout)
    assert not found["runs"]
    grades = {finding["topic"]: finding["grade"] for finding in found["findings"]}
    assert grades["model"] == "fault"
    assert grades["torch"] == "ok"


def test_a_wrong_setting_is_a_mistake_in_the_call() -> None:
    assert doctor("--set", "model.sauce=toy").exit_code == 2
