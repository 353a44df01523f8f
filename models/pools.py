"""How many pages the pool and the host store get."""

from dataclasses import dataclass

from models.errors import ModelError
from models.sizes import apart, in_units

CPU_POOL_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True)
class PoolWish:
    """What the settings say. `num_pages` overrides `pool_bytes`; without both a pool on a
    CPU has 2 GiB, one on a GPU `device_fraction` of what is free there."""

    num_pages: int | None = None
    pool_bytes: int | None = None
    device_fraction: float = 0.9
    host_bytes: int = 0


def cpu_pages(
    wish: PoolWish, page_bytes: int, available_bytes: int, ranks: int = 1
) -> tuple[int, int]:
    """Pool and host pages, for both of which a rank's share of `available_bytes` has to do.
    ModelError with the numbers where it does not, or the pool is too small to be one."""
    available_bytes //= ranks
    pool_bytes = CPU_POOL_BYTES // ranks if wish.pool_bytes is None else wish.pool_bytes
    pages = wish.num_pages or _at_least_two(pool_bytes, page_bytes, "")
    host_pages = wish.host_bytes // page_bytes
    wanted = (pages + host_pages) * page_bytes
    if wanted > available_bytes:
        need, there = apart(wanted, available_bytes)
        raise ModelError(
            f"the pages need {need} ({pages} in the pool, {host_pages} on the host), and "
            f"{there} of memory are available beside the weights"
        )
    return pages, host_pages


def gpu_pages(
    wish: PoolWish, page_bytes: int, free_bytes: int, available_bytes: int
) -> tuple[int, int]:
    """The same where the pool is on a GPU with `free_bytes` left beside graphs and a trial
    step, and the host store in `available_bytes` of pinned memory."""
    pages, host_pages = wish.num_pages, wish.host_bytes // page_bytes
    if pages is None and wish.pool_bytes is not None:
        pages = _at_least_two(wish.pool_bytes, page_bytes, "")
    if pages is None:
        why = f" (memory.device_fraction {wish.device_fraction} of {in_units(free_bytes)} free)"
        pages = _at_least_two(int(free_bytes * wish.device_fraction), page_bytes, why)
    _fits(
        pages,
        "in the pool",
        page_bytes,
        free_bytes,
        "of GPU memory are free beside the graphs and a trial step",
    )
    _fits(
        host_pages, "on the host", page_bytes, available_bytes, "of memory are available there"
    )
    return pages, host_pages


def _at_least_two(pool_bytes: int, page_bytes: int, why: str) -> int:
    pages = pool_bytes // page_bytes
    if pages < 2:  # the first is scratch
        raise ModelError(
            f"a pool of {in_units(pool_bytes)}{why} holds {pages} pages of "
            f"{in_units(page_bytes)}; at least 2 are needed"
        )
    return pages


def _fits(pages: int, where: str, page_bytes: int, bytes_there: int, there: str) -> None:
    if pages * page_bytes > bytes_there:
        need, left = apart(pages * page_bytes, bytes_there)
        raise ModelError(f"{pages} pages {where} need {need}, and {left} {there}")
