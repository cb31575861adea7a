"""The published archives themselves, where DHOCL_TEST_DATA names a folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from dhocl.core.errors import InputError
from dhocl.data import Selection, load
from dhocl.data.archive import locate

DATA = Path(os.environ.get("DHOCL_TEST_DATA", ""))


def present(root: str) -> bool:
    try:
        return "DHOCL_TEST_DATA" in os.environ and bool(locate(DATA, root, ""))
    except InputError:
        return False


@pytest.mark.skipif(not present("cifar-100-python"), reason="no CIFAR-100 in DHOCL_TEST_DATA")
def test_cifar100() -> None:
    dataset = load("cifar100", Selection(DATA))
    assert dataset.train.images.shape == (50_000, 3, 32, 32)
    assert dataset.test.images.shape == (10_000, 3, 32, 32)
    assert torch.bincount(dataset.tree.complete(dataset.train.nodes)[:, 2]).tolist() == [500] * 100
    mean = dataset.train.images.float().mean((0, 2, 3)) / 255
    assert torch.allclose(mean, torch.tensor([0.5071, 0.4865, 0.4409]), atol=1e-3)  # as often published


@pytest.mark.skipif(not present("CUB_200_2011"), reason="no CUB-200-2011 in DHOCL_TEST_DATA")
def test_cub200() -> None:
    dataset = load("cub200", Selection(DATA, image_size=32))
    assert (len(dataset.train), len(dataset.test)) == (5994, 5794)
    counts = torch.bincount(dataset.tree.complete(dataset.train.nodes)[:, 2])
    assert (len(counts), int(counts.min()), int(counts.max())) == (200, 29, 30)
