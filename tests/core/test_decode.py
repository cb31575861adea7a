"""Decoding of coherent levels: the distribution over paths is recovered from its marginals."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.decode import Beliefs, believe, known_paths, merge_synonyms
from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from tests.helpers.tensors import normal
from tests.helpers.trees import apply, balanced_tree, changes


def marginals(posterior: torch.Tensor, tree: Taxonomy) -> dict[int, torch.Tensor]:
    blank = {level: torch.zeros(len(posterior), width) for level, width in tree.widths.items()}
    return Beliefs(blank, posterior, known_paths(tree)).marginals()


def test_marginals_of_a_complete_tree_give_the_posterior_back() -> None:
    tree = balanced_tree(2, 3, 2)
    posterior = normal(5, 12).mul(2).softmax(1)
    torch.testing.assert_close(believe(marginals(posterior, tree), tree, coherent=True).posterior, posterior)


def test_leaves_of_different_depth() -> None:
    tree = balanced_tree(2)
    for name in ("a", "b"):
        tree.link(tree.add(Label(name, 1)), 0)
    tree.link(tree.add(Label("c", 2)), tree.id(Label("a", 1)))
    tree.link(tree.add(Label("d", 2)), tree.id(Label("a", 1)))
    assert known_paths(tree).tolist() == [[1, -1, -1], [0, 1, -1], [0, 0, 0], [0, 0, 1]]
    p = {0: torch.tensor([[0.8, 0.2]]), 1: torch.tensor([[0.7, 0.3]]), 2: torch.tensor([[0.6, 0.4]])}
    posterior = believe(p, tree, coherent=True).posterior
    expected = torch.tensor([[0.2, 0.8 * 0.3, 0.8 * 0.7 * 0.6, 0.8 * 0.7 * 0.4]])
    torch.testing.assert_close(posterior, expected)


@given(changes(), st.integers(0, 9))
def test_it_is_a_distribution_whatever_the_tree(history: list[tuple[str, int, int]], seed: int) -> None:
    tree = apply([("add", 0, 0), *history])
    p = {level: normal(2, width, seed=seed).softmax(1) for level, width in tree.widths.items()}
    posterior = believe(p, tree, coherent=True).posterior
    assert torch.isfinite(posterior).all()
    torch.testing.assert_close(posterior.sum(1), torch.ones(2))


def test_a_path_ends_only_as_far_as_no_class_without_a_place_is_probable() -> None:
    tree = balanced_tree(2)  # two families, the first with a species
    tree.link(tree.add(Label("anchored", 1)), 0)
    tree.add(Label("loose", 1))
    assert known_paths(tree).tolist() == [[1, -1], [0, 0], [-1, 1]]
    p = {0: torch.tensor([[0.3, 0.7]]), 1: torch.tensor([[0.6, 0.4]])}
    ends = 0.7 * (1 - 0.4)
    expected = torch.tensor([[ends, (1 - ends) * 0.6, (1 - ends) * 0.4]])
    torch.testing.assert_close(believe(p, tree, coherent=True).posterior, expected)


def test_without_links_the_finest_class_is_what_is_shown() -> None:
    tree = Taxonomy()
    for name, level in (("Turdidae", 0), ("Paridae", 0), ("blackbird", 1), ("blue tit", 1)):
        tree.add(Label(name, level))
    levels = {0: torch.tensor([[0.9, 0.1]]), 1: torch.tensor([[0.8, 0.2]])}
    (best,), _ = believe(levels, tree, coherent=True).best_path()
    assert best.tolist() == [-1, 0]


def test_a_class_without_known_children_competes_at_its_own_level() -> None:
    """Owls have no known species. They win against single finches, but not against all of them."""
    tree = Taxonomy()
    finch, owl = tree.add(Label("finch", 0)), tree.add(Label("owl", 0))
    for name in ("siskin", "serin", "crossbill"):
        tree.link(tree.add(Label(name, 1)), finch)
    levels = {0: torch.tensor([[0.55, 0.45], [0.4, 0.6]]), 1: torch.tensor([[0.3, 0.5, 0.2], [0.3, 0.5, 0.2]])}
    beliefs = believe(levels, tree, coherent=True)
    assert known_paths(tree).tolist() == [[1, -1], [0, 0], [0, 1], [0, 2]]
    torch.testing.assert_close(beliefs.posterior[0], torch.tensor([0.45, 0.165, 0.275, 0.11]))
    paths, probability = beliefs.best_path()
    assert paths.tolist() == [[0, 1], [tree.column(owl), -1]]
    torch.testing.assert_close(probability, torch.tensor([0.275, 0.6]))
    chosen = beliefs.choices("path")
    assert chosen[0].column.tolist() == [0, 1]


@given(changes(), st.integers(0, 99))
def test_a_path_that_ends_early_has_the_most_probable_class_of_its_level(
    history: list[tuple[str, int, int]], seed: int
) -> None:
    tree = apply([("add", 0, 0), *history])
    generator = torch.Generator().manual_seed(seed)
    levels = {level: torch.rand(5, width, generator=generator) for level, width in tree.widths.items()}
    levels = merge_synonyms({level: p / p.sum(1, keepdim=True) for level, p in levels.items()}, tree)
    beliefs = believe(levels, tree, coherent=True)
    paths, probability = beliefs.best_path()
    for row, path in enumerate(paths.tolist()):
        (place,) = [p for p, known in enumerate(beliefs.paths.tolist()) if known == path][:1]
        assert probability[row] == beliefs.posterior[row, place]
        last = max(place for place, column in enumerate(path) if column != UNKNOWN)
        if last < len(path) - 1:
            others = range(tree.widths[tree.levels[last]])
            mine = beliefs.marginal(row, last, path[last])
            assert all(mine >= beliefs.marginal(row, last, other) - 1e-6 for other in others)
        else:
            reach = beliefs.paths[:, -1] != UNKNOWN
            assert probability[row] == beliefs.posterior[row, reach].max()


def test_what_a_path_leaves_open_is_taken_from_the_level() -> None:
    tree = balanced_tree(2)
    tree.link(tree.add(Label("anchored", 1)), 0)
    tree.add(Label("loose", 1))
    levels = {0: torch.tensor([[0.3, 0.7]]), 1: torch.tensor([[0.6, 0.4]])}
    beliefs = Beliefs(levels, torch.tensor([[0.1, 0.4, 0.5]]), known_paths(tree))  # [1, -1], [0, 0], [-1, 1]
    torch.testing.assert_close(beliefs.marginals()[0], torch.tensor([[0.4 + 0.5 * 0.3, 0.1 + 0.5 * 0.7]]))
    torch.testing.assert_close(beliefs.marginals()[1], torch.tensor([[0.4, 0.5]]) / 0.9)


def test_an_empty_tree_has_no_paths() -> None:
    assert known_paths(Taxonomy()).shape == (0, 0)


def test_a_marginal_is_a_number() -> None:
    tree = balanced_tree(2, 2)
    beliefs = Beliefs({}, torch.tensor([[0.1, 0.2, 0.3, 0.4]]), known_paths(tree))
    found = beliefs.marginal(0, 0, 1)
    assert type(found) is float
    assert abs(found - 0.7) < 1e-6
