"""S2 cell ids of latitudes and longitudes, millions of points per second.

The library s2geometry converts one point per call; here the same arithmetic runs over whole arrays.
S2 is an exact public definition: a point of the unit sphere is projected onto one of six faces of
a cube; the two coordinates on the face are transformed so that cells have nearly equal areas, and
cut into 2^30 steps each; the resulting squares are numbered along a Hilbert curve. A cell id is the
number of the face in 3 bits, two bits per level of the curve, then a 1 and zeros; a *leaf* has 30
levels. So the leaves of a cell are one range of ids, and finding the cell of a point is a search
among sorted ranges. Tests compare the ids bit for bit with those of s2geometry.

All loops release the interpreter lock, so that several run in parallel threads.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streamgauge.history.kernels import jit

Floats = NDArray[np.float64]
Ids = NDArray[np.uint64]

SIDE = 1 << 30  # leaf cells along one edge of a face
_SWAP, _INVERT = 1, 2
_BITS = 4  # levels of the curve per table lookup


def _curve_table() -> NDArray[np.int64]:
    """Lookup table for four levels of the Hilbert curve.

    Key: 4 bits of i, 4 bits of j, orientation. Entry: 8 bits of the position along the curve, and
    the orientation of the curve inside that square. The curve visits the four quarters of a square
    in the order (0,0) (0,1) (1,1) (1,0); `swap` exchanges the axes, `invert` reverses them. The
    axes are swapped in the first quarter, and swapped and inverted in the last.
    """
    quarters = ((0, 0), (0, 1), (1, 1), (1, 0))
    turns = (_SWAP, 0, 0, _SWAP | _INVERT)
    table = np.zeros(1 << (2 * _BITS + 2), np.int64)
    for key in range(table.size):
        position, orientation = 0, key & 3
        for level in reversed(range(_BITS)):
            quarter = (key >> (_BITS + 2 + level)) & 1, (key >> (2 + level)) & 1
            if orientation & _INVERT:
                quarter = 1 - quarter[0], 1 - quarter[1]
            number = quarters.index(quarter[::-1] if orientation & _SWAP else quarter)
            position = 4 * position + number
            orientation ^= turns[number]
        table[key] = (position << 2) + orientation
    return table


CURVE = _curve_table()


def _inline(function: Any) -> Any:
    return numba.njit(nogil=True, inline="always")(function)


@_inline
def _quadratic(u: float) -> float:
    """Map a face coordinate from -1..1 to 0..1 by S2's quadratic projection."""
    if u >= 0:
        return 0.5 * math.sqrt(1 + 3 * u)
    return 1 - 0.5 * math.sqrt(1 - 3 * u)


@_inline
def _grid_index(s: float) -> int:
    return max(0, min(SIDE - 1, math.floor(SIDE * s)))


@_inline
def _leaf(latitude: float, longitude: float, curve: NDArray[np.int64]) -> int:
    degree = math.pi / 180
    phi, theta = degree * latitude, degree * longitude
    x = math.cos(theta) * math.cos(phi)
    y = math.sin(theta) * math.cos(phi)
    z = math.sin(phi)
    ax, ay, az = abs(x), abs(y), abs(z)
    face = (0 if ax > az else 2) if ax > ay else (1 if ay > az else 2)
    if face == 0:
        if x < 0:
            face, u, v = 3, z / x, y / x
        else:
            u, v = y / x, z / x
    elif face == 1:
        if y < 0:
            face, u, v = 4, z / y, -x / y
        else:
            u, v = -x / y, z / y
    elif z < 0:
        face, u, v = 5, -y / z, -x / z
    else:
        u, v = -x / z, -y / z
    i, j = _grid_index(_quadratic(u)), _grid_index(_quadratic(v))
    # 8 lookups of 4 bits cover 32 levels, two more than S2 has. In these two the curve stays in its
    # first quarter, at position 0, and the two swaps cancel.
    position, orientation = 0, face & _SWAP
    for k in range(7, -1, -1):
        key = (((i >> (k * _BITS)) & 15) << 6) | (((j >> (k * _BITS)) & 15) << 2) | orientation
        entry = curve[key]
        position = (position << 8) | (entry >> 2)
        orientation = entry & 3
    return (face << 60) | position


@jit
def leaf_ids(latitude: Floats, longitude: Floats, curve: NDArray[np.int64], out: Ids) -> None:
    """Leaf cell ids of points in degrees; 0 (not a cell) where a coordinate is NaN."""
    for n in range(latitude.size):
        if math.isnan(latitude[n]) or math.isnan(longitude[n]):
            out[n] = 0
        else:
            leaf = np.uint64(_leaf(latitude[n], longitude[n], curve))
            out[n] = leaf * np.uint64(2) + np.uint64(1)


@jit
def search_ranges(leaves: Ids, low: Ids, high: Ids, out: NDArray[np.int32]) -> None:
    """Index of the sorted, disjoint range low..high (inclusive) that contains each leaf, or -1."""
    for n in range(leaves.size):
        leaf = leaves[n]
        left, right = 0, low.size  # find the number of ranges that begin at or before the leaf
        while left < right:
            middle = (left + right) >> 1
            if low[middle] <= leaf:
                left = middle + 1
            else:
                right = middle
        out[n] = left - 1 if left > 0 and leaf <= high[left - 1] else -1
