"""Large images on a CPU are augmented one by one; the draws and the result are the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from streamgauge.models import augment as _augment
from streamgauge.models.augment import augment


@pytest.mark.parametrize("how", ["flip", "flip_batch", "crop_flip", "resized_crop_flip"])
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_one_by_one_is_what_the_batch_gives(how: Any, kind: Any, monkeypatch: Any) -> None:
    x = torch.randint(0, 256, (9, 3, 70, 64), generator=torch.Generator().manual_seed(0)).to(kind)
    assert _augment.one_by_one(x)
    assert not _augment.one_by_one(x[:, :, :32, :32])
    single = augment(x, how, torch.Generator().manual_seed(1), padding=6)
    monkeypatch.setattr(_augment, "LARGE", 1 << 40)
    batch = augment(x, how, torch.Generator().manual_seed(1), padding=6)
    assert single.dtype == batch.dtype == kind
    if how == "resized_crop_flip":  # bytes are stretched in whole numbers
        away = (single.float() - batch.float()).abs()
        assert away.max() <= (1 if kind == torch.uint8 else 0.02)
        assert away.mean() < (0.25 if kind == torch.uint8 else 0.002)
    else:
        assert torch.equal(single, batch)
    assert not torch.equal(single, x)
