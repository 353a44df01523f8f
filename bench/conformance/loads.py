"""What a strategy is tried on: a small machine and who calls when, as plain values.

Times are virtual. Everything prints as a script that a reader can follow by hand.
"""

from collections.abc import Iterator
from dataclasses import dataclass

MS = 0.001
OWN_PROMPT = -1


@dataclass(frozen=True, slots=True)
class Machine:
    """Pools and step limits. Small, so that pages, rows and budget run out within ten
    steps."""

    pages: int
    page_size: int
    host_pages: int
    rows: int
    budget: int
    watermark: int = 0

    def __str__(self) -> str:
        return (
            f"{self.pages} pages of {self.page_size} tokens, {self.host_pages} on the host, "
            f"watermark {self.watermark}; {self.rows} rows and {self.budget} tokens a step"
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request asks. Callers with the same `prompt` share a prefix as far as both go,
    `OWN_PROMPT` shares with nobody; deadlines count from arrival."""

    prompt_tokens: int
    max_tokens: int
    prompt: int = OWN_PROMPT
    priority: int = 4
    tenant: str = "a"
    deadline_ms: int | None = None
    first_token_ms: int | None = None

    @property
    def tokens(self) -> int:
        """All it may come to; at least 1."""
        return self.prompt_tokens + self.max_tokens

    def __str__(self) -> str:
        parts = [f"{self.prompt_tokens} prompt tokens", f"{self.max_tokens} out"]
        if self.prompt != OWN_PROMPT:
            parts.append(f"prompt {self.prompt}")
        parts += [f"priority {self.priority}", f"tenant {self.tenant}"]
        if self.deadline_ms is not None:
            parts.append(f"deadline in {self.deadline_ms * MS:.3f} s")
        if self.first_token_ms is not None:
            parts.append(f"first token in {self.first_token_ms * MS:.3f} s")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A caller comes, and may hang up after `stays_ms`."""

    at_ms: int
    caller: Caller
    stays_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """A finite load. Requests are numbered from 1 in order of arrival. Before plan number
    `turn` something happens to the strategy: what, the question says. Step number
    `failing` raises."""

    machine: Machine
    arrivals: tuple[Arrival, ...]
    turn: int = 0
    failing: int | None = None

    @property
    def most_steps(self) -> int:
        """Steps within which every strategy has to be through: eight times what computing
        each token in a step of its own takes."""
        tokens = sum(arrival.caller.tokens for arrival in self.arrivals)
        return 8 * tokens + self.turn + 1

    def script(self) -> Iterator[str]:
        """One line an event."""
        yield str(self.machine)
        for number, arrival in enumerate(self.arrivals, 1):
            leaves = "" if arrival.stays_ms is None else f", leaves after {arrival.stays_ms} ms"
            yield f"{arrival.at_ms * MS:.3f} s: {number} comes ({arrival.caller}){leaves}"
        if self.failing is not None:
            yield f"step {self.failing} raises"
