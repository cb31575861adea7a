"""Features of frozen networks against the backbone itself."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.nn.backbones import load
from dhocl.nn.features import FrozenFeatures, StageFeatures, WeightedStages


def images(n: int = 4, side: int = 32) -> Tensor:
    return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def joined(pixels: Tensor) -> Tensor:
    """Stage and features, each of unit length."""
    return torch.cat([F.normalize(part) for part in load("tiny").pooled(pixels)], 1)


def test_stages_are_joined_each_of_unit_length() -> None:
    features = StageFeatures(load("tiny"))
    assert features.widths == [16 * 32, 64]
    assert features.dim == 16 * 32 + 64
    torch.testing.assert_close(features(images()), joined(images()))


def test_weighted_stages_are_joined_to_unit_length() -> None:
    stage, last = joined(images()).split([16 * 32, 64], 1)
    expected = F.normalize(torch.cat([0.3 * stage, last], 1))
    torch.testing.assert_close(WeightedStages(load("tiny"), 0.3)(images()), expected)


def test_without_stages_the_final_features_alone() -> None:
    features = StageFeatures(load("tiny"), stages=False)
    assert features.dim == 64
    torch.testing.assert_close(features(images()), F.normalize(load("tiny")(images())[0]))


def test_mirror_images_are_averaged() -> None:
    features = StageFeatures(load("tiny"), mirror=True)
    expected = (joined(images()) + joined(images().flip(3))) / 2
    torch.testing.assert_close(features(images()), expected)


def test_the_network_sees_images_of_the_side_that_was_asked_for() -> None:
    backbone = load("tiny")
    features = StageFeatures(backbone, side=2.0)
    large = F.interpolate(images().float(), (64, 64), mode="bilinear")
    torch.testing.assert_close(features(images()), joined(large))
    assert backbone.meter.pixels == 4 * 64 * 64
    small = StageFeatures(load("tiny"), side=0.5)(images())
    expected = joined(F.interpolate(images().float(), (16, 16), mode="bilinear", antialias=True))
    torch.testing.assert_close(small, expected)


def test_many_images_are_scaled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    features = StageFeatures(load("tiny"), side=2.0, mirror=True)
    whole = features(images(7))
    monkeypatch.setattr("dhocl.nn.features.AT_ONCE", 3 * 64 * 64)
    torch.testing.assert_close(features(images(7)), whole)


def test_features_are_kept_until_the_images_change() -> None:
    backbone = load("tiny")
    features = FrozenFeatures(backbone)
    x = images()
    first = features.kept(x)
    assert features.kept(x) is first
    assert backbone.meter.pixels == 4 * 32 * 32
    x[0] = 0
    assert not torch.equal(features.kept(x), first)
    assert copy.deepcopy(features).f0 is features.f0
