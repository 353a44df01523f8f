"""Looks at GPUs for `walkway doctor`, by the driver's library (NVML) where it is there and by
torch, and at FlashInfer's compiled kernels."""

import os
from pathlib import Path
from types import ModuleType

import torch

from cli.machine import Gpu, GpuKernels, Gpus, Workspace
from memory.attention.gpu_targets import library_targets, read_targets
from memory.attention.interface import KVSpec

WORKSPACE_VARIABLE = "FLASHINFER_WORKSPACE_BASE"


def gpus() -> Gpus:
    """All GPUs of this machine, those that torch cannot use included."""
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    nvml = _nvml()
    if nvml is None:
        return Gpus(tuple(map(_by_torch, range(seen))), None, None, torch.version.cuda, seen)
    try:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return Gpus(
            gpus=tuple(_by_nvml(nvml, handle) for handle in handles),
            driver=nvml.nvmlSystemGetDriverVersion(),
            driver_cuda=_cuda_version(nvml.nvmlSystemGetCudaDriverVersion_v2()),
            torch_cuda=torch.version.cuda,
            seen_by_torch=seen,
        )
    finally:
        nvml.nvmlShutdown()


def _nvml() -> ModuleType | None:
    """The driver's library, started; None without it or its Python package."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    started: ModuleType = pynvml
    return started


def _by_nvml(nvml: ModuleType, handle: object) -> Gpu:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(nvml.nvmlDeviceGetName(handle), (major, minor), memory.total, memory.free)


def _by_torch(index: int) -> Gpu:
    found = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    return Gpu(found.name, (found.major, found.minor), total, free)


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def workspace() -> Workspace:
    """Where FlashInfer writes; looked at without importing it, since the import writes."""
    named = os.environ.get(WORKSPACE_VARIABLE)
    folder = Path(named) if named else Path.home()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    writable = os.access(existing, os.W_OK | os.X_OK)
    return Workspace(str(folder / ".cache" / "flashinfer"), named is not None, writable)


def gpu_kernels(spec: KVSpec) -> GpuKernels:
    """FlashInfer's modules for keys and values of this shape."""
    from memory.attention.flashinfer_kernels import modules

    libraries = {module.name: module.library for module in modules(spec)}
    there = {name: library for name, library in libraries.items() if library is not None}
    cached = {name for name, library in there.items() if "cached_ops" in library.parts}
    return GpuKernels(
        installed=tuple(name for name in there if name not in cached),
        cached=tuple(sorted(cached)),
        missing=tuple(name for name in libraries if name not in there),
        may_compile=not os.environ.get("FLASHINFER_DISABLE_JIT"),
        targets={name: library_targets(library) for name, library in there.items()},
        compiles_for=read_targets(os.environ.get("FLASHINFER_CUDA_ARCH_LIST", "")),
    )
