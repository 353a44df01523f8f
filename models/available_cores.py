"""How many cores may compute: what the machine, and a container's limit, leave."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

_PROC = Path("/proc/self")


@dataclass(frozen=True, slots=True)
class Cores:
    """`affinity`: on which this process may run. `quota`: how many it may use at a time, by
    the CPU limits of its cgroups; None without one."""

    affinity: int
    quota: float | None

    @property
    def threads(self) -> int:
        """Threads that compute without waiting for a core."""
        if self.quota is None:
            return self.affinity
        return max(1, min(self.affinity, math.floor(self.quota)))


def available_cores(proc: Path = _PROC) -> Cores:
    """Those of this process. Elsewhere than on Linux: the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return Cores(len(os.sched_getaffinity(0)), quota_cores(proc))
    return Cores(os.cpu_count() or 1, None)


def threads_for(wished: int) -> int:
    """As many as are wished for; with 0 one for each core, and no more than torch takes by
    itself: OMP_NUM_THREADS, and one a core where a core runs two."""
    return wished or min(available_cores().threads, torch.get_num_threads())


def quota_cores(proc: Path = _PROC) -> float | None:
    """The smallest CPU limit of the cgroups that a process is in, versions 1 and 2, from its
    own up to the topmost that can be seen. `proc` is the process's folder of /proc."""
    return min((limit for folder in _cgroups(proc) for limit in _limits(folder)), default=None)


def _cgroups(proc: Path) -> Iterator[Path]:
    """Folders of cgroups that may limit the process."""
    try:
        memberships = (proc / "cgroup").read_text().splitlines()
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return  # no cgroups here
    paths = dict(line.split(":", 2)[1:] for line in memberships)
    for line in mounts:
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            path = paths.get("")
        elif kind == "cgroup" and "cpu" in options.split(","):
            path = next((p for names, p in paths.items() if "cpu" in names.split(",")), None)
        else:
            continue
        if path is not None:
            yield from _upwards(Path(mount), root, path)


def _upwards(mount: Path, root: str, path: str) -> Iterator[Path]:
    """From a process's cgroup to the mount. A container sees its own cgroup as the root of
    the mount, although its path outside is longer."""
    below = path.removeprefix(root.rstrip("/")).strip("/") if path.startswith(root) else ""
    folder = mount / below
    yield folder
    yield from (parent for parent in folder.parents if parent.is_relative_to(mount))


def _limits(folder: Path) -> Iterator[float]:
    """Of one cgroup, in cores."""
    quota, period = _read(folder / "cpu.max"), ""
    if quota:
        quota, _, period = quota.partition(" ")
    else:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if period and quota not in ("max", "-1"):
        yield int(quota) / int(period)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
