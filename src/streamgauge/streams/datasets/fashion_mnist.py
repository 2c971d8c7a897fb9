"""Fashion-MNIST: 70,000 pictures of clothes of 28 x 28 pixels."""

from __future__ import annotations

from streamgauge.streams.datasets import idx_files as _idx
from streamgauge.streams.datasets.data_set import DataSet

_SITES = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
NAMES = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]

DATA = DataSet(
    name="fashion_mnist",
    title="Fashion-MNIST",
    revision="2017",
    licence="MIT, Zalando SE",
    citation="Xiao, H., Rasul, K., Vollgraf, R. (2017). Fashion-MNIST: a Novel Image Dataset for"
    " Benchmarking Machine Learning Algorithms. arXiv:1708.07747.",
    home="https://github.com/zalandoresearch/fashion-mnist",
    forms=_idx.FORMS,
    read=_idx.reader(NAMES),
    remotes=_idx.remotes(
        _SITES,
        (
            ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26),
            ("25c81989df183df01b3e8a0aad5dffbe", 1),
            ("bef4ecab320f06d8554ea6380940ec79", 4),
            ("bb300cfdad3c16e7a12a480ee83cd310", 1),
        ),
    ),
    checksums={
        _idx.TRAIN: "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        _idx.TRAIN_LABELS: "9018921c3c673c538a1fc5bad174d6f9",
        _idx.TEST: "8181f5470baa50b63fa0f6fddb340f0a",
        _idx.TEST_LABELS: "15d484375f8d13e6eb1aabb0c3f46965",
    },
)
