"""What a shell offers when Tab is pressed. Each imports what it asks when it is asked."""

from collections.abc import Iterator


def complete_setting(typed: str) -> Iterator[str]:
    """Names of settings, and of a choice its values."""
    from typing import Literal, get_args, get_origin

    from service.settings import Settings

    for group, field in Settings.model_fields.items():
        for name, inner in getattr(field.annotation, "model_fields", {}).items():
            start = f"{group}.{name}="
            values = (
                get_args(inner.annotation) if get_origin(inner.annotation) is Literal else ("",)
            )
            yield from (f"{start}{v}" for v in values if f"{start}{v}".startswith(typed))


def complete_scheduler(typed: str) -> list[str]:
    """Names that `scheduler.name` finds."""
    from cli.schedulers import sources

    return [name for name in sorted(sources()) if name.startswith(typed)]


def complete_profile(typed: str) -> list[str]:
    """Profiles that come with walkway."""
    from bench.simulation.catalogue import names

    return [name for name in names() if name.startswith(typed)]
