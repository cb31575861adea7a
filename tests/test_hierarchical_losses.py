from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from dhocl.losses import chained, hcon, hxe, multi_ce, sibling_log_softmax, soft_ce, soft_labels, supcon
from dhocl.taxonomy import Label, Taxonomy
from trees import balanced_tree

TREE = balanced_tree(2, 2, 2)
seeds = st.integers(0, 500)


def logits_for(tree: Taxonomy, seed: int, b: int = 6) -> dict[int, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {level: torch.randn(b, width, generator=generator).double() for level, width in tree.widths.items()}


def complete_targets(tree: Taxonomy, b: int = 6) -> torch.Tensor:
    leaves = tree.nodes(tree.levels[-1])
    return tree.complete(leaves[torch.arange(b) % len(leaves)])


def structure(tree: Taxonomy) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor]]:
    return {h: tree.parent_nodes(h) for h in tree.levels}, {h: tree.nodes(h) for h in tree.levels}


@given(seeds)
def test_sibling_softmax_by_brute_force(seed: int) -> None:
    z = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed)).double()
    parents = torch.tensor([3, -1, 3, 8, -1, 3])
    by_hand = torch.empty_like(z)
    for c in range(6):
        family = [k for k in range(6) if parents[k] == parents[c]]
        by_hand[:, c] = z[:, c] - torch.logsumexp(z[:, family], 1)
    torch.testing.assert_close(sibling_log_softmax(z, parents), by_hand)


@given(seeds)
def test_hxe_at_alpha_0_telescopes_to_the_likelihood_of_the_leaf(seed: int) -> None:
    logits, targets = logits_for(TREE, seed), complete_targets(TREE)
    p = chained(logits, *structure(TREE))[2]
    torch.testing.assert_close(hxe(logits, targets, TREE, alpha=0.0), F.nll_loss(p.log(), targets[:, 2]))


def test_a_large_alpha_leaves_only_the_top_split() -> None:
    logits, targets = logits_for(TREE, 1), complete_targets(TREE)
    torch.testing.assert_close(hxe(logits, targets, TREE, alpha=50.0), F.cross_entropy(logits[0], targets[:, 0]))


def test_hxe_without_links_is_multi_ce_with_level_weights() -> None:
    tree = Taxonomy()
    for i in range(3):
        tree.add(Label(f"a{i}", 0))
        tree.add(Label(f"b{i}", 1))
    logits, targets = logits_for(tree, 2), torch.tensor([[0, -1], [1, -1], [-1, 2], [-1, 0], [2, -1], [-1, 1]])
    torch.testing.assert_close(hxe(logits, targets, tree, alpha=0.0), multi_ce(logits, targets))


@given(seeds)
def test_chained_predictions_agree_along_the_tree(seed: int) -> None:
    p = chained(logits_for(TREE, seed), *structure(TREE))
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
    targets[3:, 1:] = -1
    loss(logits, targets, TREE).backward()
    assert logits[2].grad[3:].abs().max() == 0
    assert logits[2].grad[:3].abs().max() > 0
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
