"""Advice as settings of the service."""

import json
from collections.abc import Iterator, Mapping

from bench.advice.trial import Candidate
from bench.simulation.profile import Profile


def as_toml(candidate: Candidate, profile: Profile) -> str:
    """What to write into the configuration file."""
    return "\n".join(_lines(candidate, candidate.machine(profile)))


def _lines(candidate: Candidate, machine: Profile) -> Iterator[str]:
    yield "[scheduler]"
    yield f"name = {_value(candidate.choice.name)}"
    if candidate.choice.options:
        yield f"options = {_value(candidate.choice.options)}"
    yield ""
    yield "[engine]"
    yield f"max_rows = {machine.max_rows}"
    yield f"max_step_tokens = {machine.max_step_tokens}"
    if machine.target_gap_s is not None:
        yield f"target_gap_ms = {1000 * machine.target_gap_s:g}"


def _value(value: object) -> str:
    """A TOML value: JSON's are the same but for tables and infinite numbers."""
    if isinstance(value, Mapping):
        pairs = (f"{_value(name)} = {_value(of)}" for name, of in value.items())
        return f"{{ {', '.join(pairs)} }}"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
