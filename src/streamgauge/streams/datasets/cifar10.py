"""CIFAR-10: 60,000 photos of 32 x 32 pixels in ten classes."""

from __future__ import annotations

from streamgauge.streams.datasets import cifar_files as _cifar
from streamgauge.streams.datasets.data_set import DataSet, Remote

NAMES = [
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
]
_TRAIN = [f"data_batch_{number}.bin" for number in range(1, 6)]

DATA = DataSet(
    name="cifar10",
    title="CIFAR-10",
    revision="2009, binary version",
    forms="cifar-10-binary.tar.gz or cifar-10-python.tar.gz, unpacked or not; mosaics"
    " (train_N or data_batch_N .webp or .png, test_0 or test_batch, labels beside them)",
    read=_cifar.reader(_TRAIN, "test_batch.bin", ["labels"], NAMES),
    remotes=(
        Remote(
            "cifar-10-binary.tar.gz",
            _cifar.toronto("cifar-10-binary.tar.gz"),
            "c32a1d4ab5d03f1284b67883e8d87530",
            170,
        ),
    ),
    checksums={
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    **_cifar.FACTS,
)
