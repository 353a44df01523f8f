"""What the GPUs and FlashInfer's compiled kernels mean for the settings."""

from collections.abc import Iterator

from cli.findings import Finding, Grade, fault, note, ok
from cli.machine import Choice, Fault, Gpu, GpuKernels, Gpus, Machine, Model, Serving, Workspace
from memory.attention.gpu_targets import run_on, spelled
from models.sizes import in_units
from service.settings import Settings

LEAST_CAPABILITY = (8, 0)
"""FlashInfer's fa2 kernels in bf16."""

FLASHINFER = "flashinfer-python"
REMEDIES = {
    "nvcc": "nvcc: install the CUDA toolkit that torch was built for, or use the GPU image",
    "ninja": "ninja: pip install ninja",
    "c++": "c++: install a C++ compiler (g++)",
}


def gpu_findings(machine: Machine, settings: Settings) -> Iterator[Finding]:
    """Silent about FlashInfer where the model would not run on a GPU."""
    made = machine.serving.choice
    choice = made if isinstance(made, Choice) else None
    on_gpu = choice is not None and choice.device != "cpu"
    found = machine.gpus
    if isinstance(found, Fault):
        yield note("GPU", found.why)
    elif not found.gpus:
        yield ok("GPU", "none")
    else:
        yield from _gpus(found, on_gpu)
        if on_gpu:
            yield from _ranks(found, settings)
            yield _fits(found, machine.serving, settings)
    in_use = choice is not None and choice.attention == "flashinfer"
    if choice is not None and in_use:
        yield _kernels(machine, choice, settings)
    if on_gpu and machine.packages[FLASHINFER].version is not None:
        yield _workspace(machine.workspace, in_use)


def _gpus(found: Gpus, on_gpu: bool) -> Iterator[Finding]:
    for index, gpu in enumerate(found.gpus):
        yield _gpu(index, gpu, on_gpu)
    said = f"driver {found.driver or 'unknown'}, for CUDA up to {found.driver_cuda or '?'}; "
    said += f"torch is built for {found.torch_cuda or 'the CPU only'}"
    if found.seen_by_torch:
        yield ok("CUDA", said)
    elif found.torch_cuda is None:
        yield note("CUDA", said, "install a torch that is built for CUDA")
    elif _newer(found.torch_cuda, found.driver_cuda):
        yield note("CUDA", said, f"a driver for CUDA {found.torch_cuda}, or an older torch")
    else:
        said += ", and finds no GPU"
        yield note("CUDA", said, "look at CUDA_VISIBLE_DEVICES and at the container's devices")


def _gpu(index: int, gpu: Gpu, on_gpu: bool) -> Finding:
    major, minor = gpu.capability
    said = (
        f"{gpu.name}, capability {major}.{minor}, {in_units(gpu.free_bytes)} of "
        f"{in_units(gpu.total_bytes)} free"
    )
    if on_gpu and gpu.capability < LEAST_CAPABILITY:
        advice = "a GPU of capability 8.0 or more for FlashInfer"
        return note(f"GPU {index}", said, advice)
    return ok(f"GPU {index}", said)


def _ranks(found: Gpus, settings: Settings) -> Iterator[Finding]:
    ranks = settings.engine.tensor_parallel
    if ranks > found.seen_by_torch:
        said = f"{ranks} ranks, and torch finds {found.seen_by_torch} GPUs"
        yield fault("tensor parallel", said, "lower engine.tensor_parallel")


def _fits(found: Gpus, serving: Serving, settings: Settings) -> Finding:
    """On the GPU with the least free memory of those that the ranks get; of the best where
    it is not known which those are."""
    topic, need, ranks = "GPU memory", serving.device_bytes, settings.engine.tensor_parallel
    best = sorted(found.gpus, key=lambda gpu: -gpu.free_bytes)
    used = found.gpus if _all_seen(found) else best
    free = min(gpu.free_bytes for gpu in used[:ranks])
    said = f"weights, pool and working memory take {in_units(need)} or more"
    if ranks > 1:
        said += " of each"
    if need > free:
        advice = "free it, lower memory.pool_bytes or raise engine.tensor_parallel"
        return fault(topic, f"{said}, and {in_units(free)} are free", advice)
    left = int((free - need) * settings.memory.device_fraction)
    said += f"; {in_units(left)} are left for the pool"
    if left < serving.context_bytes:
        said += (
            f", and a request of the longest context takes {in_units(serving.context_bytes)}"
        )
        return note(topic, said, "lower model.max_context_tokens: longer ones are refused")
    return ok(topic, said)


def _all_seen(found: Gpus) -> bool:
    """Whether torch finds every GPU: the ranks get the first ones then."""
    return found.seen_by_torch == len(found.gpus)


def _kernels(machine: Machine, choice: Choice, settings: Settings) -> Finding:
    topic, found = "GPU kernels", machine.serving.gpu_kernels
    if found is None or isinstance(found, Fault):
        why = found.why if found else "not looked at"
        return note(topic, f"whether they are compiled is not known: {why}")
    other = None
    if not isinstance(machine.gpus, Fault):
        other = _for_other_gpus(found, machine.gpus, settings.engine.tensor_parallel)
    if other is not None:
        return other
    if not found.missing and not found.cached:
        return ok(topic, f"all {len(found.installed)} are compiled, with the package")
    ready = len(found.installed) + len(found.cached)
    said = f"{ready} of {ready + len(found.missing)} are compiled"
    if not found.may_compile:
        # FlashInfer would ask ninja about the others, and is not allowed to.
        said = f"FLASHINFER_DISABLE_JIT forbids to build {(*found.missing, *found.cached)[0]}"
        return fault(topic, said, "unset it, or use an image that was built for this model")
    needed = ("nvcc", "ninja", "c++") if found.missing else ("ninja",)
    lacking = [name for name in needed if machine.tools.get(name) is None]
    if lacking:
        said += f", and {' and '.join(lacking)} cannot be found"
        return fault(topic, said, "; ".join(REMEDIES[name] for name in lacking))
    if found.missing:
        said += "; the others are at the first start, which takes minutes"
        return note(topic, said, _compile_ahead(machine, choice))
    return ok(topic, f"{said}, by this machine")


def _for_other_gpus(found: GpuKernels, there: Gpus, ranks: int) -> Finding | None:
    """FlashInfer loads an existing module without checking which GPU it was compiled for."""
    gpus = there.gpus[:ranks] if _all_seen(there) else there.gpus
    targets = dict(found.targets)
    if found.missing:
        targets["what FLASHINFER_CUDA_ARCH_LIST compiles"] = found.compiles_for
    for name, of_module in targets.items():
        unfit = [gpu for gpu in gpus if not run_on(of_module, gpu.capability)]
        if not unfit:
            continue
        gpu, (major, minor) = unfit[0].name, unfit[0].capability
        said = f"compiled for {spelled(of_module)}, and {gpu} has {major}.{minor}: {name}"
        variable = f"FLASHINFER_CUDA_ARCH_LIST={major}.{minor}"
        here = name not in found.installed
        advice = f"compile them with {variable}" if here else f"build the image with {variable}"
        certain = _all_seen(there) or len(unfit) == len(gpus)
        return (fault if certain else note)("GPU kernels", said, advice)
    return None


def _compile_ahead(machine: Machine, choice: Choice) -> str:
    command = "compile ahead: python -m memory.attention.flashinfer_kernels"
    if isinstance(machine.model, Model) and machine.model.config is not None:
        command += f" --head-dim {machine.model.config.head_dim} --dtype {choice.dtype}"
    return command


def _workspace(found: Workspace | Fault, in_use: bool) -> Finding:
    grade = Grade.FAULT if in_use else Grade.NOTE
    advice = "set FLASHINFER_WORKSPACE_BASE to a folder that can be written"
    if isinstance(found, Fault):
        return Finding("workspace", grade, found.why, advice)
    if not found.writable:
        said = f"FlashInfer cannot write in {found.path}"
        return Finding("workspace", grade, said, advice)
    where = "FLASHINFER_WORKSPACE_BASE" if found.variable_set else "the home folder"
    return ok("workspace", f"FlashInfer writes in {found.path} ({where})")


def _newer(version: str, than: str | None) -> bool:
    return than is not None and _numbers(version) > _numbers(than)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
