"""Checkpoints as people publish them: a tiny model is saved, edited, and served or refused.

A variant is a kind of `tests.tiny_models` and some edits, each a function of what is about to
be written.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.tiny_models import tiny_model

Tensors = dict[str, Tensor]


@dataclass
class Draft:
    """A folder about to be written. `files` are its safetensors, one with all `tensors` where
    none are named; `others` are more files, text or what
    is written as JSON."""

    config: dict[str, object]
    tensors: Tensors
    files: dict[str, Tensors] = field(default_factory=dict)
    others: dict[str, object] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        for name, tensors in (self.files or {"model.safetensors": self.tensors}).items():
            copies = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
            save_file(copies, folder / name, metadata={"format": "pt"})
        for name, value in self.others.items():
            text = value if isinstance(value, str) else json.dumps(value)
            (folder / name).write_text(text)
        return folder


Edit = Callable[[Draft], None]


@cache
def _saved(kind: str) -> tuple[str, Tensors]:
    model = tiny_model(kind)
    config = model.config.to_dict()
    config["architectures"] = [type(model).__name__]
    return json.dumps(config, default=str), dict(model.state_dict())


def draft(kind: str, *edits: Edit) -> Draft:
    """The kind as transformers saves it, but for the edits."""
    config, tensors = _saved(kind)
    made = Draft(json.loads(config), dict(tensors))
    made.config.pop("dtype", None)
    if made.config.get("tie_word_embeddings"):
        del made.tensors["lm_head.weight"]
    for edit in edits:
        edit(made)
    return made


def says(**values: object) -> Edit:
    """The config has these values."""
    return lambda made: made.config.update(values)


def lacks(*keys: str) -> Edit:
    """The config lacks these keys."""

    def edit(made: Draft) -> None:
        for key in keys:
            made.config.pop(key, None)

    return edit


def renamed(pattern: str, to: str) -> Edit:
    """The tensors' names have the pattern replaced."""

    def edit(made: Draft) -> None:
        made.tensors = {re.sub(pattern, to, name): t for name, t in made.tensors.items()}

    return edit


def stored(name: str, *shape: int) -> Edit:
    """The file has one more tensor, of random values."""

    def edit(made: Draft) -> None:
        made.tensors[name] = random_values(name, shape)

    return edit


def random_values(name: str, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(len(name))
    return torch.randn(shape, generator=generator) * 0.5


def without(name: str) -> Edit:
    """The file lacks a tensor."""

    def edit(made: Draft) -> None:
        del made.tensors[name]

    return edit


def stored_as(dtype: torch.dtype, *names: str) -> Edit:
    """These tensors, or all, have the dtype."""

    def edit(made: Draft) -> None:
        for name in names or list(made.tensors):
            made.tensors[name] = made.tensors[name].to(dtype)

    return edit


def head_beside_embedding(made: Draft) -> None:
    """A tied model's file has the head too, with the same values."""
    made.tensors["lm_head.weight"] = made.tensors["model.embed_tokens.weight"]


def head_alone(made: Draft) -> None:
    """A tied model's file has the head in place of the embedding."""
    made.tensors["lm_head.weight"] = made.tensors.pop("model.embed_tokens.weight")


def halves(tensors: Tensors) -> tuple[Tensors, Tensors]:
    names = sorted(tensors)
    middle = len(names) // 2
    return (
        {name: tensors[name] for name in names[:middle]},
        {name: tensors[name] for name in names[middle:]},
    )


SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def in_shards(made: Draft) -> None:
    """Two files, no index."""
    made.files = dict(zip(SHARDS, halves(made.tensors), strict=True))


def indexed(made: Draft) -> None:
    """Two files and their index."""
    in_shards(made)
    names = {name: file for file, tensors in made.files.items() for name in tensors}
    made.others["model.safetensors.index.json"] = {"metadata": {}, "weight_map": names}


def beside_older_shards(made: Draft) -> None:
    """A single file, and the index and the shards of other weights."""
    whole = made.tensors
    made.tensors = {name: -2 * tensor for name, tensor in whole.items()}
    indexed(made)
    made.tensors = made.files["model.safetensors"] = whole


def beside(file: str) -> Edit:
    """Another file of the same tensors with other values."""

    def edit(made: Draft) -> None:
        made.files.setdefault("model.safetensors", made.tensors)
        made.files[file] = {name: 2 * tensor for name, tensor in made.tensors.items()}

    return edit


def found_twice(made: Draft) -> None:
    """Two files, no index, and a tensor in both."""
    in_shards(made)
    made.files[SHARDS[1]]["lm_head.weight"] = made.tensors["lm_head.weight"]
