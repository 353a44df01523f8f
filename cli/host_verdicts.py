"""What the processor and the memory mean for the settings."""

from collections.abc import Iterator

from cli.findings import Finding, fault, note, ok
from cli.machine import Choice, Fault, Invariance, Machine, Processor, Room
from service.settings import Settings

BUILD_KERNELS = "install a C++ compiler (g++), then install walkway again"


def host_findings(machine: Machine, settings: Settings) -> Iterator[Finding]:
    """Slower than it could be is a note, too little memory a fault."""
    if isinstance(machine.processor, Fault):
        yield note("CPU", machine.processor.why)
    else:
        yield from _processor(machine.processor, machine.serving.choice, settings)
    if machine.serving.invariance is not None:
        yield _invariance(machine.serving.invariance)
    yield _room(machine.room, machine.serving.wanted_bytes)


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
    limit = "no limit" if found.limit_bytes is None else f"limit {_gib(found.limit_bytes)}"
    said = f"{_gib(found.available_bytes)} available ({limit})"
    if not wanted_bytes:
        return ok("memory", said)
    said += f"; weights, pool and host store take {_gib(wanted_bytes)}"
    if wanted_bytes > found.available_bytes:
        return fault("memory", said, "lower memory.pool_bytes or memory.host_bytes")
    return ok("memory", said)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
