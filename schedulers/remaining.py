"""How much of an answer is still to come, learned from the answers that have ended."""

from schedulers.interface import RequestId, RequestView, Snapshot

FEW = 16  # answers that came so far before the mean counts
LATEST = 0.01  # weight of one more answer, once there are many


class Remaining:
    """Mean output tokens that answers had left when they had reached 0, 1, 2, 4, 8, ...

    An answer of unknown length that has grown long has little left where lengths are alike,
    and much where they are spread wide: only what was seen tells which.
    """

    def __init__(self) -> None:
        self._mean: list[float] = []
        self._seen: list[int] = []
        self._ran: dict[RequestId, int] = {}

    def observe(self, snap: Snapshot) -> None:
        """Call once in every `plan`. What ran and is gone now has ended since."""
        if snap.rebuild:
            self._mean, self._seen, self._ran = [], [], {}
        for request in sorted(self._ran.keys() - snap.running.keys()):
            if request not in snap.waiting and request not in snap.swapped:
                self._ended(self._ran[request] + 1)
        self._ran = {view.id: view.output_tokens for view in snap.running.values()}

    @property
    def most(self) -> float:
        """The largest of these means that counts."""
        counts = zip(self._mean, self._seen, strict=True)
        return max((mean for mean, seen in counts if seen >= FEW), default=0.0)

    def tokens(self, view: RequestView) -> float:
        """Output tokens that `view` has left, at most what it may have; 0 while unknown."""
        reached = view.output_tokens.bit_length()
        if reached >= len(self._seen) or self._seen[reached] < FEW:
            return 0.0
        return min(self._mean[reached], view.max_tokens - view.output_tokens)

    def _ended(self, length: int) -> None:
        for reached in range((length - 1).bit_length() + 1):
            if reached == len(self._seen):
                self._seen.append(0)
                self._mean.append(0.0)
            self._seen[reached] += 1
            left = length - (1 << reached >> 1)
            weight = max(1 / self._seen[reached], LATEST)
            self._mean[reached] += weight * (left - self._mean[reached])
