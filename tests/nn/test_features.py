"""Features of frozen networks against the backbone itself."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.nn.backbones import load
from dhocl.nn.features import FrozenFeatures, StageFeatures


def images(n: int = 4, side: int = 32) -> Tensor:
    return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def joined(pixels: Tensor, weight: float) -> Tensor:
    """Stage and features of unit length, weighted, at length 1."""
    stage, features = (F.normalize(part) for part in load("tiny").pooled(pixels))
    return F.normalize(torch.cat([weight * stage, features], 1))


def test_stages_are_weighted_and_joined_to_unit_length() -> None:
    features = StageFeatures(load("tiny"), 0.5, 1.0, mirror=False)
    assert features.dim == 32 + 64
    torch.testing.assert_close(features(images()), joined(images(), 0.5))


def test_without_stages_the_final_features_alone() -> None:
    features = StageFeatures(load("tiny"), 0.0, 1.0, mirror=False)
    assert features.dim == 64
    torch.testing.assert_close(features(images()), F.normalize(load("tiny")(images())[0]))


def test_mirror_images_are_averaged() -> None:
    features = StageFeatures(load("tiny"), 0.5, 1.0, mirror=True)
    expected = (joined(images(), 0.5) + joined(images().flip(3), 0.5)) / 2
    torch.testing.assert_close(features(images()), expected)


def test_the_network_sees_images_of_the_side_that_was_asked_for() -> None:
    backbone = load("tiny")
    features = StageFeatures(backbone, 0.5, 2.0, mirror=False)
    large = F.interpolate(images().float(), (64, 64), mode="bilinear")
    torch.testing.assert_close(features(images()), joined(large, 0.5))
    assert backbone.meter.pixels == 4 * 64 * 64
    small = StageFeatures(load("tiny"), 0.5, 0.5, mirror=False)(images())
    expected = joined(F.interpolate(images().float(), (16, 16), mode="bilinear", antialias=True), 0.5)
    torch.testing.assert_close(small, expected)


def test_many_images_are_scaled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    features = StageFeatures(load("tiny"), 0.5, 2.0, mirror=True)
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
