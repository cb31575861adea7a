from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.stream import FIXED, GROUPED, Plan
from dhocl.stream.scenarios import hle_dual, hle_multi, hle_single, iblurry, iirc
from tests.helpers.trees import balanced_tree

Scenario = Callable[[np.ndarray, Taxonomy, int], Plan]
ALL: dict[str, Scenario] = FIXED | {
    name: lambda nodes, tree, seed, of=of: of(nodes, tree, 3, seed) for name, of in GROUPED.items()
}
TREE = balanced_tree(2, 3, 4)
every_scenario = pytest.mark.parametrize("scenario", ALL.values(), ids=ALL)
seeds = st.integers(0, 1000)
group_counts = st.integers(1, 6)


@st.composite
def pictures(draw: st.DrawFn, fewest: int = 1) -> np.ndarray:
    """The leaf of each image: an uneven number of each, in no order."""
    counts = draw(st.lists(st.integers(fewest, 30), min_size=24, max_size=24))
    return np.random.default_rng(draw(seeds)).permutation(np.repeat(TREE.nodes(2).numpy(), counts))


def groups(plan: Plan) -> list[np.ndarray]:
    """(n, 2) of each group."""
    return np.split(plan.table, plan.ends[:-1])


def columns(nodes: np.ndarray, level: int) -> np.ndarray:
    return TREE.paths.numpy()[nodes, level]


def times(plan: Plan, nodes: np.ndarray) -> list[int]:
    """How often each image comes."""
    return np.bincount(plan.table[:, 0], minlength=len(nodes)).tolist()


@every_scenario
@given(pictures(), seeds)
def test_the_seed_decides_and_groups_fill_the_table(scenario: Scenario, nodes: np.ndarray, seed: int) -> None:
    plan = scenario(nodes, TREE, seed)
    assert plan.ends[-1] == len(plan.table)
    assert list(plan.ends) == sorted(plan.ends)
    assert set(plan.table[:, 1]) <= set(TREE.levels)
    again, other = scenario(nodes, TREE, seed), scenario(nodes, TREE, seed + 1)
    assert np.array_equal(again.table, plan.table)
    assert again.ends == plan.ends
    assert not np.array_equal(other.table, plan.table)


@given(pictures(), group_counts, seeds)
def test_iblurry_shows_each_image_once_at_the_finest_level(nodes: np.ndarray, count: int, seed: int) -> None:
    plan = iblurry(nodes, TREE, count, seed)
    assert times(plan, nodes) == [1] * len(nodes)
    assert set(plan.table[:, 1]) == {2}
    assert len(plan.ends) == count


@given(pictures(fewest=20), st.integers(2, 6), seeds)
def test_iblurry_holds_half_of_the_classes_together_and_a_tenth_of_the_others_strays(
    nodes: np.ndarray, count: int, seed: int
) -> None:
    parts = groups(iblurry(nodes, TREE, count, seed))
    seen = np.array([np.bincount(columns(nodes[part[:, 0]], 2), minlength=24) for part in parts])  # (groups, classes)
    together = (seen > 0).sum(0) == 1
    sizes, main = seen.sum(0), seen.max(0)
    assert together.sum() >= 12  # a class's one stray may have come home
    share = 0.9 + 0.1 / count
    blurry = np.argsort(main / sizes)[:12]  # those that are the least together
    assert (np.abs(main - share * sizes)[blurry] < 2).all()
    homes = np.bincount(seen.argmax(0), minlength=count)
    assert homes.max() - homes.min() <= 1
    strays = (sizes - main).sum()
    assert abs(strays - 0.1 * (1 - 1 / count) * sizes[blurry].sum()) < 1 + len(blurry)


def test_iblurry_is_the_published_one() -> None:
    """On 100 classes of 500 images, as counted in the released lists: 60 classes a group, 50 in one group only."""
    tree = balanced_tree(20, 5)
    nodes = np.repeat(tree.nodes(1).numpy(), 500)
    plan = iblurry(nodes, tree)
    assert plan.ends == (10_000, 20_000, 30_000, 40_000, 50_000)
    seen = np.array([np.bincount(nodes[part[:, 0]], minlength=len(tree))[tree.nodes(1)] for part in groups(plan)])
    assert (seen > 0).sum(1).tolist() == [60] * 5
    assert ((seen > 0).sum(0) == 1).sum() == 50
    assert sorted(set((seen.max(0) / 500).tolist())) == [0.92, 1.0]


@given(pictures(), group_counts, seeds)
def test_hle_single_is_all_superclasses_then_classes_in_whole_superclasses(
    nodes: np.ndarray, count: int, seed: int
) -> None:
    plan = hle_single(nodes, TREE, count, seed)
    first, *later = groups(plan)
    assert times(plan, nodes) == [1] * len(nodes)
    assert set(first[:, 1]) == {1}
    assert all(set(part[:, 1]) <= {2} for part in later)
    assert set(columns(nodes[first[:, 0]], 1)) == set(range(6))
    _whole_superclasses(nodes, later, count)
    for level in (1, 2):  # the first group's share is the same everywhere
        of_class = np.bincount(columns(nodes, level), minlength=24)
        taken = np.bincount(columns(nodes[first[:, 0]], level), minlength=24)
        assert (np.abs(taken - of_class / (count + 1)) < 1).all()


def _whole_superclasses(nodes: np.ndarray, parts: list[np.ndarray], count: int) -> None:
    superclasses = [set(columns(nodes[part[:, 0]], 1)) for part in parts]
    assert len(parts) == count
    assert sum(len(part) for part in superclasses) == len(set.union(*superclasses))
    assert max(map(len, superclasses)) <= -(-6 // count)


def test_hle_single_is_the_published_one() -> None:
    tree = balanced_tree(20, 5)
    plan = hle_single(np.repeat(tree.nodes(1).numpy(), 500), tree)
    sizes = np.diff([0, *plan.ends])
    assert abs(sizes[0] - 8300) <= 40
    assert (np.abs(sizes[1:] - 8340) <= 10).all()


@given(pictures(), group_counts, seeds)
def test_hle_dual_shows_all_by_superclass_and_all_again_by_class(nodes: np.ndarray, count: int, seed: int) -> None:
    plan = hle_dual(nodes, TREE, count, seed)
    first, *later = groups(plan)
    assert sorted(first[:, 0]) == list(range(len(nodes)))
    assert set(first[:, 1]) == {1}
    assert sorted(np.concatenate(later)[:, 0]) == list(range(len(nodes)))
    assert all(set(part[:, 1]) == {2} for part in later)
    _whole_superclasses(nodes, later, count)


@given(pictures(), seeds)
def test_hle_multi_goes_from_coarse_to_fine_in_equal_shares(nodes: np.ndarray, seed: int) -> None:
    plan = hle_multi(nodes, TREE, seed)
    assert times(plan, nodes) == [1] * len(nodes)
    assert (np.diff(plan.table[:, 1]) >= 0).all()
    assert [set(part[:, 1]) for part in groups(plan)] == [{0}, {1}, {2}]
    sizes = [len(part) for part in groups(plan)]
    assert max(sizes) - min(sizes) <= 1
    for level in TREE.levels:  # also inside every class of every level
        counts = [np.bincount(columns(nodes[part[:, 0]], level), minlength=24) for part in groups(plan)]
        assert (np.max(counts, 0) - np.min(counts, 0) <= 1).all()


@given(pictures(), seeds)
def test_iirc_gives_40_percent_to_the_superclass_and_80_to_the_subclass(nodes: np.ndarray, seed: int) -> None:
    table = iirc(nodes, TREE, seed).table
    coarse, fine = (table[table[:, 1] == level, 0] for level in (1, 2))
    assert len(set(coarse)) == len(coarse)
    assert len(set(fine)) == len(fine)
    assert set(coarse) | set(fine) == set(range(len(nodes)))
    count, up, own, both = (
        np.bincount(columns(nodes[images], 2), minlength=24)
        for images in (np.arange(len(nodes)), coarse, fine, np.intersect1d(coarse, fine))
    )
    assert (np.abs(up - 0.4 * count) < 1).all()
    assert (own == count - np.minimum(count // 5, up)).all()  # 80 %, and more only where the rest would be lost
    assert (both == up + own - count).all()


def test_iirc_gives_less_of_each_to_a_superclass_of_many() -> None:
    """16 subclasses: 40 % x 8 / 16 of each; 32: 10 %, and the subclass takes what is left, so that no image is lost."""
    for width, up, own in ((8, 40, 80), (16, 20, 80), (32, 10, 90)):
        tree = balanced_tree(2, width)
        nodes = np.repeat(tree.nodes(1).numpy(), 100)
        table = iirc(nodes, tree).table
        coarse, fine = (np.bincount(nodes[table[table[:, 1] == level, 0]])[tree.nodes(1)] for level in (0, 1))
        assert (coarse == up).all()
        assert (fine == own).all()


def turns(nodes: np.ndarray, tree: Taxonomy, plan: Plan) -> list[set[int]]:
    """The nodes that name the images of each group."""
    paths = tree.paths.numpy()[nodes]
    places = {level: place for place, level in enumerate(tree.levels)}
    named = lambda image, level: int(tree.nodes(level)[paths[image, places[level]]])  # noqa: E731
    return [{named(image, level) for image, level in part.tolist()} for part in groups(plan)]


@given(st.integers(1, 16), st.integers(1, 6), st.integers(1, 4), seeds)
def test_iirc_names_a_superclass_in_an_earlier_group_than_its_subclasses(
    width: int, below: int, images: int, seed: int
) -> None:
    tree = balanced_tree(width, below)
    nodes = np.repeat(tree.nodes(1).numpy(), images)
    named = turns(nodes, tree, iirc(nodes, tree, seed))
    group = {node: place for place, part in enumerate(named) for node in part}
    assert sum(map(len, named)) == len(group) == len(tree), "every label has one group"
    assert all(group[tree.parent(node)] < group[node] for node in tree.nodes(1).tolist())
    assert named[0] <= set(tree.nodes(0).tolist())
    assert len(named[0]) == min(10, np.ceil(2 * width / 3))
    assert all(len(part) <= 5 for part in named[1:])


def test_iirc_mixes_late_superclasses_with_subclasses() -> None:
    tree = balanced_tree(20, 5)
    nodes = np.repeat(tree.nodes(1).numpy(), 5)
    named = turns(nodes, tree, iirc(nodes, tree))
    assert [len(part) for part in named] == [10] + [5] * 22
    assert any({tree.labels[node].level for node in part} == {0, 1} for part in named)


def ragged() -> tuple[np.ndarray, Taxonomy]:
    tree = Taxonomy()
    family, genus, robin, crow = (
        tree.add(Label(name, level)) for name, level in [("f", 0), ("g", 1), ("robin", 2), ("crow", 2)]
    )
    tree.link(genus, family)
    tree.link(robin, genus)
    tree.link(crow, family)  # no genus
    return np.array([robin, crow]), tree


@every_scenario
def test_what_does_not_fit_is_told(scenario: Scenario) -> None:
    with pytest.raises(InputError, match="empty"):
        scenario(np.array([], dtype=int), TREE, 0)
    if scenario is not ALL["iblurry"]:
        with pytest.raises(InputError, match="needs a class at each of its levels"):
            scenario(*ragged(), 0)
    if scenario not in (ALL["iblurry"], ALL["hle_multi"]):
        with pytest.raises(InputError, match="needs two levels"):
            scenario(np.array([0, 1]), balanced_tree(2), 0)


@pytest.mark.parametrize(("name", "most"), [("iblurry", 24), ("hle_single", 6), ("hle_dual", 6)])
def test_more_groups_than_there_is_to_deal_are_refused(name: str, most: int) -> None:
    nodes = np.repeat(TREE.nodes(2).numpy(), 3)
    assert len(GROUPED[name](nodes, TREE, most, 0).ends) >= most
    for wrong in (-1, 0, most + 1):
        with pytest.raises(InputError, match=f"`groups` {wrong}: choose from 1 to {most}"):
            GROUPED[name](nodes, TREE, wrong, 0)
