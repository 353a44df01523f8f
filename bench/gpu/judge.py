"""Whether two greedy answers differ by more than rounding may change.

Where they part, the exact model is asked: if its logits of the two tokens are so close that
rounding decides, either choice was right, and nothing behind it can be compared. Whoever read a
wrong page chose a token that is far behind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.gpu.made import Made

CHUNK = 64


@dataclass(slots=True)
class Verdict:
    """`same` answers, `ties` that part where rounding decides, and those that are `wrong`,
    each in a line."""

    same: int = 0
    ties: int = 0
    wrong: list[str] = field(default_factory=list)


def judge(
    model: Made,
    prompts: Sequence[Sequence[int]],
    expected: Mapping[int, Sequence[int]],
    found: Mapping[int, Sequence[int]],
    tie: float,
) -> Verdict:
    """`tie`: how far apart logits of `model`, the exact one, may be for that."""
    verdict = Verdict()
    for id, prompt in enumerate(prompts):
        ours, theirs = list(found.get(id, ())), list(expected[id])
        at = _parting(ours, theirs)
        if at is None:
            verdict.same += 1
            continue
        if at == min(len(ours), len(theirs)):
            verdict.wrong.append(f"answer {id} has {len(ours)} tokens, not {len(theirs)}")
            continue
        known = [*prompt, *theirs[:at]]
        logits = model.logits(known, CHUNK)[-1]
        gap = abs(float(logits[theirs[at]] - logits[ours[at]]))
        if gap <= tie:
            verdict.ties += 1
        else:
            verdict.wrong.append(
                f"answer {id}, token {at}: {gap:.3g} apart, a tie is {tie:.3g}"
            )
    return verdict


def _parting(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Where two answers differ first; None where they do not."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return None if len(one) == len(other) else min(len(one), len(other))
