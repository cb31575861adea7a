"""Images that are resized on demand are those in memory, and the stream has the same hash."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dhocl import RunConfig
from dhocl.data import Dataset, Selection, dataset, load
from dhocl.data.resized import Resized
from dhocl.experiment.evaluate import Evaluator
from dhocl.experiment.run import make_plan
from dhocl.stream import Stream


@pytest.fixture(autouse=True)
def own_cache() -> None:
    """The cache of all tests, in which the data set is rendered already."""


@pytest.fixture(params=[24, 32])
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Dataset, Dataset]:
    """The same data set in memory, and resized on demand."""
    chosen = Selection(image_size=request.param, samples=60, test_samples=30, seed=4)
    memory = load("glyphs", chosen)
    monkeypatch.setattr(dataset, "RESIZED", 30 * 3 * 24**2 - 1)
    return memory, load("glyphs", chosen)


def test_images_are_those_in_memory(both: tuple[Dataset, Dataset]) -> None:
    memory, demand = both
    for here, there in ((memory.train, demand.train), (memory.test, demand.test)):
        assert isinstance(here.images, torch.Tensor)
        assert isinstance(there.images, Resized)
        assert there.images.nbytes == here.images.nbytes
        assert torch.equal(there.images[torch.arange(len(here))], here.images)
        assert torch.equal(there.images[torch.tensor([7, 2, 7])], here.images[[7, 2, 7]])
    assert demand.image_size == memory.image_size
    assert torch.equal(
        demand.with_fewer_tests(5, 0).test.images[torch.arange(5)],
        memory.with_fewer_tests(5, 0).test.images[torch.arange(5)],
    )


def test_streams_are_the_same(both: tuple[Dataset, Dataset]) -> None:
    streams = [Stream(each, make_plan(RunConfig(groups=2), each)[0], 16) for each in both]
    assert streams[0].digest() == streams[1].digest()
    for (x, labels), (again, same) in zip(streams[0].batches(), streams[1].batches(), strict=True):
        assert torch.equal(x, again)
        assert labels == same
    changed = both[1].train.images
    assert isinstance(changed, Resized)
    inverted = Resized(255 - np.asarray(changed.array), changed.size, changed.chosen)
    assert b"".join(inverted.identity()) != b"".join(changed.identity())


def test_only_images_in_memory_are_kept_for_the_next_evaluation(both: tuple[Dataset, Dataset]) -> None:
    assert [bool(Evaluator(each)._kept) for each in both] == [True, False]


def test_what_fits_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "RESIZED", 30 * 3 * 32**2)  # the test images, to the byte
    mixed = load("glyphs", Selection(image_size=32, samples=31, test_samples=30))
    assert isinstance(mixed.train.images, Resized)
    assert isinstance(mixed.test.images, torch.Tensor)
