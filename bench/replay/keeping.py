"""What a replay has come to so far, in a folder: so that one that was broken off goes on."""

from pathlib import Path
from typing import TypeVar

import msgspec

from bench.replay.asking import Answered
from bench.replay.seen import Seen
from bench.replay.traffic import Traffic
from bench.simulation.output import file_name
from bench.simulation.profile import Profile

Kept = TypeVar("Kept", bound=msgspec.Struct)


class Begun(msgspec.Struct, frozen=True):
    """What holds for every strategy: the load, the service's settings, the machine. The load
    was sized while the service took `drag` times what the profile says."""

    traffic: Traffic
    settings: tuple[str, ...]
    profile: Profile
    drag: float
    capacity_per_s: float
    requests_per_s: float


class Simulated(msgspec.Struct, frozen=True):
    """A run in the simulator."""

    label: str
    seen: list[Seen]


class Folder:
    """Where the files are. Writing one is whole or nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begun(self) -> Begun | None:
        """How it began, None when it has not."""
        return self._read("replay", Begun)

    def begin(self, begun: Begun) -> None:
        self._write("replay", begun)

    def real(self, label: str) -> Answered | None:
        """The run of a strategy on the service, None when there is none."""
        return self._read(f"real-{file_name(label)}", Answered)

    def keep_real(self, run: Answered) -> None:
        self._write(f"real-{file_name(run.label)}", run)

    def keep_simulated(self, run: Simulated) -> None:
        self._write(f"simulated-{file_name(run.label)}", run)

    def _read(self, name: str, kind: type[Kept]) -> Kept | None:
        path = self.path / f"{name}.json"
        return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else None

    def _write(self, name: str, value: msgspec.Struct) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        path = self.path / f"{name}.json"
        fresh = path.with_suffix(".part")
        fresh.write_bytes(msgspec.json.encode(value) + b"\n")
        fresh.replace(path)
