"""CLOC's methods: adaptive learning rate or memory size, cosine schedules, own batch sizes."""

from streamgauge.errors import packages_for

with packages_for("Running a learner"):
    import torch  # noqa: F401
