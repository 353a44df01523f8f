"""Finds a profile by name or file."""

from pathlib import Path

from bench.simulation.modelled import MODELLED, modelled
from bench.simulation.profile import BadProfile, Profile, read

FOLDER = Path(__file__).parent / "profiles"


def names() -> list[str]:
    """The profiles that come with the project."""
    return sorted({*MODELLED, *(path.stem for path in FOLDER.glob("*.json"))})


def find_profile(name: str) -> Profile:
    """A profile that comes with the project, or a file that `walkway calibrate` wrote (its
    name ends in .json). Raises BadProfile."""
    if name.endswith(".json"):
        return read(Path(name))
    if name not in names():
        there = ", ".join(names())
        raise BadProfile(f"no profile {name!r}; there are {there}, or give a .json file")
    return modelled(name) if name in MODELLED else read(FOLDER / f"{name}.json")
