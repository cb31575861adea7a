from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.nn.losses import given_nll, haf, jensen_shannon, js_consistency, mixture_nll, multi_ce
from tests.helpers.trees import balanced_tree

TREE = balanced_tree(2, 3)
seeds = st.integers(0, 1000)


def logits_for(tree: Taxonomy, seed: int, b: int = 5) -> dict[int, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {level: torch.randn(b, width, generator=generator) for level, width in tree.widths.items()}


@given(seeds)
def test_multi_ce_is_the_sum_of_level_means(seed: int) -> None:
    logits = logits_for(TREE, seed)
    targets = torch.tensor([[0, 2], [1, -1], [-1, 5], [0, -1], [-1, -1]])
    by_hand = sum(F.cross_entropy(logits[h][targets[:, h] >= 0], targets[targets[:, h] >= 0, h]) for h in (0, 1))
    torch.testing.assert_close(multi_ce(logits, targets), by_hand)
    probabilities = {h: z.softmax(1) for h, z in logits.items()}
    torch.testing.assert_close(mixture_nll(probabilities, targets), by_hand)


def test_averaged_by_sample_every_label_weighs_the_same() -> None:
    logits = {h: z.requires_grad_() for h, z in logits_for(TREE, 3).items()}
    targets = torch.tensor([[0, 2], [1, -1], [-1, 5], [0, -1], [-1, -1]])
    by_hand = -sum(
        logits[h].log_softmax(1)[row, c] for row, path in enumerate(targets) for h, c in enumerate(path) if c >= 0
    )
    probabilities = {h: z.softmax(1) for h, z in logits.items()}
    for loss in (multi_ce(logits, targets, "sample"), mixture_nll(probabilities, targets, "sample")):
        torch.testing.assert_close(loss, by_hand / 5)


def test_a_single_label_is_its_own_mean() -> None:
    logits = {0: torch.tensor([[0.0, 0.0], [9.0, 0.0]])}
    torch.testing.assert_close(multi_ce(logits, torch.tensor([[1], [-1]])), torch.tensor(math.log(2)))


def test_a_level_without_labels_adds_nothing_and_no_gradient() -> None:
    logits = {h: z.requires_grad_() for h, z in logits_for(TREE, 0).items()}
    targets = torch.tensor([[0, -1]] * 5)
    loss = multi_ce(logits, targets)
    loss.backward()
    assert torch.isfinite(loss)
    assert logits[1].grad.abs().sum() == 0


@given(seeds)
def test_jensen_shannon_agrees_with_scipy_and_its_bounds(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(6, 4, generator=generator).mul(5).softmax(1).double() for _ in range(2))
    mine = jensen_shannon(p, q)
    torch.testing.assert_close(mine, torch.from_numpy(jensenshannon(p, q, axis=1) ** 2))
    torch.testing.assert_close(mine, jensen_shannon(q, p))
    assert (mine >= -1e-12).all()
    assert (mine <= math.log(2) + 1e-12).all()


def test_probabilities_of_0_have_a_finite_loss() -> None:
    p, q = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    torch.testing.assert_close(jensen_shannon(p, q), torch.tensor([math.log(2)]))
    least = -math.log(1e-12)
    torch.testing.assert_close(mixture_nll({0: p}, torch.tensor([[1]])), torch.tensor(least))
    torch.testing.assert_close(given_nll({0: p[:, :2]}, torch.tensor([1]), balanced_tree(2)), torch.tensor([least]))


@given(seeds)
def test_given_nll_is_that_of_the_label_as_it_was_given(seed: int) -> None:
    probabilities = {h: z.softmax(1) for h, z in logits_for(TREE, seed).items()}
    nodes = torch.from_numpy(np.random.default_rng(seed).integers(len(TREE), size=5))
    by_hand = [-probabilities[TREE.labels[n].level][row, TREE.column(n)].log() for row, n in enumerate(nodes.tolist())]
    torch.testing.assert_close(given_nll(probabilities, nodes, TREE), torch.stack(by_hand))


@given(seeds)
def test_js_of_three_levels_is_the_sum_of_both_steps(seed: int) -> None:
    logits = logits_for(balanced_tree(2, 2, 2), seed)
    steps = [js_consistency({0: logits[h], 1: logits[h + 1]}, balanced_tree(2 * (h + 1), 2)) for h in (0, 1)]
    torch.testing.assert_close(js_consistency(logits, balanced_tree(2, 2, 2)), sum(steps))


def test_consistent_predictions_have_no_js_and_no_gradient() -> None:
    fine = torch.randn(5, 6, requires_grad=True)
    coarse = torch.zeros(5, 2).index_add(1, TREE.ancestors(1, 0), fine.softmax(1).detach()).log().requires_grad_()
    loss = js_consistency({0: coarse, 1: fine}, TREE)
    loss.backward()
    assert abs(loss.item()) < 1e-6
    assert coarse.grad.abs().max() < 1e-6
    assert fine.grad.abs().max() < 1e-6


@given(seeds)
def test_js_of_a_partial_tree_by_brute_force(seed: int) -> None:
    tree = Taxonomy()
    coarse = [tree.add(Label(f"a{i}", 0)) for i in range(4)]
    fine = [tree.add(Label(f"b{i}", 1)) for i in range(7)]
    links = {0: 0, 1: 0, 2: 2, 5: 3}  # a1 has no child; b3, b4, b6 are unanchored
    for child, parent in links.items():
        tree.link(fine[child], coarse[parent])
    logits = logits_for(tree, seed)
    p, q = logits[0].softmax(1), logits[1].softmax(1)
    classes = sorted(set(links.values()))
    p = p[:, classes] / p[:, classes].sum(1, keepdim=True)
    q = torch.stack([sum(q[:, c] for c, a in links.items() if a == parent) for parent in classes], 1)
    q = q / q.sum(1, keepdim=True)
    torch.testing.assert_close(js_consistency(logits, tree), jensen_shannon(p, q).mean())


def test_without_links_haf_is_multi_ce() -> None:
    tree = Taxonomy()
    for i in range(3):
        tree.add(Label(f"a{i}", 0))
        tree.add(Label(f"b{i}", 1))
    logits, targets = logits_for(tree, 1), torch.tensor([[0, 2], [1, -1], [-1, 1], [0, -1], [2, 2]])
    torch.testing.assert_close(haf(logits, targets, tree), multi_ce(logits, targets))
