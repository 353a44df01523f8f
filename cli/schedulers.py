"""Shows which schedulers there are, and what each can be told."""

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_type_hints

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from schedulers.interface import ALWAYS, Promise
from schedulers.registry import BUILT_IN, GROUP, UnknownScheduler, find


def show_schedulers() -> None:
    """A table of all that `scheduler.name` can find; `package.module:Class` comes on top."""
    table = Table(show_header=False, show_lines=True)
    for name, source in sorted(_sources().items()):
        table.add_row(f"[bold]{escape(name)}[/]\n{escape(source)}", "\n".join(_lines(name)))
    console = Console(highlight=False)
    console.print(table)
    console.print("Every one promises: " + ", ".join(_names(ALWAYS)) + ".")
    console.print("Any other by its path: package.module:Class.")


def _sources() -> dict[str, str]:
    """Where each name comes from; a built-in name wins, as it does when it is looked up."""
    found = {point.name: _distribution(point) for point in entry_points(group=GROUP)}
    return found | dict.fromkeys(BUILT_IN, "built in")


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _lines(name: str) -> Iterator[str]:
    try:
        found = find(name)
    except UnknownScheduler as error:
        yield f"[red]{escape(str(error))}[/]"
        return
    doc = (found.__doc__ or "").strip().split("\n\n")[0]
    yield escape(" ".join(doc.split()))
    types = get_type_hints(found.Options)
    for option in fields(found.Options):
        yield escape(_option(option, types[option.name]))
    more = _names(found.promises - ALWAYS)
    yield escape("promises " + ", ".join(more)) if more else "promises nothing more"


def _option(option: Field[Any], type_: Any) -> str:
    spelled = type_.__name__ if isinstance(type_, type) else str(type_).replace("typing.", "")
    text = f"- {option.name}: {spelled}"
    if option.default is not MISSING:
        text += f" = {getattr(option.default, 'value', option.default)!r}"
    doc = option.metadata.get("doc", "")
    return f"{text}: {doc}" if doc else text


def _names(promises: frozenset[Promise]) -> list[str]:
    return [promise.value for promise in Promise if promise in promises]
