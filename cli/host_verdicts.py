"""What the processor and the memory mean for the settings."""

from collections.abc import Iterator

from cli.findings import Finding, fault, note, ok
from cli.machine import Choice, Fault, Invariance, Machine, Processor, Room
from models.sizes import in_units
from service.settings import Settings

RANKS_SHARE_BYTES = 2**30
"""NCCL keeps its buffers in /dev/shm, of which a container gets 64 MiB by default."""

BUILD_KERNELS = "install a C++ compiler (g++), then install walkway again"


def host_findings(machine: Machine, settings: Settings) -> Iterator[Finding]:
    """Slower than it could be is a note, too little memory a fault."""
    if isinstance(machine.processor, Fault):
        yield note("CPU", machine.processor.why)
    else:
        yield from _processor(machine.processor, machine.serving.choice, settings)
    if machine.serving.invariance is not None:
        yield _invariance(machine.serving.invariance)
    yield _room(machine.room, machine.serving.host_bytes)
    yield _shared_memory(machine, settings)


def _processor(
    cpu: Processor, choice: Choice | Fault | None, settings: Settings
) -> Iterator[Finding]:
    on_cpu = not isinstance(choice, Choice) or choice.device == "cpu"
    if cpu.level is not None:
        yield ok("C++ kernels", f"built, {cpu.level}")
    elif on_cpu:
        yield note("C++ kernels", cpu.level_why, BUILD_KERNELS)
    else:
        yield ok("C++ kernels", f"{cpu.level_why}; they are for CPUs")
    said = f"torch uses {cpu.torch_level}, fastest is {cpu.fastest_dtype}; products "
    said += "; ".join(f"in {dtype}: {by}" for dtype, by in cpu.products.items())
    dtype = choice.dtype if isinstance(choice, Choice) and choice.device == "cpu" else None
    if dtype == "bf16" and cpu.fastest_dtype != "bf16":
        yield note("CPU", said, "fp32 is faster without bf16 instructions: model.dtype = auto")
    else:
        yield ok("CPU", said)
    threads = settings.engine.threads or cpu.torch_threads
    yield _threads(cpu, threads, settings.engine.tensor_parallel)


def _threads(cpu: Processor, threads: int, ranks: int) -> Finding:
    cores = cpu.cores if cpu.quota_cores is None else min(cpu.cores, cpu.quota_cores)
    own = max(1, threads // ranks)
    said = f"{own} on {cores:g} cores" if ranks == 1 else f"{ranks} x {own} on {cores:g} cores"
    if ranks * own <= cores:
        return ok("threads", said)
    most = max(1, int(cores))
    if ranks > most:
        return note("threads", said, f"lower engine.tensor_parallel to {most}")
    return note("threads", said, f"set engine.threads = {most}")


def _invariance(found: Invariance | Fault) -> Finding:
    topic = "batch invariance"
    if isinstance(found, Fault):
        return note(topic, found.why)
    if found.holds:
        return ok(topic, "holds: an answer's bits do not depend on its batch")
    if found.holds is None:
        return ok(topic, found.why)
    return note(topic, f"does not hold: {found.why}")


def _room(found: Room | Fault, wanted_bytes: int) -> Finding:
    if isinstance(found, Fault):
        return note("memory", found.why)
    limit = "no limit" if found.limit_bytes is None else f"limit {in_units(found.limit_bytes)}"
    said = f"{in_units(found.available_bytes)} available ({limit})"
    if not wanted_bytes:
        return ok("memory", said)
    said += f"; weights, pool and host store take {in_units(wanted_bytes)}"
    if wanted_bytes > found.available_bytes:
        return fault("memory", said, "lower memory.pool_bytes or memory.host_bytes")
    return ok("memory", said)


def _shared_memory(machine: Machine, settings: Settings) -> Finding:
    topic, found = "shared memory", machine.shared_memory
    if isinstance(found, Fault):
        return fault(
            topic, found.why, "mount /dev/shm: a container does unless told --ipc=none"
        )
    size = in_units(found.size_bytes)
    if not found.writable:
        return fault(
            topic, "/dev/shm cannot be written", "docker run --ipc=host, or --shm-size"
        )
    choice, ranks = machine.serving.choice, settings.engine.tensor_parallel
    on_gpus = isinstance(choice, Choice) and choice.device != "cpu" and ranks > 1
    if on_gpus and found.size_bytes < RANKS_SHARE_BYTES:
        said = f"/dev/shm holds {size}, through which {ranks} ranks talk"
        return note(topic, said, "docker run --ipc=host")
    return ok(topic, f"/dev/shm holds {size}")
