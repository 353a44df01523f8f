"""Puts marks (see `models.quoting`) for the control tokens that a chat template writes.

Done on the parsed template. Text and constants are marked, except where the template looks at
something: there marks are spelled out again, so that `content.split('</think>')` finds what the
caller sent.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from models.quoting import Marks

SPELLED, COMPOSED = "walkway.spelled", "walkway.composed"
"""Names of the filters that a marked template calls."""
ROLES = frozenset((
    "system", "developer", "user", "human", "assistant", "model", "bot", "tool", "function",
    "ipython", "observation",
))  # fmt: skip
"""Roles with which a template may compose a control token, as in `<|{{ message.role }}|>`."""

_TELLS = frozenset(("startswith", "endswith", "find", "rfind", "index", "rindex", "count"))
_CUTS = frozenset((
    "split", "rsplit", "partition", "rpartition", "replace", "removeprefix", "removesuffix",
    "strip", "lstrip", "rstrip",
))  # fmt: skip
_COMPARES = frozenset(("eq", "equalto", "==", "ne", "!=", "in"))
_LOOKING_FILTERS = frozenset(("replace", "select", "reject", "selectattr", "rejectattr"))


def mark_template(tree: nodes.Template, marks: Marks) -> nodes.Template:
    """The template, changed in place."""
    _compose_roles(tree, marks)
    _Marking(marks).visit(tree)
    return tree


def filters(marks: Marks) -> dict[str, Callable[..., object]]:
    """What a marked template calls besides its own filters."""

    def spelled(value: object) -> object:
        if isinstance(value, str):
            return marks.spell(value)
        if isinstance(value, list | tuple):
            return [spelled(item) for item in value]
        return value

    def composed(role: object, before: str, after: str) -> str:
        token = f"{before}{role}{after}"
        return marks[token] if role in ROLES and token in marks else token

    return {SPELLED: spelled, COMPOSED: composed}


class _Marking(NodeTransformer):
    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def visit_Const(self, node: nodes.Const) -> nodes.Const:  # noqa: N802  jinja's names
        if isinstance(node.value, str):
            node.value = self._marks.mark(node.value)
        return node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.TemplateData:  # noqa: N802
        node.data = self._marks.mark(node.data)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _spelled(node.expr)
        for operand in node.ops:
            operand.expr = _spelled(operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            node.arg = _spelled(node.arg)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _spelled(node.key)
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.name in _COMPARES:
            node.node = _spelled(node.node)
            node.args = [_spelled(arg) for arg in node.args]
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.name in _LOOKING_FILTERS and node.args:
            looking = 1 if node.name == "replace" else len(node.args)
            node.args = [
                _spelled(arg) if i < looking else arg for i, arg in enumerate(node.args)
            ]
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        method = node.node
        if not isinstance(method, nodes.Getattr):
            return node
        if method.attr in _TELLS:
            method.node = _spelled(method.node)
        if method.attr in _TELLS | _CUTS:
            looking = 1 if method.attr == "replace" else len(node.args)
            node.args = [
                _spelled(arg) if i < looking else arg for i, arg in enumerate(node.args)
            ]
        return node


def _spelled(node: nodes.Expr) -> nodes.Expr:
    if isinstance(node, nodes.Const) and not isinstance(node.value, str):
        return node
    return nodes.Filter(node, SPELLED, [], [], None, None, lineno=node.lineno)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an expression stands in the tree."""

    parent: nodes.Node
    field: str
    index: int | None = None

    def get(self) -> nodes.Node:
        held = getattr(self.parent, self.field)
        found: nodes.Node = held if self.index is None else held[self.index]
        return found

    def put(self, node: nodes.Node) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def _compose_roles(tree: nodes.Template, marks: Marks) -> None:
    """`'<|' + role + '|>'` becomes one call that answers with a mark, where some of `ROLES`
    make a control token of it."""
    for sequence in list(tree.find_all((nodes.Output, nodes.Add, nodes.Concat))):
        places = list(_parts(sequence))
        for before, role, after in zip(places, places[1:], places[2:], strict=False):
            if not _is_role(role.get()):
                continue
            found = _around(_text(before.get()), _text(after.get()), marks)
            if found is not None:
                start, end = found
                before.put(_with_text(before.get(), _text(before.get())[: -len(start)]))
                after.put(_with_text(after.get(), _text(after.get())[len(end) :]))
                args: list[nodes.Expr] = [nodes.Const(start), nodes.Const(end)]
                role.put(nodes.Filter(role.get(), COMPOSED, args, [], None, None))


def _parts(node: nodes.Node) -> Iterator[_Place]:
    """What is joined to one text here, from left to right."""
    if isinstance(node, nodes.Add):
        places = [_Place(node, "left"), _Place(node, "right")]
    else:
        places = [_Place(node, "nodes", i) for i in range(len(node.nodes))]  # type: ignore[attr-defined]
    for place in places:
        if isinstance(place.get(), nodes.Add | nodes.Concat):
            yield from _parts(place.get())
        else:
            yield place


def _is_role(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "role"
    return (isinstance(node, nodes.Getattr) and node.attr == "role") or (
        isinstance(node, nodes.Name) and node.name == "role"
    )


def _text(node: nodes.Node) -> str:
    if isinstance(node, nodes.TemplateData):
        return node.data
    return node.value if isinstance(node, nodes.Const) and isinstance(node.value, str) else ""


def _with_text(node: nodes.Node, text: str) -> nodes.Node:
    kind = nodes.TemplateData if isinstance(node, nodes.TemplateData) else nodes.Const
    return kind(text, lineno=node.lineno)


def _around(before: str, after: str, marks: Marks) -> tuple[str, str] | None:
    """The ends of the longest control token that a role completes here."""
    split = (token.partition(role) for token in marks for role in ROLES if role in token)
    found = [
        (start, end)
        for start, role, end in split
        if start and end and before.endswith(start) and after.startswith(end)
    ]
    return max(found, key=lambda ends: len(ends[0]), default=None)
