"""What a machine means for the settings: pure, so that tests can make up machines."""

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from cli.findings import Finding, fault, note, ok
from cli.gpu_verdicts import FLASHINFER, gpu_findings
from cli.host_verdicts import host_findings
from cli.machine import Choice, Fault, Machine, Model, Package
from service.settings import Settings


def judge(machine: Machine, settings: Settings) -> list[Finding]:
    """Everything worth a line, the decisions first. The configuration would run where none
    is a fault."""
    return [
        _model(machine.model, settings),
        *_choice(machine, settings),
        _scheduler(machine.scheduler, settings),
        *_packages(machine, settings),
        *gpu_findings(machine, settings),
        *host_findings(machine, settings),
    ]


def _model(found: Model | Fault, settings: Settings) -> Finding:
    source = settings.model.source
    if isinstance(found, Fault):
        several = settings.engine.tensor_parallel > 1
        advice = "set model.source or engine.tensor_parallel" if several else "set model.source"
        return fault("model", f"{source}: {found.why}", advice)
    c = found.config
    if c is None:
        return ok("model", f"{source}: it needs no attention and no products")
    shape = (
        f"{c.family}, {c.num_layers} layers of {c.hidden_size}, {c.num_q_heads} query and "
        f"{c.num_kv_heads} KV heads of {c.head_dim}"
    )
    if found.here:
        return ok("model", f"{source}: {shape}")
    if source == "default":
        return note("model", f"default: {shape}; not here yet", "`walkway serve` fetches it")
    said = f"{source} is not here yet: all that follows is for the default model's shape"
    return note("model", said, "fetch it (`walkway serve` does), then ask again")


def _choice(machine: Machine, settings: Settings) -> Iterator[Finding]:
    found = machine.serving.choice
    if found is None:
        return
    if isinstance(found, Fault):
        advice = "attention.backend, model.device and model.dtype = auto take what is there"
        yield fault("backend", found.why, advice)
        return
    how = "auto" if settings.model.device == "auto" else "requested"
    yield ok("device", f"{found.device}, {how}")
    said = f"{found.attention}: {found.why}"
    fell_back = found.attention == "reference" and settings.attention.backend == "auto"
    yield note("attention", said) if fell_back else ok("attention", said)
    how = "what auto means here" if settings.model.dtype == "auto" else "requested"
    yield ok("dtype", f"{found.dtype}, {how}")


def _scheduler(found: Fault | None, settings: Settings) -> Finding:
    if found is None:
        return ok("scheduler", settings.scheduler.name)
    advice = (
        "set scheduler.name and scheduler.options: `walkway schedulers` shows what there is"
    )
    return fault("scheduler", found.why, advice)


def _packages(machine: Machine, settings: Settings) -> Iterator[Finding]:
    choice = machine.serving.choice
    for name, found in machine.packages.items():
        if name == FLASHINFER:
            yield _flashinfer(found, choice, settings.attention.backend == "flashinfer")
        elif found.version is None:
            yield fault(name, "not installed", _install(name, found))
        elif _in_range(found):
            yield ok(name, found.version)
        else:
            yield note(name, f"{found.version}, not {found.wanted}", _install(name, found))


def _flashinfer(found: Package, choice: Choice | Fault | None, requested: bool) -> Finding:
    made = choice if isinstance(choice, Choice) else None
    if found.version is None:
        if requested or (made is not None and made.device != "cpu"):
            return note(FLASHINFER, "not installed", _install(FLASHINFER, found))
        return ok(FLASHINFER, "not installed; it is for GPUs")
    if _in_range(found):
        return ok(FLASHINFER, found.version)
    grade = fault if made is not None and made.attention == "flashinfer" else note
    return grade(
        FLASHINFER, f"{found.version}, not {found.wanted}", _install(FLASHINFER, found)
    )


def _in_range(found: Package) -> bool:
    return SpecifierSet(found.wanted).contains(found.version or "", prereleases=True)


def _install(name: str, found: Package) -> str:
    return f"pip install '{name}{found.wanted}'"
