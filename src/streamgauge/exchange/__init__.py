"""Results of other tools in, and runs out: accuracy matrices, TensorBoard, MLflow, W&B, CSV."""

from __future__ import annotations

from streamgauge.exchange.formats import AccuracyMatrix, read_matrices
from streamgauge.exchange.matrix import MatrixScores, score_matrix
from streamgauge.exchange.replay import LiveLog, export
from streamgauge.exchange.sinks import Sink, open_sink

__all__ = [
    "AccuracyMatrix",
    "LiveLog",
    "MatrixScores",
    "Sink",
    "export",
    "open_sink",
    "read_matrices",
    "score_matrix",
]
