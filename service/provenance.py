"""Where each setting's value comes from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from service.settings import Settings

UNITS = {
    "_bytes": "bytes",
    "_ms": "milliseconds",
    "_s": "seconds",
    "_tokens": "tokens",
    "_pages": "pages",
    "_rows": "rows",
    "_requests": "requests",
}
"""By the end of a setting's name."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is in force: `source` is `default` or the strongest that names it."""

    name: str
    value: object
    default: object
    source: str
    description: str

    @property
    def unit(self) -> str | None:
        """What a number of it counts, where its name says so."""
        ends = (unit for end, unit in UNITS.items() if self.name.endswith(end))
        return next(ends, None)


def described(
    settings: Settings, sources: Mapping[str, Mapping[str, Any]]
) -> Iterator[Setting]:
    """All of them, by group. `sources` are the trees that were read, strongest first."""
    for group, name, field in fields():
        given = (source for source, tree in sources.items() if name in tree.get(group, {}))
        yield Setting(
            name=f"{group}.{name}",
            value=getattr(getattr(settings, group), name),
            default=field.get_default(call_default_factory=True),
            source=next(given, "default"),
            description=field.description or "",
        )


def fields() -> Iterator[tuple[str, str, FieldInfo]]:
    """Group, name and field of each setting."""
    for group, of_group in Settings.model_fields.items():
        of_field = getattr(of_group.annotation, "model_fields", {})
        yield from ((group, name, field) for name, field in of_field.items())


def names() -> list[str]:
    """`group.field` of each setting."""
    return [f"{group}.{name}" for group, name, _ in fields()]
