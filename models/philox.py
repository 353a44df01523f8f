"""Uniform random numbers that are a function of (seed, position) and of nothing else.

Philox 4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as
1, 2, 3" (SC 2011): a counter-based generator, so a draw needs no state and a request that
was preempted, moved in its batch or resumed elsewhere draws what it would have drawn.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_ROUNDS = 10


def philox4x32(counter: Words, key: Words) -> Words:
    """Encrypt `counter` [..., 4] with `key` [..., 2]. Every element is a 32-bit word held
    in 64 bits, so that a product needs no second type; so is the result [..., 4]."""
    c0, c1, c2, c3 = np.moveaxis(counter, -1, 0)
    k0, k1 = np.moveaxis(key, -1, 0)
    for _ in range(_ROUNDS):
        left, right = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1 = (right >> _32) ^ c1 ^ k0, right & _LOW
        c2, c3 = (left >> _32) ^ c3 ^ k1, left & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return np.stack((c0, c1, c2, c3), axis=-1)


def uniform(seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.float64]:
    """One number in [0, 1) for each pair of seed and position, both 0..2**64 - 1.

    The key is the seed and the counter the position, low word first; the number is the
    upper 53 bits of the first two words of the block.
    """
    seed, position = np.array(seeds, np.uint64), np.array(positions, np.uint64)
    zero = np.zeros_like(position)
    counter = np.stack((position & _LOW, position >> _32, zero, zero), axis=-1)
    words = philox4x32(counter, np.stack((seed & _LOW, seed >> _32), axis=-1))
    high, low = words[:, 0] >> np.uint64(5), words[:, 1] >> np.uint64(6)
    return (high * 2.0**26 + low) * 2.0**-53
