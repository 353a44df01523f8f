"""The check's outcome for people and as JSON. Standard library only: a machine with a GPU
may have little else."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from bench.gpu.findings import Figure, Outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each part, then one for each figure."""
    lines = [f"| {'part':<16} | {'state':<8} | {'s':>6} | what |", "|---|---|---|---|"]
    lines += (
        f"| {o.part:<16} | {o.state:<8} | {o.seconds:6.1f} | {'; '.join(_words(o))} |"
        for o in outcomes
    )
    figures = [(o.part, figure) for o in outcomes for figure in o.findings.figures]
    if figures:
        lines += ["", "| part | figure | value | gate |", "|---|---|---|---|"]
        lines += (f"| {part} | {f.name} | {shown(f)} | {gate(f)} |" for part, f in figures)
    return "\n".join(lines)


def shown(figure: Figure) -> str:
    """Value and unit, four digits."""
    return f"{figure.value:.4g} {figure.unit}".strip()


def gate(figure: Figure) -> str:
    """What it is held against, and whether it is met."""
    if figure.gate is None:
        return ""
    sign = ">=" if figure.gate.least else "<="
    return f"{sign} {figure.gate.limit:g}: {'met' if figure.met else 'NOT MET'}"


def record(outcome: Outcome) -> dict[str, object]:
    """All of it, for JSON."""
    found = outcome.findings
    return {
        "part": outcome.part,
        "half": outcome.half,
        "state": outcome.state,
        "seconds": round(outcome.seconds, 3),
        "why": outcome.why,
        "checks": found.checks,
        "faults": found.faults,
        "notes": found.notes,
        "details": found.details,
        "figures": [asdict(figure) | {"met": figure.met} for figure in found.figures],
        "traceback": outcome.trace,
    }


def _words(outcome: Outcome) -> Iterator[str]:
    if outcome.why:
        yield outcome.why
    if outcome.findings.checks:
        yield f"{outcome.findings.checks} checks"
    yield from outcome.findings.notes
