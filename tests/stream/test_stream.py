from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.data.dataset import Dataset, Split
from dhocl.stream import PlanConfig, Stream, plan
from dhocl.stream import given as given_plan
from dhocl.stream.plan import load, save, split_classes
from tests.helpers.trees import balanced_tree

TREE = balanced_tree(3, 2, 4)
LEAVES = TREE.nodes(2).numpy()
configs = st.builds(
    PlanConfig,
    groups=st.integers(1, 6),
    overlap=st.floats(0, 1),
    split_level=st.sampled_from([None, 1, 2]),
    passes=st.integers(1, 3),
    seed=st.integers(0, 1000),
)


def images(per_leaf: int = 6) -> np.ndarray:
    return np.repeat(LEAVES, per_leaf)


@given(configs, st.integers(1, 7))
def test_each_image_comes_once_a_pass_and_every_class_appears(config: PlanConfig, per_leaf: int) -> None:
    nodes = images(per_leaf)
    table = plan(nodes, TREE, config)
    assert np.bincount(table[:, 0], minlength=len(nodes)).tolist() == [config.passes] * len(nodes)
    assert set(nodes[table[:, 0]]) == set(LEAVES)
    assert set(table[:, 1]) <= set(TREE.levels)


@given(configs)
def test_overlap_is_the_asked_one(config: PlanConfig) -> None:
    place = 2 if config.split_level is None else config.split_level
    classes = TREE.paths.numpy()[images()][:, place]
    groups = [set(classes[members]) for members in split_classes(classes, config, np.random.default_rng(0))]
    homes = [len(part) for part in np.array_split(np.unique(classes), config.groups)]
    shared = [len(before & after) for before, after in itertools.pairwise(groups)]
    asked = np.cumsum([config.overlap * home for home in homes[:-1]])
    assert np.abs(np.cumsum(shared) - asked).max(initial=0) <= 0.5 + 1e-9
    for place, first in enumerate(groups):  # never across more than one boundary
        for later in groups[place + 2 :]:
            assert not first & later


@given(configs)
def test_shared_classes_are_halved(config: PlanConfig) -> None:
    classes = TREE.paths.numpy()[images(7)][:, 2]
    groups = split_classes(classes, config, np.random.default_rng(0))
    for before, after in itertools.pairwise(groups):
        for name in set(classes[before]) & set(classes[after]):
            assert abs((classes[before] == name).sum() - (classes[after] == name).sum()) <= 1


def test_levels_follow_the_law() -> None:
    nodes = images(200)
    uniform = np.bincount(plan(nodes, TREE, PlanConfig())[:, 1], minlength=3) / len(nodes)
    assert np.abs(uniform - 1 / 3).max() < 4 * np.sqrt(2 / 9 / len(nodes))
    only_fine = plan(nodes, TREE, PlanConfig(granularity=(0, 0, 1)))
    assert set(only_fine[:, 1]) == {2}


def test_a_share_too_small_for_one_group_still_comes() -> None:
    """20 classes in 10 groups, a fifth shared: 0.4 of a class a group."""
    classes = np.repeat(np.arange(20), 6)
    groups = [set(classes[m]) for m in split_classes(classes, PlanConfig(overlap=0.2), np.random.default_rng(0))]
    assert sum(len(before & after) for before, after in itertools.pairwise(groups)) == 4


def test_a_rank_that_a_path_lacks_is_never_asked_for() -> None:
    tree = Taxonomy()
    family, genus, robin, crow = (
        tree.add(Label(name, level)) for name, level in [("f", 0), ("g", 1), ("robin", 2), ("crow", 2)]
    )
    tree.link(genus, family)
    tree.link(robin, genus)
    tree.link(crow, family)  # no genus
    nodes = np.array([robin, crow] * 100)
    table = plan(nodes, tree, PlanConfig(groups=1))
    levels = {node: table[nodes[table[:, 0]] == node, 1] for node in (robin, crow)}
    assert set(levels[robin]) == {0, 1, 2}
    assert set(levels[crow]) == {0, 2}
    assert abs((levels[crow] == 0).mean() - 0.5) < 0.2


def test_a_pass_stays_inside_its_group_with_fresh_levels() -> None:
    nodes = images(10)
    table = plan(nodes, TREE, PlanConfig(groups=4, overlap=0, passes=2))
    first, second = np.split(table[: len(nodes) // 2], 2)  # the two passes of the first group
    assert set(first[:, 0]) == set(second[:, 0])
    levels = [dict(map(tuple, part)) for part in (first, second)]
    assert levels[0] != levels[1]


def test_same_seed_same_stream() -> None:
    def digest(seed: int, nodes: np.ndarray, first_pixel: int = 0) -> str:
        dataset = numbered(nodes)
        dataset.train.images[0, 0, 0, 0] = first_pixel
        return Stream(dataset, plan(images(), TREE, PlanConfig(seed=seed)), batch=8).digest()

    assert digest(4, images()) == digest(4, images())
    assert digest(4, images()) != digest(5, images()), "another order"
    assert digest(4, images()) != digest(4, images()[::-1].copy()), "other labels"
    assert digest(4, images()) != digest(4, images(), first_pixel=1), "other pixels"


def test_a_plan_can_be_written_and_read(tmp_path: Path) -> None:
    table = plan(images(), TREE, PlanConfig())
    save(table, tmp_path / "plan.tsv")
    assert np.array_equal(load(tmp_path / "plan.tsv"), table)
    (tmp_path / "bad.tsv").write_text("image\tlevel\nx\ty\n")
    with pytest.raises(InputError, match=r"bad.tsv is not a stream plan"):
        load(tmp_path / "bad.tsv")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (PlanConfig(groups=25), "`groups` 25: choose from 1 to 24"),
        (PlanConfig(groups=0), "`groups` 0"),
        (PlanConfig(overlap=1.5), "`overlap` 1.5"),
        (PlanConfig(split_level=9), "`split_level` 9"),
        (PlanConfig(passes=0), "`passes` 0"),
        (PlanConfig(granularity=(1, 1)), "3 weights"),
    ],
)
def test_bad_plans_are_refused(config: PlanConfig, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(images(), TREE, config)


def test_an_empty_stream_is_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        plan(np.array([], dtype=int), TREE, PlanConfig())


def numbered(nodes: np.ndarray) -> Dataset:
    """Image i holds the number i."""
    pixels = torch.arange(len(nodes), dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2).contiguous()
    split = Split(pixels, torch.from_numpy(nodes))
    return Dataset("numbers", ("a", "b", "c"), TREE, split, split, flip=False)


def test_batches_follow_the_plan_from_any_step() -> None:
    nodes = images(5)
    table = plan(nodes, TREE, PlanConfig(groups=3, seed=1))
    stream = Stream(numbered(nodes), table, batch=7)
    batches = list(stream.batches())
    assert len(batches) == len(stream) == 18
    assert torch.cat([x[:, 0, 0, 0] for x, _ in batches]).tolist() == table[:, 0].tolist()
    labels = [label for _, names in batches for label in names]
    assert [label.level for label in labels] == table[:, 1].tolist()
    for label, image in zip(labels, table[:, 0], strict=True):
        assert TREE.id(label) in TREE.lineage(int(nodes[image]))
    resumed = list(stream.batches(start=5))
    assert [names for _, names in resumed] == [names for _, names in batches[5:]]
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(resumed, batches[5:], strict=True))


def test_a_given_stream_keeps_order_and_levels() -> None:
    nodes = np.array([0, 5, len(TREE) - 1])
    table = given_plan(nodes, TREE)
    assert table[:, 0].tolist() == [0, 1, 2]
    assert table[:, 1].tolist() == [TREE.labels[n].level for n in nodes]
    asks_too_deep = np.array([[0, 2]])
    with pytest.raises(InputError, match="sample 0 of the plan has level 2"):
        Stream(numbered(nodes), asks_too_deep, batch=1)
