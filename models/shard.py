"""One rank's share of a model whose layers are split over processes (tensor parallelism).

Heads (a group of query heads stays with its KV head) and the inner columns of the MLP are
split; norms, embedding and head are whole on every rank. Each rank's output and down
products are parts of a sum over all ranks.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from memory.attention.interface import AttentionBackend
from models.config import ModelConfig
from models.errors import ModelError


class Collective(Protocol):
    """Sums over all ranks. See torch.distributed."""

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of all ranks' `x`, in place of it."""


class Alone:
    """A collective of one rank."""

    def all_reduce(self, x: Tensor) -> Tensor:
        return x


ALONE = Alone()


@dataclass(frozen=True, slots=True)
class Shard:
    """Rank `rank` of `size`, and how it adds up with the others."""

    rank: int = 0
    size: int = 1
    collective: Collective = ALONE

    def of(self, count: int) -> int:
        """This rank's share of `count` heads or columns."""
        return count // self.size

    def rows(self, x: Tensor) -> Tensor:
        """This rank's part of the first dimension, a view."""
        own = self.of(len(x))
        return x[self.rank * own : (self.rank + 1) * own]

    def columns(self, x: Tensor) -> Tensor:
        """This rank's part of the second dimension of x [rows, columns], a view."""
        own = self.of(x.shape[1])
        return x[:, self.rank * own : (self.rank + 1) * own]


WHOLE = Shard()


def refuse_uneven(config: ModelConfig, size: int) -> None:
    """ModelError, with both numbers, where `size` ranks cannot get equal parts."""
    split = {
        "key-value heads": config.num_kv_heads,
        "query heads": config.num_q_heads,
        "intermediate columns": config.intermediate_size,
    }
    for what, count in split.items():
        if count % size:
            raise ModelError(
                f"engine.tensor_parallel = {size} does not divide the model's {count} {what}"
            )


class Model(Protocol):
    """A forward pass in two parts, as a runner sees it. See `models.llama.Llama`."""

    vocab_size: int

    def hidden(self, tokens: Tensor, positions: Tensor, wanted: Tensor) -> Tensor: ...

    def logits(self, hidden: Tensor) -> Tensor: ...


class Seat(Protocol):
    """A rank among those that load a model together. Every rank makes the same calls in the
    same order."""

    @property
    def shard(self) -> Shard: ...

    def meet(self) -> None:
        """Wait until every rank has its weights; from then on the shard's collective works.
        ModelError with the line of a rank that failed."""

    def agree(self, *counts: int) -> tuple[int, ...]:
        """The least of every rank, count by count. ModelError as `meet`."""

    def seated(
        self, model: Model, attention: AttentionBackend
    ) -> tuple[Model, AttentionBackend]:
        """What this rank's runner is to use: rank 0's tell the others what they are told."""


class Lone:
    """The seat of a rank without others."""

    shard = WHOLE

    def meet(self) -> None: ...

    def agree(self, *counts: int) -> tuple[int, ...]:
        return counts

    def seated(
        self, model: Model, attention: AttentionBackend
    ) -> tuple[Model, AttentionBackend]:
        return model, attention


LONE = Lone()
