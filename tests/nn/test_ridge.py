"""Additive ridge statistics against ridge regression on all rows."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.core.table import TreeTable
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.nn.heads.ridge import LeaveOneOut, Readout, Statistics, System, combined, factor, outputs, solve
from tests.helpers.tensors import unit
from tests.helpers.trees import apply_one, balanced_tree, completed_by_hand

D = 6


def labels(n: int, tree: Taxonomy, seed: int = 0) -> Tensor:
    return torch.randint(len(tree), (n,), generator=torch.Generator().manual_seed(seed))


def by_hand(phi: Tensor, y: Tensor, tree: Taxonomy, level: int) -> System:
    """Row by row: a sample counts if the lineage of its label has a class at the level."""
    width, place = tree.widths[level], tree.levels.index(level)
    system = System(torch.zeros(D, D), torch.zeros(width, D), torch.zeros(width))
    for row, node in zip(phi, y.tolist(), strict=True):
        column = completed_by_hand(tree, node)[place]
        if column != -1:
            system.A.add_(torch.outer(row, row))
            system.M[column] += row
            system.N[column] += 1
    return system


def assert_close(a: System, b: System) -> None:
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_sums_equal_those_of_all_rows_completed_upward() -> None:
    tree = balanced_tree(2, 2, 3)
    phi, y = unit(50, D), labels(50, tree)
    statistics = Statistics(D)
    for start in range(0, 50, 7):
        statistics.add(phi[start : start + 7], y[start : start + 7], TreeTable.of(tree))
    for level in tree.levels:
        assert_close(statistics.system(level, TreeTable.of(tree)), by_hand(phi, y, tree, level))


def test_the_solution_is_ridge_regression() -> None:
    tree = balanced_tree(3)
    phi, y = unit(40, D), labels(40, tree)
    statistics = Statistics(D)
    statistics.add(phi, y, TreeTable.of(tree))
    A, M, _ = statistics.system(0, TreeTable.of(tree))
    expected = Ridge(0.3, fit_intercept=False).fit(phi.double(), torch.nn.functional.one_hot(y, 3).double()).coef_
    torch.testing.assert_close(solve(factor(A, 0.3), M), torch.from_numpy(expected).float(), rtol=1e-4, atol=1e-5)


def test_gram_matrices_count_by_the_share_of_samples_that_have_a_class() -> None:
    tree = balanced_tree(2)
    linked, loose = tree.add(Label("linked", 1)), tree.add(Label("loose", 1))
    tree.link(linked, 0)
    phi, y = unit(8, D), torch.tensor([linked, linked, linked, loose, 0, 1, 1, loose])
    statistics = Statistics(D)
    statistics.add(phi, y, TreeTable.of(tree))
    A, M, N = statistics.system(0, TreeTable.of(tree))
    fine = phi[[0, 1, 2, 3, 7]]
    torch.testing.assert_close(A, phi[4:7].t() @ phi[4:7] + 3 / 5 * fine.t() @ fine)
    torch.testing.assert_close(M, torch.stack([phi[:3].sum(0) + phi[4], phi[5] + phi[6]]))
    assert N.tolist() == [4, 2]


def test_a_label_finer_than_a_level_without_any_link_does_not_count_there() -> None:
    tree = Taxonomy()
    tree.add(Label("bird", 0))
    tree.add(Label("robin", 1))
    statistics = Statistics(D)
    statistics.add(unit(3, D), torch.tensor([0, 1, 1]), TreeTable.of(tree))
    A, _, N = statistics.system(0, TreeTable.of(tree))
    torch.testing.assert_close(A, torch.outer(unit(3, D)[0], unit(3, D)[0]))
    assert N.tolist() == [1]


def test_links_that_come_late_count_as_if_they_had_been_there() -> None:
    tree = Taxonomy()
    for name, level in (("bird", 0), ("fish", 0), ("robin", 1), ("pike", 1)):
        tree.add(Label(name, level))
    phi, y = unit(20, D), labels(20, tree)
    statistics = Statistics(D)
    statistics.add(phi, y, TreeTable.of(tree))
    for child, parent in ((2, 1), (3, 1), (2, 0)):  # the last moves a class
        tree.link(child, parent)
    assert_close(statistics.system(0, TreeTable.of(tree)), by_hand(phi, y, tree, 0))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=6))
def test_merged_classes_count_as_if_they_had_been_one(merges: list[tuple[int, int]]) -> None:
    tree = balanced_tree(2, 2, 2)
    phi, y = unit(30, D), labels(30, tree)
    soft = torch.rand(30, 8, generator=torch.Generator().manual_seed(1))
    statistics = Statistics(D)
    statistics.add(phi, y, TreeTable.of(tree))
    statistics.add_soft(phi, soft, 2)
    for node, into in merges:
        apply_one(tree, "merge", node, into)
    for level in tree.levels:
        expected = by_hand(phi, y, tree, level)
        if level == 2:
            accepted = torch.zeros(30, 8).index_add_(1, tree.ancestors(2, 2), soft)
            expected.add(phi, accepted)
        assert_close(statistics.system(level, TreeTable.of(tree)), expected)


def test_soft_targets_add_weighted_rows() -> None:
    tree = balanced_tree(2, 2)
    phi = unit(5, D)
    first, then = torch.rand(5, 3), torch.rand(5, 4)
    statistics = Statistics(D)
    statistics.add(phi[:0], torch.zeros(0, dtype=torch.long), TreeTable.of(tree))
    statistics.add_soft(phi, first, 1)
    statistics.add_soft(phi, then, 1)  # a class more
    statistics.add_soft(phi, first, 1)  # and fewer again
    both = then.clone()
    both[:, :3] += 2 * first
    A, M, N = statistics.system(1, TreeTable.of(tree))
    torch.testing.assert_close(A, sum(t.sum() * torch.outer(p, p) for t, p in zip(both, phi, strict=True)))
    torch.testing.assert_close(M, both.t() @ phi)
    torch.testing.assert_close(N, both.sum(0))


def test_statistics_of_two_halves_add_up_to_those_of_the_whole() -> None:
    tree = balanced_tree(2, 3)
    phi, y, soft = unit(40, D), labels(40, tree), torch.rand(40, 6, generator=torch.Generator().manual_seed(2))
    table = TreeTable.of(tree)
    whole, first, second = Statistics(D), Statistics(D), Statistics(D)
    whole.add(phi, y, table)
    whole.add_soft(phi, soft, 1)
    first.add(phi[:15], y[:15], table)
    first.add_soft(phi[:15], soft[:15, :4], 1)
    whole.add_soft(phi[:15], torch.cat([torch.zeros(15, 4), -soft[:15, 4:]], 1), 1)  # the first half had 4 classes
    second.add(phi[15:], y[15:], table)
    second.add_soft(phi[15:], soft[15:], 1)
    first.join(second)
    for level in (0, 1):
        assert_close(first.system(level, table), whole.system(level, table))


def left_out(phi: Tensor, y: Tensor, gamma: Tensor, weights: Tensor | None = None) -> LeaveOneOut:
    targets = torch.nn.functional.one_hot(y.clamp_min(0), 3).to(phi.dtype)
    w = torch.ones(len(phi), dtype=phi.dtype) if weights is None else weights
    L = factor((w[:, None] * phi)[y >= 0].t() @ phi[y >= 0], gamma)
    return LeaveOneOut(phi, y, L, targets[y >= 0].t() @ phi[y >= 0], weights)


def test_leave_one_out_where_samples_have_weights() -> None:
    """Without the sample and its weight, whose leverage alone is above 1."""
    phi, y, gamma = unit(5, D), torch.arange(5) % 3, torch.full((D,), 0.05)
    w, targets = torch.full((5,), 0.3), torch.nn.functional.one_hot(y, 3).float()
    out = left_out(phi, y, gamma, w)
    assert (out._h > 1).any()
    for i in range(5):
        rest = [j for j in range(5) if j != i]
        W = solve(factor((w[:, None] * phi)[rest].t() @ phi[rest], gamma), targets[rest].t() @ phi[rest])
        torch.testing.assert_close(out.z[i], W @ phi[i], rtol=1e-4, atol=1e-4)


def test_weights_are_shares_of_the_samples_with_a_class() -> None:
    tree = balanced_tree(2, 2)
    loose = tree.add(Label("loose", 1))
    statistics, y = Statistics(D), torch.tensor([0, 2, 3, 4, loose])
    statistics.add(unit(5, D), y, TreeTable.of(tree))
    assert statistics.weights(y, 0, TreeTable.of(tree)).tolist() == [1.0, 0.75, 0.75, 0.75, 0.75]
    assert statistics.weights(y[1:], 1, TreeTable.of(tree)).tolist() == [1.0] * 4


def test_a_leverage_that_rounds_to_1_gives_numbers() -> None:
    phi = torch.eye(3)
    out = left_out(phi, torch.arange(3), torch.full((3,), 1e-9))
    assert out.z.isfinite().all()
    assert out.slopes(torch.ones(3, 3), torch.full((3,), 1e-9)).isfinite().all()


def test_leave_one_out_equals_regression_without_the_sample() -> None:
    phi, y = unit(12, D), torch.arange(12) % 3
    y[5] = -1  # was not learned
    targets = torch.nn.functional.one_hot(y.clamp_min(0), 3).float()
    gamma = torch.linspace(0.2, 0.8, D)
    found = left_out(phi, y, gamma).z
    for i in range(12):
        rest = [j for j in range(12) if j not in (i, 5)]
        W = solve(factor(phi[rest].t() @ phi[rest], gamma), targets[rest].t() @ phi[rest])
        torch.testing.assert_close(found[i], W @ phi[i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("times", [8_000, 20_000])
def test_a_long_stream_of_the_same_images_can_be_solved(times: int) -> None:
    """In float32, the sums of 256,000 samples have eigenvalues below -0.05, where they should be 0."""
    phi = torch.nn.functional.normalize(torch.rand(8, 64, generator=torch.Generator().manual_seed(0)))
    A, M = torch.zeros(64, 64), 4 * times * phi
    batch = phi.repeat(4, 1)
    for _ in range(times):
        A.addmm_(batch.t(), batch)
    with pytest.raises(RuntimeError, match="not positive-definite"):
        torch.linalg.cholesky(A + 0.01 * torch.eye(64))
    torch.testing.assert_close(outputs(phi, factor(A, 0.01), M), torch.eye(8), atol=0.02, rtol=0)


def test_penalties_above_rounding_errors_stay_as_they_are() -> None:
    phi, gamma = unit(30, D), torch.linspace(0.01, 2, D)
    A = phi.t() @ phi
    L = factor(A, gamma)
    torch.testing.assert_close(L @ L.t(), A + torch.diag(gamma))


def test_sums_that_are_not_numbers_are_an_error() -> None:
    with pytest.raises(InputError, match="raise `settings` gamma"):
        factor(torch.full((3, 3), torch.nan), 1.0)


@pytest.mark.parametrize(("n", "classes"), [(3, 5), (5, 3)])
def test_outputs_are_the_same_in_either_order(n: int, classes: int) -> None:
    L, M = factor(unit(9, D).t() @ unit(9, D), 0.5), unit(classes, D, seed=1)
    torch.testing.assert_close(outputs(unit(n, D, seed=2), L, M), unit(n, D, seed=2) @ solve(L, M).t())


@pytest.mark.parametrize(("n", "classes"), [(3, 5), (5, 3)])
def test_combined_weights_are_the_same_in_either_order(n: int, classes: int) -> None:
    L, M, given = factor(unit(9, D).t() @ unit(9, D), 0.5), unit(classes, D, seed=1), unit(n, classes, seed=2)
    torch.testing.assert_close(combined(given, L, M), given @ solve(L, M))


@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_are_those_of_the_losses_by_log_penalties(weighted: bool) -> None:
    """Against differences: each penalty is raised and lowered a little."""
    w = torch.linspace(0.3, 0.9, 12, dtype=torch.float64) if weighted else None
    phi, y = unit(12, D).double(), torch.arange(12) % 3
    y[5] = -1
    gamma = torch.linspace(0.2, 0.8, D, dtype=torch.float64)
    rates = torch.rand(12, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = left_out(phi, y, gamma, w).slopes(rates, gamma)  # the loss of a sample: its outputs times rates
    for d in range(D):
        step = torch.ones(D, dtype=torch.float64)
        step[d] = math.exp(1e-5)
        up, down = (left_out(phi, y, gamma * step**sign, w).z for sign in (1, -1))
        expected = ((up - down) * rates).sum(1) / 2e-5
        torch.testing.assert_close(found[:, d], expected, rtol=1e-5, atol=1e-8)


def test_adding_nodes_one_by_one_adds_zero_rows() -> None:
    tree = Taxonomy()
    statistics = Statistics(D)
    phi = unit(20, D)
    for place in range(20):
        node = tree.add(Label(f"c{place}", 0))
        statistics.add(phi[place : place + 1], torch.tensor([node]), TreeTable.of(tree))
    tree.add(Label("without an image", 0))
    _, M, N = statistics.system(0, TreeTable.of(tree))
    torch.testing.assert_close(M, torch.cat([phi, torch.zeros(1, D)]))
    assert N.tolist() == [1] * 20 + [0]


def test_state() -> None:
    tree = balanced_tree(2, 2)
    statistics, again = Statistics(D), Statistics(D)
    statistics.add(unit(9, D), labels(9, tree), TreeTable.of(tree))
    statistics.add_soft(unit(9, D), torch.rand(9, 4), 1)
    again.load_state_dict(statistics.state_dict())
    more = labels(9, tree, seed=5)
    for each in (statistics, again):
        each.add(unit(9, D, seed=3), more, TreeTable.of(tree))
    for level in (0, 1):
        for one, other in zip(
            statistics.system(level, TreeTable.of(tree)), again.system(level, TreeTable.of(tree)), strict=True
        ):
            assert torch.equal(one, other)


def test_a_gamma_too_small_is_named() -> None:
    with pytest.raises(InputError, match="gamma"):
        factor(-torch.eye(3), 0.1)


@pytest.mark.parametrize("classes", [D - 1, D, D + 1, 5 * D])
def test_outputs_do_not_depend_on_whether_weights_are_solved(classes: int) -> None:
    phi, M, scale = unit(30, D), torch.randn(classes, D), torch.rand(classes)
    A = phi.t() @ phi
    readout = Readout.of(factor(A, 0.5), M, scale)
    expected = phi @ torch.linalg.solve(A + 0.5 * torch.eye(D), M.t()) * scale
    torch.testing.assert_close(readout(phi), expected, rtol=1e-4, atol=1e-4)
    assert (readout.L is None) == (classes <= D), "few classes: weights; many: none are solved"
