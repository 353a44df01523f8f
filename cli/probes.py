"""Looks at the machine for `walkway doctor`: packages, processor and memory.

A probe imports what it looks at when it runs and may raise anything: `attempt` turns that
into a line, since a doctor that dies of what it looks for is of no use.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from packaging.requirements import Requirement

from cli.machine import Fault, Package, Processor, Room, SharedMemory
from service.settings import Settings
from service.strategy import make_scheduler

PACKAGES = ("torch", "transformers", "grpcio", "flashinfer-python")
TOOLS = ("nvcc", "ninja", "c++")

_CGROUP = Path("/sys/fs/cgroup")

T = TypeVar("T")


def attempt(probe: Callable[[], T]) -> T | Fault:
    """What the probe found, or why it could not look."""
    try:
        return probe()
    except Exception as error:
        lines = str(error).strip().splitlines()
        return Fault(lines[0] if lines else type(error).__name__)


def packages() -> Mapping[str, Package]:
    """Those that decide what can run, by their names on the index."""
    wanted = _requirements()
    return {name: Package(_version(name), wanted.get(name, "")) for name in PACKAGES}


def _requirements() -> Mapping[str, str]:
    """What our own installation says it needs, extras included."""
    try:
        lines = metadata.requires("walkway") or []
    except metadata.PackageNotFoundError:  # run from a checkout
        return {}
    return {found.name: str(found.specifier) for found in map(Requirement, lines)}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def scheduler(settings: Settings) -> Fault | None:
    """Why the chosen strategy cannot be made, if so."""
    chosen = settings.scheduler
    made = attempt(lambda: make_scheduler(chosen.name, chosen.options))
    return made if isinstance(made, Fault) else None


def tools() -> Mapping[str, str | None]:
    """Where the programs are that compile FlashInfer's kernels."""
    return {name: shutil.which(name) for name in TOOLS}


def processor() -> Processor:
    """The CPU, and what multiplies on it."""
    import torch

    from memory.kernels.library import KernelsMissing, level
    from models.available_cores import available_cores, threads_for
    from models.linear import cpu_kernel, fastest_dtype

    try:
        native, why = level(), ""
    except KernelsMissing as error:
        native, why = None, str(error)
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16}
    cores = available_cores()
    return Processor(
        cores=cores.affinity,
        quota_cores=cores.quota,
        torch_level=torch.backends.cpu.get_cpu_capability(),
        torch_threads=threads_for(0),
        level=native,
        level_why=why,
        products={name: cpu_kernel(dtype)[1] for name, dtype in dtypes.items()},
        fastest_dtype=fastest_dtype(),
    )


def room() -> Room:
    """Memory that can be allocated now."""
    from models.available_memory import available_bytes

    return Room(available_bytes(), limit_bytes(_CGROUP))


def shared_memory(folder: Path = Path("/dev/shm")) -> SharedMemory:
    """Where the engine's process and its front end share a number, and ranks far more."""
    found = os.statvfs(folder)
    writable = os.access(folder, os.W_OK) and not found.f_flag & os.ST_RDONLY
    return SharedMemory(writable, found.f_blocks * found.f_frsize)


def limit_bytes(cgroup: Path) -> int | None:
    """A container's memory limit (cgroup v2), None without one."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
    except FileNotFoundError:
        return None
    return None if limit == "max" else int(limit)
