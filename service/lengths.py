"""How long answers are, learned from those that ended: for strategies that estimate.

What is learned is the length at which an answer ends of itself. One that ended otherwise
(`max_tokens`, a deadline, a caller that left) is at least as long as it was: a censored
observation, so quantiles are those of the Kaplan-Meier estimate. Taken as lengths, such ends
would teach short answers under overload, where long ones are cut.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque

from schedulers.interface import RequestView, least_tokens
from service.messages import Finish

FEW = 20  # answers of a kind, below which a wider kind is asked
KEPT = 256  # answers of a kind, the latest
MOST_KINDS = 256  # the one that no answer has come of for longest is forgotten
REFIT = 8  # so many new answers before quantiles are computed anew
ROUNDING = 1e-9

Kind = tuple[str, int | None]


class LearnedLengths:
    """Answers by tenant and prompt length (powers of two); by tenant where few of that kind
    were seen; else all."""

    def __init__(self) -> None:
        self._all = Answers()
        self._kinds: OrderedDict[Kind, Answers] = OrderedDict()

    def ended(self, view: RequestView, reason: Finish) -> None:
        """A request ended. Without a token it says nothing."""
        if not view.output_tokens:
            return
        for kind in _kinds(view):
            self._kinds.setdefault(kind, Answers()).add(view.output_tokens, reason)
            self._kinds.move_to_end(kind)
        self._all.add(view.output_tokens, reason)
        while len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)

    def quantile(self, view: RequestView, share: float) -> int:
        """See `schedulers.interface.AnswerLengths`."""
        least, most = least_tokens(view), view.max_tokens
        for answers in (*map(self._kinds.get, _kinds(view)), self._all):
            if answers is not None and answers.seen >= FEW:
                found = answers.quantile(view.output_tokens, share)
                return most if found is None else min(most, max(found, least))
        return least


def _kinds(view: RequestView) -> tuple[Kind, Kind]:
    """The narrow one, then the wide one."""
    return (view.tenant, view.prompt_tokens.bit_length()), (view.tenant, None)


class Answers:
    """The latest answers of a kind."""

    def __init__(self) -> None:
        self._latest: deque[tuple[int, Finish]] = deque(maxlen=KEPT)
        self._new = 0
        self._lengths: list[int] = []  # at which answers ended of themselves, ascending
        self._left: list[float] = []  # share of answers that are longer than each
        self._longest = 0
        self._reach_limit = False

    @property
    def seen(self) -> int:
        """How many answers are known."""
        return len(self._latest)

    def add(self, tokens: int, reason: Finish) -> None:
        """An answer ended after so many tokens."""
        self._latest.append((tokens, reason))
        self._new += 1

    def quantile(self, beyond: int, share: float) -> int | None:
        """The length that `share` of the answers with more than `beyond` tokens do not exceed;
        None for as long as `max_tokens` allows."""
        if self._new >= REFIT or not self._longest:
            self._fit()
        first = bisect_right(self._lengths, beyond)
        left = (self._left[first - 1] if first else 1.0) * (1.0 - share) + ROUNDING
        # `_left` falls, so its negative ascends.
        at = bisect_left(self._left, -left, lo=first, key=lambda each: -each)
        if at < len(self._lengths):
            return self._lengths[at]
        if self._reach_limit:
            return None
        return max(self._longest, 2 * beyond)

    def _fit(self) -> None:
        """Kaplan and Meier's product over the lengths at which answers ended."""
        self._new = 0
        # At one length those that ended of themselves come first: the cut ones were there.
        ends = sorted((tokens, reason is not Finish.STOP) for tokens, reason in self._latest)
        self._longest = ends[-1][0]
        limited = sum(reason is Finish.LENGTH for _, reason in self._latest)
        self._reach_limit = 2 * limited > sum(cut for _, cut in ends)
        self._lengths, self._left = [], []
        left, there = 1.0, len(ends)
        for tokens, cut in ends:
            if not cut:
                left *= 1.0 - 1.0 / there
                if self._lengths and self._lengths[-1] == tokens:
                    self._left[-1] = left
                else:
                    self._lengths.append(tokens)
                    self._left.append(left)
            there -= 1
