"""Distance between true and predicted locations."""

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
    distance: Floats  # km, one per sample, NaN where a location is unknown
    thresholds: Floats  # km
    within: Floats  # per threshold, the share of the known distances that are within it


def geolocation_error(
    location: ArrayLike, predicted: ArrayLike, thresholds: Sequence[float] = THRESHOLDS_KM
) -> GeolocationError:
    """Great-circle distance of true and predicted locations, and the share within 1, 25, ... km.

    Both are ``[N, 2]``, latitude and longitude in degrees; a classifier over cells predicts the
    centre of a cell. With r = 6371.0088:

        distance = r * atan2( |p x q|, p . q ),   p, q the unit vectors of the two locations,

    which is accurate for near and for opposite locations. Shares are NaN if no distance is known.

    Source: Cai et al. 2021 (CLOC), geolocation error with the usual thresholds of image
    geolocation: street, city, region, country, continent.

    >>> error = geolocation_error([[48.8566, 2.3522]], [[51.5074, -0.1278]])  # Paris, London
    >>> error.distance.round(0), error.within
    (array([344.]), array([0., 0., 0., 1., 1.]))
    """
    actual, estimate = np.asarray(location, np.float64), np.asarray(predicted, np.float64)
    if actual.ndim != 2 or actual.shape[1:] != (2,) or actual.shape != estimate.shape:
        raise StreamgaugeError(
            "geolocation_error needs two arrays [samples, 2] of latitude and longitude in degrees, "
            f"but got the shapes {actual.shape} and {estimate.shape}."
        )
    for points in (actual, estimate):
        if np.any(np.abs(points[:, 0]) > 90) or np.any(np.abs(points[:, 1]) > 360):
            raise StreamgaugeError(
                "a latitude is outside -90..90 or a longitude outside -360..360; the columns are "
                "latitude and longitude, in degrees."
            )
    phi, psi = np.radians(actual[:, 0]), np.radians(estimate[:, 0])
    longitude_difference = np.radians(estimate[:, 1] - actual[:, 1])
    east = np.cos(psi) * np.sin(longitude_difference)
    north = np.cos(phi) * np.sin(psi) - np.sin(phi) * np.cos(psi) * np.cos(longitude_difference)
    dot = np.sin(phi) * np.sin(psi) + np.cos(phi) * np.cos(psi) * np.cos(longitude_difference)
    distance = EARTH_RADIUS_KM * np.arctan2(np.hypot(east, north), dot)
    limits = np.asarray(thresholds, dtype=np.float64)
    known = distance[~np.isnan(distance)]
    within = (known[:, None] <= limits).mean(axis=0) if known.size else np.full(len(limits), np.nan)
    return GeolocationError(distance, limits, within)
