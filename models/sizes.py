"""Sizes in bytes as people write and read them."""

import re

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]?)(i?)(b?)\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def in_units(size_bytes: int) -> str:
    """`2 GiB`, `1.5 GiB`, `360 KiB`, `17 B`: in the largest unit that leaves 1 or more."""
    power = max(0, min((size_bytes.bit_length() - 1) // 10, len(UNITS) - 1))
    value = size_bytes / 1024**power
    shown = f"{value:.0f}" if value >= 100 or power == 0 else f"{value:.1f}"
    return f"{shown.removesuffix('.0')} {UNITS[power]}"


def apart(wanted: int, there: int) -> tuple[str, str]:
    """Both in units, or to the byte where units show no difference."""
    shown = in_units(wanted), in_units(there)
    return shown if shown[0] != shown[1] else (f"{wanted} B", f"{there} B")


def read_size(text: str) -> int:
    """Bytes of `2GiB` (binary), `2GB` or `2G` (decimal), or `2147483648`. ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None or (found[3] and not found[2]):
        raise ValueError(f"{text!r} is not a size such as 512MiB, 2GiB or 2147483648")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** _POWERS[found[2].lower()])
