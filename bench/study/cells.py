"""What the study runs, as values that name it."""

import msgspec

from bench.simulation.catalogue import find_profile
from bench.simulation.profile import Profile

FIRST_RUN = 0.0  # load of a cell that has none


class Ground(msgspec.Struct, frozen=True):
    """A trace on a machine: the first `requests` of a file (or `sample`), a profile's name or
    file, and its limit of rows."""

    label: str
    trace: str
    profile: str
    rows: int
    requests: int
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.label} {self.profile} {self.rows}"

    def machine(self) -> Profile:
        """The profile with these rows. Raises BadProfile."""
        return msgspec.structs.replace(find_profile(self.profile), max_rows=self.rows)


class Cell(msgspec.Struct, frozen=True):
    """One run: a strategy under a scenario, at a multiple of the capacity."""

    ground: Ground
    scenario: str
    strategy: str
    load: float
