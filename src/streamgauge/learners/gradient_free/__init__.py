"""Methods without gradient steps: counts, class means, nearest neighbours, constant answers."""

from streamgauge.errors import packages_for

with packages_for("Running a learner"):
    import torch  # noqa: F401
