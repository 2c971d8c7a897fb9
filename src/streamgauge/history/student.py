"""Student's t distribution, without SciPy."""

from __future__ import annotations

import math
from statistics import NormalDist


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

    >>> round(quantile(0.95, 19), 4), round(quantile(0.95, math.inf), 4)
    (2.093, 1.96)
    """
    t = _expansion(NormalDist().inv_cdf((1 + confidence) / 2), freedom)
    if freedom >= 200 or math.isnan(t):  # the error is below 1e-10, up to 99.9 %
        return t
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    scale /= math.sqrt(freedom * math.pi)
    # Newton's method: P is convex in t, so that from the second step on t rises to the root.
    for _ in range(1000):
        density = scale * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        step = (two_sided_p(t, freedom) - (1 - confidence)) / (2 * density)
        t = max(t + step, t / 2)
        if abs(step) <= 1e-14 * t:
            break
    return t


def _expansion(z: float, freedom: float) -> float:
    """The quantile that a normal distribution has at z, by Cornish and Fisher: for many degrees of
    freedom."""
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    most = max(freedom, 1)  # below, only where the search begins
    return z + sum(term / most ** (i + 1) for i, term in enumerate(terms))


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
