"""What the step before drew, while it is on the device alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from models.batch import RequestId


@dataclass(frozen=True, slots=True)
class Previous:
    """For rows whose last output is `IN_FLIGHT`: `tokens` int64 [its rows] on the device, -1
    where a row failed, and each request's place in them."""

    tokens: Tensor
    places: Mapping[RequestId, int]

    def place(self, request: RequestId) -> int:
        """Raises KeyError for a request that has no token there."""
        if request not in self.places:
            raise KeyError(f"request {request} has a token in flight that no step before drew")
        return self.places[request]
