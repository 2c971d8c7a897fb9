"""How far off a predicted place is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from streamgauge.errors import StreamgaugeError
from streamgauge.metrics._arrays import Floats

EARTH_RADIUS_KM = 6371.0088  # mean radius
THRESHOLDS_KM = (1.0, 25.0, 200.0, 750.0, 2500.0)  # street, city, region, country, continent


class GeolocationError(NamedTuple):
    distance: Floats  # km, one a sample, NaN where a place is unknown
    thresholds: Floats  # km
    within: Floats  # share of the samples with a known distance that lie within each threshold


def geolocation_error(
    location: ArrayLike, predicted: ArrayLike, thresholds: Sequence[float] = THRESHOLDS_KM
) -> GeolocationError:
    """Great-circle distance between true and predicted places, and the share within 1, 25, ... km.

    Both are ``[N, 2]``, latitude and longitude in degrees; the predicted place of a classifier over
    cells is the centre of its cell. With phi latitude, d = difference of longitude, r = 6371.0088:

        distance = r * atan2( |p x q|, p . q ),   p, q the unit vectors of the two places,

    which is exact for near and for opposite places alike. Shares are NaN if no distance is known.

    Source: Cai et al. 2021 (CLOC), geolocation error with the usual thresholds of image
    geolocation: street, city, region, country, continent.

    >>> error = geolocation_error([[48.8566, 2.3522]], [[51.5074, -0.1278]])  # Paris, London
    >>> error.distance.round(0), error.within
    (array([344.]), array([0., 0., 0., 1., 1.]))
    """
    true, guess = np.asarray(location, np.float64), np.asarray(predicted, np.float64)
    if true.ndim != 2 or true.shape[1:] != (2,) or true.shape != guess.shape:
        raise StreamgaugeError(
            "geolocation_error wants two arrays [samples, 2] of latitude and longitude in degrees, "
            f"and got {true.shape} and {guess.shape}."
        )
    for places in (true, guess):
        if np.any(np.abs(places[:, 0]) > 90) or np.any(np.abs(places[:, 1]) > 360):
            raise StreamgaugeError(
                "a latitude lies outside -90..90 or a longitude outside -360..360; the columns are "
                "latitude, longitude, in degrees."
            )
    phi, psi = np.radians(true[:, 0]), np.radians(guess[:, 0])
    turn = np.radians(guess[:, 1] - true[:, 1])
    east = np.cos(psi) * np.sin(turn)
    north = np.cos(phi) * np.sin(psi) - np.sin(phi) * np.cos(psi) * np.cos(turn)
    along = np.sin(phi) * np.sin(psi) + np.cos(phi) * np.cos(psi) * np.cos(turn)
    distance = EARTH_RADIUS_KM * np.arctan2(np.hypot(east, north), along)
    limits = np.asarray(thresholds, dtype=np.float64)
    known = distance[~np.isnan(distance)]
    within = (known[:, None] <= limits).mean(axis=0) if known.size else np.full(len(limits), np.nan)
    return GeolocationError(distance, limits, within)
