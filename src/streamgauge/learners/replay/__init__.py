"""Methods that train a network by gradient steps: ER and what extends it."""

from streamgauge.errors import packages_for

with packages_for("Running a learner"):
    import torch  # noqa: F401
