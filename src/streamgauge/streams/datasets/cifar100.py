"""CIFAR-100: 60,000 photos of 32 x 32 pixels in a hundred classes and twenty super-classes."""

from __future__ import annotations

from streamgauge.streams.datasets import cifar_files as _cifar
from streamgauge.streams.datasets.data_set import DataSet, Remote

# fmt: off
NAMES = [
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle",
    "bottle", "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle",
    "caterpillar", "cattle", "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch",
    "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox",
    "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom",
    "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
    "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake",
    "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle",
    "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
]
# fmt: on

DATA = DataSet(
    name="cifar100",
    title="CIFAR-100",
    revision="2009, binary version",
    forms="cifar-100-binary.tar.gz or cifar-100-python.tar.gz, unpacked or not; mosaics"
    " (train_N.webp or .png, test_0, train_labels_u8.npy, train_coarse_u8.npy and so on)",
    read=_cifar.reader(["train.bin"], "test.bin", ["coarse_labels", "fine_labels"], NAMES),
    remotes=(
        Remote(
            "cifar-100-binary.tar.gz",
            _cifar.toronto("cifar-100-binary.tar.gz"),
            "03b5dce01913d631647c71ecec9e9cb8",
            169,
        ),
    ),
    checksums={
        "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
        "test.bin": "4499cfba6c016c1be1438163640a0898",
    },
    **_cifar.FACTS,
)
