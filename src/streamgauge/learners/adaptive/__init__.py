"""Methods that adapt the learning rate or the replay size: CLOC and its cosine schedules."""

from streamgauge.errors import packages_for

with packages_for("Running a learner"):
    import torch  # noqa: F401
