"""Completion of labels downward against loops over samples and classes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.nn.heads.completion import DOUBT, FLOOR, complete, evidence, nearby, priors, recency, soft_targets
from tests.helpers.tensors import normal
from tests.helpers.trees import apply, balanced_tree, changes


def test_recency_falls_with_distance_and_ends_at_six_widths() -> None:
    kernel = recency(torch.tensor([10]), torch.tensor([10, 11, 7, 22, 23, -3]), 2.0)
    expected = [0, math.exp(-0.5), math.exp(-1.5), math.exp(-6), 0, 0]
    torch.testing.assert_close(kernel, torch.tensor([expected]))


def test_nearby_sums_the_kernel_over_samples_of_a_class() -> None:
    kernel = torch.tensor([[1.0, 2.0, 4.0, 8.0]])
    assert nearby(kernel, torch.tensor([2, -1, 2, 0]), 3).tolist() == [[8, 0, 5]]


def posterior_by_hand(prior: list[float], z: list[float], below: list[bool], placeless: list[bool]) -> list[float]:
    """Enumerate the classes: q ∝ (prior + FLOOR) exp(z), times the share of the prior that lies below the label."""
    inside = [c for c in range(len(z)) if below[c]]
    if not inside:
        return [0.0] * len(z)
    total = sum((prior[c] + FLOOR) * math.exp(z[c]) for c in inside)
    weight = sum(prior[c] for c in inside)
    outside = sum(prior[c] for c in range(len(z)) if placeless[c])
    trust = weight / (weight + outside + DOUBT)
    return [(prior[c] + FLOOR) * math.exp(z[c]) / total * trust if below[c] else 0.0 for c in range(len(z))]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.floats(-4, 4), st.sampled_from(["below", "elsewhere", "placeless"])),
        min_size=1,
        max_size=6,
    )
)
def test_soft_targets_equal_the_posterior_by_enumeration(classes: list[tuple[float, float, str]]) -> None:
    prior, z, where = (list(values) for values in zip(*classes, strict=True))
    below, placeless = [w == "below" for w in where], [w == "placeless" for w in where]
    found = soft_targets(torch.tensor([prior]), torch.tensor([z]), torch.tensor([below]), torch.tensor(placeless))
    expected = torch.tensor([posterior_by_hand(prior, z, below, placeless)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_evidence_is_the_likelihood_among_classes_with_the_same_ancestor() -> None:
    prior = torch.tensor([[3.0, 1.0, 9.0], [0.0, 0.0, 2.0]])
    parents = torch.tensor([0, 0, 1])
    found = evidence(prior, torch.tensor([1, 2]), parents, torch.tensor([0, 1]))
    first = math.log((1 + DOUBT) / (3 + 1 + DOUBT * 3))
    second = math.log((2 + DOUBT) / (2 + DOUBT * 2))
    assert found == pytest.approx(first + second)


def completed_by_loops(
    logits: dict[int, Tensor], y: list[int], kernel: Tensor, recent: list[int], tree: Taxonomy
) -> dict[int, list[list[float]]]:
    """For each sample and each finer level: the classes nearby, by the lineage of their labels."""

    def at(node: int, level: int) -> int | None:
        return next((a for a in tree.lineage(node) if tree.labels[a].level == level), None)

    found = {}
    for level in tree.levels[1:]:
        rows = []
        for i, node in enumerate(y):
            own = tree.labels[node].level
            nodes = tree.nodes(level).tolist()
            if own >= level:
                rows.append([0.0] * len(nodes))
                continue
            prior = [sum(float(kernel[i, j]) for j, other in enumerate(recent) if at(other, level) == c) for c in nodes]
            accepted = [tree.accepted(c) == c for c in nodes]
            below = [ok and at(c, own) == tree.accepted(node) for c, ok in zip(nodes, accepted, strict=True)]
            placeless = [at(c, own) is None for c in nodes]
            rows.append(posterior_by_hand(prior, logits[level][i].tolist(), below, placeless))
        found[level] = rows
    return found


def complete_nearby(
    logits: dict[int, Tensor], y: Tensor, kernel: Tensor, recent: Tensor, table: TreeTable
) -> dict[int, Tensor]:
    return complete(logits, y, priors(kernel, recent, table, logits), table)


@settings(deadline=None, max_examples=60)
@given(changes(), st.integers(0, 99))
def test_labels_are_completed_by_the_classes_nearby_whatever_the_tree(
    history: list[tuple[str, int, int]], seed: int
) -> None:
    """Uneven trees, levels in any order, classes without a place, merged and moved ones."""
    tree = apply([("add", 0, 0), *history])
    generator = torch.Generator().manual_seed(seed)
    recent = torch.randint(len(tree), (12,), generator=generator)
    y, kernel = recent[4:], recency(torch.arange(4, 12), torch.arange(12), 3.0)
    logits = {level: torch.randn(8, tree.widths[level], generator=generator) for level in tree.levels[1:]}
    found = complete_nearby(logits, y, kernel, recent, TreeTable.of(tree))
    expected = completed_by_loops(logits, y.tolist(), kernel, recent.tolist(), tree)
    assert list(found) == list(expected)
    for level, rows in expected.items():
        torch.testing.assert_close(found[level], torch.tensor(rows), rtol=1e-4, atol=1e-6)


def test_later_labels_explain_an_earlier_image() -> None:
    tree = balanced_tree(1, 2)
    bird, robin, crow = range(3)
    recent = torch.tensor([crow, bird, robin, robin])
    z = {1: torch.zeros(1, 2)}
    kernel = recency(torch.tensor([1]), torch.arange(4), 25.0)
    q = complete_nearby(z, torch.tensor([bird]), kernel, recent, TreeTable.of(tree))[1][0]
    assert q[0] > q[1] > 0
    assert q.sum() < 1


def test_a_class_without_a_place_lowers_the_trust() -> None:
    tree = balanced_tree(1, 2)
    loose = tree.add(Label("loose", 1))
    kernel = recency(torch.tensor([2]), torch.arange(3), 25.0)

    def trust(other: int) -> float:
        y = torch.tensor([1, other, 0])
        return float(complete_nearby({1: normal(1, 3)}, y[2:], kernel, y, TreeTable.of(tree))[1].sum())

    assert trust(loose) < 0.6 < trust(2)
