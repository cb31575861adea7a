from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.errors import InputError
from dhocl.data import DATASETS, Selection, load
from dhocl.data.dataset import Source, Table, balanced, select
from dhocl.data.lineage import grow


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.data(), st.integers(0, 99))
def test_a_balanced_subset_is_as_even_as_the_classes_allow(classes: list[int], data: st.DataObject, seed: int) -> None:
    n = data.draw(st.integers(1, len(classes)))
    rows = balanced(np.array(classes), n, np.random.default_rng(seed))
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(rows) == n
    taken = {name: sum(classes[row] == name for row in rows) for name in set(classes)}
    for name, count in taken.items():
        assert count == classes.count(name) or count >= max(taken.values()) - 1


@pytest.mark.parametrize("n", [0, -1, 4])
def test_more_than_there_is_can_not_be_asked_for(n: int) -> None:
    with pytest.raises(InputError, match=f"{n} images requested, but there are 3"):
        balanced(np.arange(3), n, np.random.default_rng(0))


def numbered(train: int = 60, test: int = 30) -> Source:
    """Each image carries its own number; test images count from 100."""
    tree, leaves = grow([("a", "b"), ("a", "c"), ("d", "e")])

    def table(count: int, start: int) -> Table:
        images = np.arange(start, start + count, dtype=np.uint8)[:, None, None, None].repeat(3, axis=3)
        return Table(leaves[np.arange(count) % 3], lambda rows: images[rows])

    return Source("numbered", ("coarse", "fine"), tree, table(train, 0), table(test, 100), flip=False)


def numbers(split: object) -> list[int]:
    images = split.images  # type: ignore[attr-defined]
    return images[:, 0, 0, 0].tolist()


def test_everything_is_taken_by_default() -> None:
    dataset = select(numbered(), Selection())
    assert numbers(dataset.train) == list(range(60))
    assert numbers(dataset.test) == list(range(100, 130))


@given(st.integers(1, 40), st.one_of(st.none(), st.integers(1, 20)), st.integers(0, 50))
def test_held_out_images_are_not_trained_on(samples: int, test_samples: int | None, seed: int) -> None:
    chosen = Selection(samples=samples, test_samples=test_samples, holdout=True, seed=seed)
    dataset = select(numbered(), chosen)
    train, test = numbers(dataset.train), numbers(dataset.test)
    assert not set(train) & set(test)
    assert max(train + test) < 60  # the test images stay untouched
    assert (len(train), len(test)) == (samples, test_samples or 12)
    assert np.ptp(np.unique(dataset.test.nodes, return_counts=True)[1]) <= 1


def test_labels_stay_with_their_images_and_the_seed_decides() -> None:
    source = numbered()
    picks = [select(source, Selection(samples=20, test_samples=9, seed=seed)) for seed in (0, 0, 1)]
    for dataset in picks:
        assert dataset.train.nodes.tolist() == source.train.nodes[numbers(dataset.train)].tolist()
    assert numbers(picks[0].train) == numbers(picks[1].train)
    assert numbers(picks[0].train) != numbers(picks[2].train)


@pytest.mark.parametrize(("held", "message"), [(0, "0 images requested"), (60, "leaves none to train on")])
def test_a_holdout_of_nothing_or_of_all_is_refused(held: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        select(numbered(), Selection(test_samples=held, holdout=True))


def test_an_unknown_data_set_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="there is no data set 'mnist': choose one of glyphs, cifar100, cub200"):
        load("mnist", Selection())


def test_a_picture_has_a_size() -> None:
    with pytest.raises(InputError, match="image_size=0: at least 1"):
        load("glyphs", Selection(image_size=0))


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "glyphs"])
def test_data_that_must_be_given_are_asked_for(name: str) -> None:
    with pytest.raises(InputError, match="`data`"):
        load(name, Selection())
