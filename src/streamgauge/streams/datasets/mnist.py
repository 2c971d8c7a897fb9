"""MNIST: 70,000 handwritten digits of 28 x 28 pixels."""

from __future__ import annotations

from streamgauge.streams.datasets import idx_files as _idx
from streamgauge.streams.datasets.data_set import DataSet

NAMES = [str(digit) for digit in range(10)]
_SITES = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)

DATA = DataSet(
    name="mnist",
    title="MNIST",
    revision="1998",
    licence="none stated; CC BY-SA 3.0 according to later copies",
    citation="LeCun, Y., Bottou, L., Bengio, Y., Haffner, P. (1998). Gradient-Based Learning"
    " Applied to Document Recognition. Proceedings of the IEEE 86(11).",
    home="http://yann.lecun.com/exdb/mnist/",
    forms=_idx.FORMS,
    read=_idx.reader(NAMES),
    remotes=_idx.remotes(
        _SITES,
        (
            ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 10),
            ("d53e105ee54ea40749a09fcbcd1e9432", 1),
            ("9fb629c4189551a2d022fa330f9573f3", 2),
            ("ec29112dd5afa0611ce80d1b7f02629c", 1),
        ),
    ),
    checksums={
        _idx.TRAIN: "6bbc9ace898e44ae57da46a324031adb",
        _idx.TRAIN_LABELS: "a25bea736e30d166cdddb491f175f624",
        _idx.TEST: "2646ac647ad5339dbf082846283269ea",
        _idx.TEST_LABELS: "27ae3e4e09519cfbb04c329615203637",
    },
)
