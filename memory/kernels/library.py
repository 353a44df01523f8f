"""Finds and loads the C++ kernels. The structures repeat native/args.h field by field.

ctypes releases the interpreter lock during a call. The library links to `libgomp.so.1`;
torch is imported first and its own copy, which is loaded globally, serves both: a second
OpenMP pool that spins beside torch's makes a step many times slower.
"""

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
)
from functools import cache
from pathlib import Path

import torch

PATH = Path(__file__).with_name("libwalkway.so")


class Pool(Structure):
    """Where one layer's keys and values lie; strides in elements."""

    _fields_ = (
        ("base", c_void_p),
        ("page_stride", c_int64),
        ("token_stride", c_int64),
        ("head_stride", c_int64),
        ("v_offset", c_int64),
        ("page_size", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("is_bf16", c_int32),
    )


class Attend(Structure):
    """Arguments of `walkway_attend`."""

    _fields_ = (
        ("pool", Pool),
        ("q", c_void_p),
        ("out", c_void_p),
        ("qo_indptr", c_void_p),
        ("kv_indptr", c_void_p),
        ("kv_indices", c_void_p),
        ("kv_lens", c_void_p),
        ("tiles", c_void_p),
        ("num_tiles", c_int32),
        ("group", c_int32),
        ("threads", c_int32),
    )


class Rope(Structure):
    """Arguments of `walkway_rope`."""

    _fields_ = (
        ("pool", Pool),
        ("qkv", c_void_p),
        ("q_out", c_void_p),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("table", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("table_rows", c_int64),
        ("num_slots", c_int64),
        ("tokens", c_int32),
        ("q_heads", c_int32),
        ("threads", c_int32),
        ("eps", c_float),
    )


class Rows(Structure):
    """Arguments of the row-wise kernels."""

    _fields_ = (
        ("a", c_void_p),
        ("out", c_void_p),
        ("b", c_void_p),
        ("c", c_void_p),
        ("rows", c_int32),
        ("width", c_int32),
        ("is_bf16", c_int32),
        ("threads", c_int32),
        ("eps", c_float),
    )


class Product(Structure):
    """Arguments of `walkway_multiply`. `strips` and `wide` are set by the kernel."""

    _fields_ = (
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("x", c_void_p),
        ("y", c_void_p),
        ("strips", c_void_p),
        ("wide", c_void_p),
        ("rows", c_int32),
        ("inputs", c_int32),
        ("outputs", c_int32),
        ("is_bf16", c_int32),
        ("threads", c_int32),
    )


class KernelsMissing(Exception):
    """The extension was not built, or cannot be loaded here."""


@cache
def load() -> ctypes.CDLL:
    """The kernels, loaded once. Raises KernelsMissing with the reason, in one line."""
    assert torch.get_num_threads() > 0  # its OpenMP must be the one that is mapped already
    if not PATH.exists():
        raise KernelsMissing("the C++ extension was not built (`pip install -v` says why)")
    try:
        library = ctypes.CDLL(str(PATH))
    except OSError as error:
        raise KernelsMissing(f"the C++ extension does not load: {error}") from error
    try:
        _declare(library)
    except AttributeError as error:
        raise KernelsMissing(f"the C++ extension is of another version: {error}") from error
    return library


def _declare(library: ctypes.CDLL) -> None:
    library.walkway_level.restype = c_char_p
    library.walkway_set_level.argtypes = (c_int,)
    library.walkway_tiles.argtypes = (POINTER(Attend), *[c_int] * 5)
    library.walkway_huge_pages.argtypes = (c_void_p, c_size_t)
    library.walkway_huge_pages.restype = None
    library.walkway_attend.argtypes = (POINTER(Attend),)
    library.walkway_rope.argtypes = (POINTER(Rope),)
    library.walkway_attend.restype = None
    library.walkway_multiply.argtypes = (POINTER(Product),)
    for name in ("rms_norm", "add_rms_norm", "silu_and_mul", "argmax"):
        kernel = getattr(library, f"walkway_{name}")
        kernel.argtypes, kernel.restype = (POINTER(Rows),), None


def level() -> str:
    """The instruction set in use: `baseline`, `avx2` or `avx512`."""
    name: bytes = load().walkway_level()
    return name.decode()
