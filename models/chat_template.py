"""Renders chat messages with the Jinja template that a model brings.

Templates come with model files, so they run sandboxed. What they may use (filters, globals,
tags, whitespace rules) is what transformers' `apply_chat_template` offers them.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.quoting import Marks
from models.template_marks import filters, mark_template


class ChatTemplateError(Exception):
    """The messages cannot be made a prompt. The message is for the caller."""


class NoChatTemplate(ChatTemplateError):
    """The model brings no template, or one that is broken."""


class ChatTemplate:
    """One template, which writes `marks` for control tokens. A broken one is kept as its error,
    which `render` raises: the model can still be used with plain prompts."""

    def __init__(
        self, source: str | None, special_tokens: Mapping[str, str], marks: Marks
    ) -> None:
        self._marks = marks
        self._special_tokens = {k: marks.mark(token) for k, token in special_tokens.items()}
        self.fault: str | None = None
        try:
            self._template = _Environment(marks).from_string(source or "")
        except jinja2.TemplateError as error:
            self.fault = f"the model's chat template is broken: {error}"
        if not source:
            self.fault = "the model has no chat template: send text or token ids"

    def render(
        self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The prompt, with marks. Raises NoChatTemplate, or ChatTemplateError with the
        template's own complaint (roles that do not alternate, say)."""
        if self.fault is not None:
            raise NoChatTemplate(self.fault)
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
                **self._special_tokens,
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
            complaint = self._marks.spell(str(error))
            raise ChatTemplateError(f"the model's chat template: {complaint}") from error


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks an answer for training; here its body is all there is."""

    tags = {"generation"}  # noqa: RUF012  the extension API's own shape

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Macro) -> str:
        return str(caller())


class _Environment(ImmutableSandboxedEnvironment):
    def __init__(self, marks: Marks) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, jinja2.ext.loopcontrols],
        )
        self._marks = marks
        self.filters |= {"tojson": _to_json, **filters(marks)}
        self.globals["raise_exception"] = _raise
        self.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return mark_template(super()._parse(source, name, filename), self._marks)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which models were not trained on.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
