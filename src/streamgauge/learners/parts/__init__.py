"""Parts that several methods share: losses, gradients, optimisers, probes."""

from streamgauge.errors import packages_for

with packages_for("Running a learner"):
    import torch  # noqa: F401
