"""Student's t distribution, without SciPy."""

from __future__ import annotations

import math


def two_sided_p(t: float, freedom: float) -> float:
    """P(|T| >= |t|) for T with ``freedom`` degrees of freedom.

    Equal to the regularised incomplete beta function I_x(freedom/2, 1/2) at
    x = freedom / (freedom + t^2).

    >>> round(two_sided_p(2.776445, 4), 6)
    0.05
    """
    if math.isnan(t) or math.isnan(freedom):
        return float("nan")
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(
        freedom / (freedom + t * t), t * t / (freedom + t * t), freedom / 2, 0.5
    )


def quantile(confidence: float, freedom: float) -> float:
    """The t with P(|T| <= t) = confidence.

    >>> round(quantile(0.95, 19), 4)
    2.093
    """
    low, high = 0.0, 1.0
    while two_sided_p(high, freedom) > 1 - confidence:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if two_sided_p(middle, freedom) > 1 - confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """Regularised I_x(a, b) by its continued fraction (modified Lentz); ``rest`` = 1 - x, a
    parameter because computing 1 - x would lose the digits of a small difference."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction of the complement converges faster
        return 1.0 - _incomplete_beta(rest, x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    )
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 10_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + numerator / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * value / a
