"""How many threads the model computes with: affinity and the CPU limits of cgroups."""

import os
from pathlib import Path

import pytest
import torch

from models.available_cores import Cores, available_cores, quota_cores, threads_for

V2 = "30 23 0:26 {root} {mount} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 {root} {mount} rw,relatime shared:9 - cgroup cgroup rw,{kinds}"
OTHER = "24 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw"


class Machine:
    """A made-up /proc/self and the cgroups that it names."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.proc.mkdir()
        self._mounts = [OTHER]
        self._paths: list[str] = []

    def v2(self, path: str, root: str = "/", mount: str = "") -> None:
        at = self.cgroups / mount
        at.mkdir(parents=True, exist_ok=True)
        self._mounts.append(V2.format(root=root, mount=at))
        self._paths.append(f"0::{path}")

    def v1(self, path: str, root: str = "/", kinds: str = "cpu,cpuacct") -> None:
        at = self.cgroups / kinds
        at.mkdir(parents=True, exist_ok=True)
        self._mounts.append(V1.format(root=root, mount=at, kinds=kinds))
        self._paths.append(f"{len(self._paths) + 2}:{kinds}:{path}")

    def limit(self, folder: str, **files: str) -> None:
        at = self.cgroups / folder
        at.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (at / name.replace("_", ".", 1)).write_text(f"{text}\n")

    def quota(self) -> float | None:
        (self.proc / "cgroup").write_text("\n".join(self._paths))
        (self.proc / "mountinfo").write_text("\n".join(self._mounts))
        return quota_cores(self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_without_cgroups_or_limits_has_none(machine: Machine, tmp_path: Path) -> None:
    assert quota_cores(tmp_path / "nowhere") is None
    assert machine.quota() is None
    machine.v2("/")
    assert machine.quota() is None
    machine.limit("", cpu_max="max 100000")
    assert machine.quota() is None


def test_the_limit_of_a_container_is_that_of_its_root(machine: Machine) -> None:
    machine.v2("/")
    machine.limit("", cpu_max="150000 100000")
    assert machine.quota() == 1.5


def test_the_smallest_limit_up_the_hierarchy_counts(machine: Machine) -> None:
    machine.v2("/kubepods/pod1/walkway")
    machine.limit("kubepods", cpu_max="400000 100000")
    machine.limit("kubepods/pod1", cpu_max="100000 50000")
    machine.limit("kubepods/pod1/walkway", cpu_max="max 100000")
    assert machine.quota() == 2.0
    machine.limit("kubepods/pod1/walkway", cpu_max="30000 20000")
    assert machine.quota() == 1.5
    machine.limit("kubepods", cpu_max="50000 100000")
    assert machine.quota() == 0.5


@pytest.mark.parametrize("kinds", ["cpu", "cpu,cpuacct", "cpuacct,cpu"])
def test_version_1_has_quota_and_period_in_files_of_their_own(
    machine: Machine, kinds: str
) -> None:
    machine.v1("/pod1/walkway", kinds="cpuset")
    machine.v1("/pod1/walkway", kinds=kinds)
    files = {"cpu_cfs_quota_us": "-1", "cpu_cfs_period_us": "100000"}
    machine.limit(f"{kinds}/pod1/walkway", **files)
    assert machine.quota() is None
    machine.limit(f"{kinds}/pod1", **files | {"cpu_cfs_quota_us": "250000"})
    assert machine.quota() == 2.5


def test_a_container_that_sees_its_path_outside_reads_its_own_mount(machine: Machine) -> None:
    machine.v1("/docker/1f2e", root="/docker/1f2e")
    machine.limit("cpu,cpuacct", cpu_cfs_quota_us="100000", cpu_cfs_period_us="100000")
    assert machine.quota() == 1.0


def test_with_both_versions_mounted_either_may_limit(machine: Machine) -> None:
    machine.v1("/", kinds="cpu")
    machine.v2("/", mount="unified")
    machine.limit("cpu", cpu_cfs_quota_us="300000", cpu_cfs_period_us="100000")
    assert machine.quota() == 3.0
    machine.limit("unified", cpu_max="200000 100000")
    assert machine.quota() == 2.0


@pytest.mark.parametrize(
    ("cores", "threads"),
    [
        (Cores(2, None), 2),
        (Cores(2, 1.0), 1),
        (Cores(2, 8.0), 2),
        (Cores(8, 3.5), 3),
        (Cores(2, 0.25), 1),
    ],
)
def test_threads_are_the_whole_cores_that_may_be_used(cores: Cores, threads: int) -> None:
    assert cores.threads == threads


def test_the_default_is_what_this_process_may_use_and_torch_would_take() -> None:
    assert available_cores().affinity == len(os.sched_getaffinity(0))
    assert 1 <= threads_for(0) <= min(torch.get_num_threads(), available_cores().threads)
    assert threads_for(7) == 7
