"""A machine with a model on it, as the simulator knows it: step costs, pools and limits."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from bench.simulation.costs import StepModel

Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
GapSeconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class BadProfile(ValueError):
    """No profile has that name, or the file is none; one line for people."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`source` says where the costs come from: measured by `walkway calibrate`, or modelled
    from published figures and measured by nobody. Pages are of `page_size` tokens; those of
    the device do not count the scratch page. The limits are the engine's settings."""

    name: str
    source: Literal["measured", "modelled"]
    note: str
    costs: StepModel
    device_pages: Positive
    host_pages: Natural
    page_size: Positive
    max_rows: Positive
    max_step_tokens: Positive
    context_tokens: Positive
    watermark_pages: Natural = 2
    target_gap_s: GapSeconds | None = None


def save(profile: Profile, path: Path) -> None:
    """Write as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n")


def read(path: Path) -> Profile:
    """Raises BadProfile."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Profile)
    except OSError as error:
        raise BadProfile(f"profile {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BadProfile(f"profile {path}: {error}") from error
