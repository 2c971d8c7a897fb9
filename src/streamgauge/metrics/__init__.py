"""Metrics of a log: pure functions on NumPy arrays, each with its formula and source.

``score(log)`` computes all scalar metrics of a log.
"""

from __future__ import annotations

from streamgauge.metrics._arrays import UndefinedMetric
from streamgauge.metrics.agreement import (
    all_kappas,
    auc,
    kappa,
    kappa_combined,
    kappa_m,
    kappa_t,
    log_loss,
    macro_f1,
)
from streamgauge.metrics.compare import (
    Comparison,
    Spread,
    Standing,
    compare,
    holm,
    leaderboard,
    spread,
)
from streamgauge.metrics.compute import pareto_front, training_flops
from streamgauge.metrics.continual import (
    StabilityGap,
    WorstCase,
    WorstWindow,
    anytime_accuracy,
    anytime_error,
    minimum_accuracy,
    stability_gap,
    worst_case,
    worst_case_accuracy,
    worst_window,
)
from streamgauge.metrics.geo import GeolocationError, geolocation_error
from streamgauge.metrics.log import (
    ContinualAccuracy,
    RunLog,
    accuracy_matrix,
    classes_seen,
    continual_accuracy,
    cumulative_matrix,
    retained_accuracy,
)
from streamgauge.metrics.online import (
    accuracy_error,
    album_accuracy,
    balanced_accuracy,
    calibration_error,
    macro_accuracy,
    near_future_accuracy,
    near_future_error,
    online_accuracy,
    per_class_accuracy,
    running_accuracy,
)
from streamgauge.metrics.probe import LinearProbe, linear_probe, probed_accuracy
from streamgauge.metrics.summary import meaning, score
from streamgauge.metrics.tasks import (
    average_accuracy,
    average_forgetting,
    backward_transfer,
    cumulative_accuracy,
    cumulative_forgetting,
    forgetting_matrix,
    forward_transfer,
    random_forgetting,
    rescaled_accuracy,
    rescaled_forgetting,
    unnormalised_rescaled_accuracy,
    unnormalised_rescaled_forgetting,
)
from streamgauge.metrics.transfer import (
    RetentionCurve,
    TransferCurve,
    backward_transfer_curve,
    forward_transfer_curve,
    retention_curve,
)
from streamgauge.versions import renamed

__all__ = [
    "Comparison",
    "ContinualAccuracy",
    "GeolocationError",
    "LinearProbe",
    "RetentionCurve",
    "RunLog",
    "Spread",
    "StabilityGap",
    "Standing",
    "TransferCurve",
    "UndefinedMetric",
    "WorstCase",
    "WorstWindow",
    "accuracy_error",
    "accuracy_matrix",
    "album_accuracy",
    "all_kappas",
    "anytime_accuracy",
    "anytime_error",
    "auc",
    "average_accuracy",
    "average_forgetting",
    "backward_transfer",
    "backward_transfer_curve",
    "balanced_accuracy",
    "calibration_error",
    "classes_seen",
    "compare",
    "continual_accuracy",
    "cumulative_accuracy",
    "cumulative_forgetting",
    "cumulative_matrix",
    "forgetting_matrix",
    "forward_transfer",
    "forward_transfer_curve",
    "geolocation_error",
    "holm",
    "kappa",
    "kappa_combined",
    "kappa_m",
    "kappa_t",
    "leaderboard",
    "linear_probe",
    "log_loss",
    "macro_accuracy",
    "macro_f1",
    "meaning",
    "minimum_accuracy",
    "near_future_accuracy",
    "near_future_error",
    "online_accuracy",
    "pareto_front",
    "per_class_accuracy",
    "probed_accuracy",
    "random_forgetting",
    "rescaled_accuracy",
    "rescaled_forgetting",
    "retained_accuracy",
    "retention_curve",
    "running_accuracy",
    "score",
    "spread",
    "stability_gap",
    "training_flops",
    "unnormalised_rescaled_accuracy",
    "unnormalised_rescaled_forgetting",
    "worst_case",
    "worst_case_accuracy",
    "worst_window",
]

__getattr__ = renamed(__name__, {"Log": "RunLog"})
