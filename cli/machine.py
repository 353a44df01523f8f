"""What `walkway doctor` found, as plain values: a test can make up any machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory.attention.gpu_targets import Target

if TYPE_CHECKING:  # it imports torch, which may be what is broken
    from models.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Fault:
    """A probe that failed, and why in one line."""

    why: str


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package; `version` is None where it is missing, `wanted` a specifier as
    in pyproject.toml, empty where none is known."""

    version: str | None
    wanted: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as its driver describes it."""

    name: str
    capability: tuple[int, int]
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Gpus:
    """All GPUs, the driver's version and the newest CUDA that it runs. `seen_by_torch` counts
    those that torch can use; `torch_cuda` is the CUDA it was built for, if any."""

    gpus: tuple[Gpu, ...]
    driver: str | None
    driver_cuda: str | None
    torch_cuda: str | None
    seen_by_torch: int


@dataclass(frozen=True, slots=True)
class Model:
    """The configured model's shape, None for the toy, and whether its files are here. One
    that is not has the default model's shape until it was fetched."""

    config: "ModelConfig | None"
    here: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """What the loader would take: device, dtype and attention backend, and why."""

    device: str
    dtype: str
    attention: str
    why: str


@dataclass(frozen=True, slots=True)
class GpuKernels:
    """FlashInfer's modules for this model: installed with the package, compiled here before
    (ninja still looks at each), or to be compiled, which `FLASHINFER_DISABLE_JIT` forbids.
    `targets` are the GPUs that each of those that are there was compiled for, empty where that
    cannot be told; `compiles_for` those of FLASHINFER_CUDA_ARCH_LIST, empty without it."""

    installed: tuple[str, ...]
    cached: tuple[str, ...]
    missing: tuple[str, ...]
    may_compile: bool
    targets: Mapping[str, frozenset[Target]] = field(default_factory=dict)
    compiles_for: frozenset[Target] = frozenset()


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where FlashInfer writes: at its import already."""

    path: str
    variable_set: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class Processor:
    """The CPU. `level` is that of our C++ kernels, or None and `level_why` says why they
    cannot be used; `products` names what multiplies, by dtype."""

    cores: int
    quota_cores: float | None
    torch_level: str
    torch_threads: int
    level: str | None
    level_why: str
    products: Mapping[str, str]
    fastest_dtype: str


@dataclass(frozen=True, slots=True)
class Room:
    """Memory that can be allocated now, and a container's limit where there is one."""

    available_bytes: int
    limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """/dev/shm: what processes share. `size_bytes` is the most that it holds."""

    writable: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Invariance:
    """Whether a row's products depend on its batch. `holds` is None where it was not
    measured; `why` says why not, or what depends."""

    holds: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Serving:
    """What would become of the model here: None and no bytes where that does not apply.
    `host_bytes` is what all ranks take of the machine's memory, `device_bytes` what each takes
    of its GPU at least, and `context_bytes` what one request of the longest context takes of
    a rank's pool beyond the least that `device_bytes` counts."""

    choice: Choice | Fault | None = None
    gpu_kernels: GpuKernels | Fault | None = None
    invariance: Invariance | Fault | None = None
    host_bytes: int = 0
    device_bytes: int = 0
    context_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that was looked at. A `Fault` stands for what could not be, or for a
    scheduler that cannot be made."""

    packages: Mapping[str, Package]
    gpus: Gpus | Fault
    model: Model | Fault
    serving: Serving
    scheduler: Fault | None
    tools: Mapping[str, str | None]
    workspace: Workspace | Fault
    processor: Processor | Fault
    room: Room | Fault
    shared_memory: SharedMemory | Fault
