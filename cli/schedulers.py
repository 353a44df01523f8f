"""Shows which schedulers there are, and what each can be told."""

from collections.abc import Iterator
from dataclasses import MISSING, fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_type_hints

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.as_json import print_json
from schedulers.interface import ALWAYS, Promise
from schedulers.registry import BUILT_IN, GROUP, UnknownScheduler, find


def show_schedulers(as_json: bool) -> None:
    """A table of all that `scheduler.name` can find; `package.module:Class` comes on top."""
    if as_json:
        print_json([_plain(name, source) for name, source in sorted(sources().items())])
        return
    table = Table(show_header=False, show_lines=True)
    for name, source in sorted(sources().items()):
        table.add_row(f"[bold]{escape(name)}[/]\n{escape(source)}", "\n".join(_lines(name)))
    console = Console(highlight=False)
    console.print(table)
    console.print("Every one promises: " + ", ".join(_names(ALWAYS)) + ".")
    console.print("Any other by its path: package.module:Class.")


def sources() -> dict[str, str]:
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
    yield escape(_purpose(found))
    for option in _options(found):
        text = f"- {option['name']}: {option['type']}"
        if "default" in option:
            text += f" = {option['default']!r}"
        yield escape(f"{text}: {option['doc']}" if option["doc"] else text)
    more = _names(found.promises - ALWAYS)
    yield escape("promises " + ", ".join(more)) if more else "promises nothing more"


def _plain(name: str, source: str) -> dict[str, object]:
    """The same for programs; `error` where it cannot be imported."""
    try:
        found = find(name)
    except UnknownScheduler as error:
        return {"name": name, "source": source, "error": str(error)}
    return {
        "name": name,
        "source": source,
        "doc": _purpose(found),
        "options": list(_options(found)),
        "promises": _names(found.promises),
    }


def _purpose(found: type[Any]) -> str:
    return " ".join((found.__doc__ or "").strip().split("\n\n")[0].split())


def _options(found: type[Any]) -> Iterator[dict[str, Any]]:
    """Name, type, doc and, where there is one, default of each."""
    types = get_type_hints(found.Options)
    for option in fields(found.Options):
        type_ = types[option.name]
        plain_name = type_.__name__ if isinstance(type_, type) else str(type_)
        doc = option.metadata.get("doc", "")
        shown = {"name": option.name, "type": plain_name.replace("typing.", ""), "doc": doc}
        if option.default is not MISSING:
            shown["default"] = getattr(option.default, "value", option.default)
        yield shown


def _names(promises: frozenset[Promise]) -> list[str]:
    return [promise.value for promise in Promise if promise in promises]
