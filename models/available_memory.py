"""How much memory a pool may take: what the machine, and a container's limit, leave now."""

import os
from pathlib import Path

import torch

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Bytes that can be allocated without swapping, estimated by the kernel; never more than
    a cgroup v2 limit leaves. Elsewhere than on Linux: the machine's memory."""
    limits = [_container_bytes(cgroup)]
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
    else:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limit for limit in limits if limit is not None)


def _container_bytes(cgroup: Path) -> int | None:
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        stat = (cgroup / "memory.stat").read_text().splitlines()
    except OSError:
        return None  # no limit of this kind here
    if limit == "max":
        return None
    fields = dict(line.split(" ", 1) for line in stat)
    # File pages that were read once (a model's, say) are given up when memory is short.
    return int(limit) - used + int(fields.get("inactive_file", 0))


def free_device_bytes(device: str) -> int:
    """What nobody holds of a GPU's memory, this process's own reserve counted as held, once
    all that it was given to do is done."""
    torch.cuda.synchronize(device)
    free, _ = torch.cuda.mem_get_info(device)
    return free
