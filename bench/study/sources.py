"""A digest of the code that a result comes from, so that a kept one is known to be of now."""

import ast
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A name that is added to the registry changes no result.
LEFT_OUT = frozenset({"schedulers.registry"})


@cache
def digest(text: str, *modules: str) -> str:
    """Of a text, of modules of this project and of all of them that they import, without
    comments and docstrings."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if path is None or name in found or name in LEFT_OUT:
            continue
        found[name] = path
        waiting.extend(_imports(path))
    total = sha256(text.encode())
    for _, path in sorted(found.items()):
        total.update(_code(path).encode())
    return total.hexdigest()[:16]


def _path(module: str) -> Path | None:
    """None where it is not of this project, or a folder without code."""
    place = ROOT.joinpath(*module.split("."))
    return next(
        (p for p in (place.with_suffix(".py"), place / "__init__.py") if p.exists()), None
    )


@cache
def _imports(path: Path) -> list[str]:
    return list(_names(ast.parse(path.read_text())))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _code(path: Path) -> str:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(body[0]):
            body[0] = ast.Pass()
    return ast.dump(tree)


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
