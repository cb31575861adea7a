from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.nn.losses import Average, hcon, hxe, leaf_softmax, leaves, multi_ce, soft_ce, soft_labels, supcon
from tests.helpers import slow_losses as slow
from tests.helpers.trees import apply, balanced_tree, changes

TREE = balanced_tree(2, 2, 2)
seeds = st.integers(0, 500)


def logits_for(tree: Taxonomy, seed: int, b: int = 6) -> dict[int, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {level: torch.randn(b, width, generator=generator).double() for level, width in tree.widths.items()}


def complete_targets(tree: Taxonomy, b: int = 6) -> torch.Tensor:
    leaves = tree.nodes(tree.levels[-1])
    return tree.complete(leaves[torch.arange(b) % len(leaves)])


def trees_with_classes() -> st.SearchStrategy[Taxonomy]:
    return changes().map(apply).filter(len)


@given(trees_with_classes(), seeds, st.sampled_from(get_args(Average)))
def test_hxe_of_any_growing_tree_by_brute_force(tree: Taxonomy, seed: int, average: Average) -> None:
    logits, rng = logits_for(tree, seed), np.random.default_rng(seed)
    y = rng.integers(len(tree), size=6).tolist()
    loss = hxe(logits, tree.complete(torch.tensor(y)), tree, average=average)
    torch.testing.assert_close(loss, slow.hxe(logits, y, tree, average), check_dtype=False)
    torch.testing.assert_close(leaf_softmax(logits, leaves(tree)), slow.leaf_softmax(logits, tree))


@given(trees_with_classes(), seeds)
def test_hxe_stays_finite_at_extreme_logits(tree: Taxonomy, seed: int) -> None:
    logits = {level: (z.float() * 1e4).requires_grad_() for level, z in logits_for(tree, seed).items()}
    y = torch.from_numpy(np.random.default_rng(seed).integers(len(tree), size=6))
    loss = hxe(logits, tree.complete(y), tree)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(z.grad).all() for z in logits.values())
    for level, p in leaf_softmax({level: z.detach() for level, z in logits.items()}, leaves(tree)).items():
        torch.testing.assert_close(p.sum(1), torch.ones(6))
        dead = tree.resolve(tree.nodes(level)) != tree.nodes(level)
        assert (p[:, dead] == 0).all()


@given(seeds, st.floats(0, 2))
def test_hxe_of_a_complete_tree_is_its_authors(seed: int, alpha: float) -> None:
    """Their code: the edge above a node weighs exp(-alpha depth), divided by the sum over all nodes, the root included.
    The loss is minus the weighted log of each node's mass over that of its parent."""
    logits, targets = logits_for(TREE, seed), complete_targets(TREE)
    p = logits[2].softmax(1)  # (6, 8)
    weights = [math.exp(-alpha * depth) for depth in range(4)]
    normaliser = sum(weight * 2**depth for depth, weight in enumerate(weights))  # 1, 2, 4 and 8 nodes
    theirs = 0.0
    for row, leaf in enumerate(targets[:, 2].tolist()):
        for depth in (1, 2, 3):
            size = 2 ** (3 - depth)  # leaves below a node of this depth, which lie side by side
            own, above = leaf // size, leaf // (2 * size)
            num = p[row, own * size : (own + 1) * size].sum()
            den = p[row, above * 2 * size : (above + 1) * 2 * size].sum()
            theirs = theirs - weights[depth] / normaliser * (num / den).log() / 6
    factor = weights[1] / normaliser  # the weight of their uppermost edge; ours is 1
    torch.testing.assert_close(factor * hxe(logits, targets, TREE, alpha), theirs, check_dtype=False)


@given(seeds)
def test_hxe_at_alpha_0_is_the_cross_entropy_of_the_leaves(seed: int) -> None:
    logits, targets = logits_for(TREE, seed), complete_targets(TREE)
    torch.testing.assert_close(hxe(logits, targets, TREE, alpha=0.0), F.cross_entropy(logits[2], targets[:, 2]))


def test_a_large_alpha_leaves_only_the_top_split() -> None:
    logits, targets = logits_for(TREE, 1), complete_targets(TREE)
    top = logits[2].softmax(1).view(6, 2, 4).sum(2)
    torch.testing.assert_close(hxe(logits, targets, TREE, alpha=50.0), F.nll_loss(top.log(), targets[:, 0]))


def test_a_coarse_label_merges_the_leaves_below_it() -> None:
    """The same loss, were the leaves of each class one leaf with their mass."""
    logits, targets = logits_for(TREE, 2), complete_targets(TREE)
    targets[:, 1:] = -1
    small = balanced_tree(2)
    merged = {0: logits[2].view(6, 2, 4).logsumexp(2)}
    torch.testing.assert_close(hxe(logits, targets, TREE), hxe(merged, targets[:, :1], small))


def test_hxe_without_links_is_multi_ce_with_level_weights() -> None:
    tree = Taxonomy()
    for i in range(3):
        tree.add(Label(f"a{i}", 0))
        tree.add(Label(f"b{i}", 1))
    logits, targets = logits_for(tree, 2), torch.tensor([[0, -1], [1, -1], [-1, 2], [-1, 0], [2, -1], [-1, 1]])
    torch.testing.assert_close(hxe(logits, targets, tree, alpha=0.0), multi_ce(logits, targets))


def test_unanchored_classes_compete_inside_their_level_only() -> None:
    """A cod may be a fish: neither of the two may push the other down while they are not linked."""
    tree = Taxonomy()
    bird, fish, robin, cod = (tree.add(Label(n, h)) for n, h in [("bird", 0), ("fish", 0), ("robin", 1), ("cod", 1)])
    tree.link(robin, bird)
    for node, pulled, pushed, untouched in [(cod, (1, 1), (1, 0), (0, 1)), (fish, (0, 1), (1, 0), (1, 1))]:
        logits = {h: z.requires_grad_() for h, z in logits_for(tree, 5, b=1).items()}
        hxe(logits, tree.complete(torch.tensor([node])), tree).backward()
        gradient = {(h, c): logits[h].grad[0, c].item() for h in (0, 1) for c in (0, 1)}
        assert gradient[pulled] < 0 < gradient[pushed]
        assert gradient[untouched] == 0
        assert gradient[0, 0] == 0, "bird has a child and no score of its own any more"


def test_a_merged_class_lends_its_score_to_its_accepted_class() -> None:
    tree = Taxonomy()
    robin, ruddock, _ = (tree.add(Label(name, 1)) for name in ("robin", "ruddock", "crow"))
    tree.merge(ruddock, robin)
    p = leaf_softmax({1: torch.tensor([[1.0, 3.0, 2.0]])}, leaves(tree))[1][0]
    share = (math.exp(1) + math.exp(3)) / (math.exp(1) + math.exp(2) + math.exp(3))
    torch.testing.assert_close(p, torch.tensor([share, 0.0, 1 - share]))


def test_the_gradient_of_hxe_is_numerically_right() -> None:
    tree = balanced_tree(2, 3)
    tree.add(Label("unanchored", 1))
    tree.add(Label("childless", 0))
    tree.merge(int(tree.nodes(1)[1]), int(tree.nodes(1)[0]))
    targets = tree.complete(tree.nodes(1)[[0, 1, 3, 6]])
    targets[2, 1] = -1
    coarse, fine = (z.requires_grad_() for z in logits_for(tree, 6, b=4).values())
    assert torch.autograd.gradcheck(lambda a, b: hxe({0: a, 1: b}, targets, tree), (coarse, fine))


@given(seeds)
def test_predictions_of_hxe_agree_along_a_complete_tree(seed: int) -> None:
    p = leaf_softmax(logits_for(TREE, seed), leaves(TREE))
    for coarse, fine in ((0, 1), (1, 2)):
        summed = torch.zeros_like(p[coarse]).index_add(1, TREE.ancestors(fine, coarse), p[fine])
        torch.testing.assert_close(summed, p[coarse])


@given(seeds)
def test_soft_labels_prefer_the_near(seed: int) -> None:
    q = soft_labels(TREE.distances(2), 3, beta=4.0)
    heights = TREE.distances(2)
    torch.testing.assert_close(q.sum(1), torch.ones(8))
    torch.testing.assert_close(q, q.t())
    for y in range(8):
        order = heights[y].argsort(stable=True)
        assert (q[y][order].diff() <= 1e-7).all()
        assert q[y].argmax() == y


def test_soft_ce_is_zero_at_its_own_labels_and_ce_at_large_beta() -> None:
    targets = complete_targets(TREE)
    at_q = {h: soft_labels(TREE.distances(h, targets[:, h]).double(), h + 1, 5.0).log() for h in TREE.levels}
    assert abs(soft_ce(at_q, targets, TREE, beta=5.0).item()) < 1e-6
    logits = logits_for(TREE, 3)
    torch.testing.assert_close(
        soft_ce(logits, targets, TREE, beta=2000.0), multi_ce(logits, targets), rtol=1e-6, atol=1e-6
    )


def test_soft_ce_of_unlinked_classes_is_label_smoothing() -> None:
    tree = Taxonomy()
    for i in range(5):
        tree.add(Label(f"a{i}", 0))
    off = (5 - 1) / (5 - 1 + math.exp(3.0))
    q = soft_labels(tree.distances(0).double(), 1, beta=3.0)
    torch.testing.assert_close(q, torch.full((5, 5), off / 4).double() + torch.eye(5) * (1 - off - off / 4))


@pytest.mark.parametrize("loss", [hxe, soft_ce])
def test_rows_without_a_label_count_for_nothing(loss: object) -> None:
    logits = {h: z.requires_grad_() for h, z in logits_for(TREE, 4).items()}
    targets = complete_targets(TREE)
    targets[3:] = -1
    loss(logits, targets, TREE).backward()
    assert logits[2].grad[3:].abs().max() == 0
    assert (logits[2].grad[:3].abs().amax(1) > 0).all()
    assert loss({h: z.detach() for h, z in logits.items()}, torch.full_like(targets, -1), TREE) == 0


@given(seeds)
def test_supcon_by_brute_force(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = F.normalize(torch.randn(7, 4, generator=generator).double())
    y = torch.randint(-1, 3, (7,), generator=generator)
    terms = []
    for i in range(7):
        positives = [j for j in range(7) if j != i and y[j] == y[i] != -1]
        if positives:
            others = torch.stack([z[i] @ z[j] / 0.1 for j in range(7) if j != i and y[j] != -1])
            terms.append(-torch.stack([z[i] @ z[j] / 0.1 - torch.logsumexp(others, 0) for j in positives]).mean())
    expected = torch.stack(terms).mean() if terms else torch.zeros(())
    torch.testing.assert_close(supcon(z, y, 0.1), expected, check_dtype=False)


def test_supcon_of_equal_features_is_log_n_minus_1() -> None:
    z = F.normalize(torch.ones(10, 3).double())
    assert math.isclose(supcon(z, torch.zeros(10, dtype=torch.long)).item(), math.log(9), rel_tol=1e-6)


def test_hcon_of_one_level_is_supcon() -> None:
    z, y = F.normalize(torch.randn(8, 4)), torch.arange(8) % 3
    torch.testing.assert_close(hcon(z, y[:, None]), supcon(z, y))


@given(seeds)
def test_hcon_does_not_depend_on_order_names_or_unlabelled_rows(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = F.normalize(torch.randn(9, 4, generator=generator).double())
    y = complete_targets(TREE, 9)
    order = torch.randperm(9, generator=generator)
    torch.testing.assert_close(hcon(z[order], y[order]), hcon(z, y))
    renamed = torch.stack([y[:, 0], (y[:, 1] + 1) % 4, 7 - y[:, 2]], 1)
    torch.testing.assert_close(hcon(z, renamed), hcon(z, y))
    more = torch.cat([z, F.normalize(torch.randn(3, 4, generator=generator).double())])
    torch.testing.assert_close(hcon(more, torch.cat([y, torch.full((3, 3), -1)])), hcon(z, y))
