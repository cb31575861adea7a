from __future__ import annotations

import math

import hiclass.metrics
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.decode import believe, known_paths, merge_synonyms
from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.experiment.metrics import (
    accuracy,
    area,
    calibration_error,
    class_accuracy,
    correlation,
    forgetting,
    hierarchical_f1,
    last_forgetting,
    pw_jaccard,
    severity,
)
from tests.helpers.trees import balanced_tree

TREE = balanced_tree(2, 2, 3)
seeds = st.integers(0, 1000)


@given(seeds, st.integers(1, 40))
def test_severity_is_error_times_severity_of_mistakes(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    predicted, true = (torch.from_numpy(rng.integers(12, size=n)) for _ in range(2))
    heights = TREE.distances(2)
    ms, mistakes = severity(predicted, true, heights)
    by_hand = []
    for p, t in zip(predicted.tolist(), true.tolist(), strict=True):
        up = [set(TREE.lineage(int(TREE.nodes(2)[leaf]))) for leaf in (p, t)]
        by_hand.append(3 - len(up[0] & up[1]))  # levels up until the paths meet
    assert math.isclose(ms, np.mean(by_hand), abs_tol=1e-12)
    assert math.isclose(ms, (1 - accuracy(predicted, true)) * (mistakes or 0), abs_tol=1e-12)
    assert (mistakes is None) == (accuracy(predicted, true) == 1)


def test_calibration_error_by_hand() -> None:
    confidence = torch.tensor([0.95, 0.95, 0.95, 0.95, 0.35, 0.35])
    correct = torch.tensor([True, True, True, False, False, False])
    expected = (4 * abs(0.95 - 0.75) + 2 * 0.35) / 6
    assert math.isclose(calibration_error(confidence, correct, bins=10), expected, abs_tol=1e-7)
    assert calibration_error(torch.ones(3), torch.ones(3, dtype=torch.bool)) == 0


@given(seeds, st.sampled_from([None, 1, 7]))
def test_calibration_error_is_that_of_each_bin(seed: int, bins: int | None) -> None:
    rng = np.random.default_rng(seed)
    n = bins or 15
    confidence, correct = np.append(rng.random(30), [0.0, 1.0]), rng.random(32) < 0.5
    error = 0.0
    for k in range(n):
        inside = (confidence >= k / n) & ((confidence < (k + 1) / n) | (k == n - 1))
        error += abs(confidence[inside].sum() - correct[inside].sum()) / 32
    ours = calibration_error(torch.from_numpy(confidence), torch.from_numpy(correct), *([bins] if bins else []))
    assert math.isclose(ours, error, abs_tol=1e-12)


def test_areas_and_forgetting() -> None:
    assert area([None, 10.0, 20.0]) == 15.0
    assert forgetting([10.0, 50.0, None, 30.0]) == 20.0
    assert area([None]) is None
    assert forgetting([]) is None


@given(seeds, st.integers(0, 40))
def test_accuracy_of_each_class_by_counting(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    classes = rng.permutation(9)[:6]
    predicted, true = rng.integers(9, size=n), rng.choice(classes, size=n)
    by_hand = []
    for name in classes:
        hits = [p == t for p, t in zip(predicted, true, strict=True) if t == name]
        by_hand.append(sum(hits) / len(hits) if hits else None)
    assert class_accuracy(*map(torch.from_numpy, (predicted, true, classes))) == by_hand


def test_last_forgetting_by_hand() -> None:
    """Forgets 40; gains 10, which counts against; never was above 0; came last; has no test image."""
    ends = [[50.0, 20.0, 0.0], [80.0, 10.0, 0.0], [40.0, 30.0, 70.0, 90.0, None]]
    assert last_forgetting(ends) == (40 - 10) / 2
    assert last_forgetting(ends[:1]) is None, "nothing came before"
    assert last_forgetting([]) is None


accuracies = st.one_of(st.just(0.0), st.floats(0, 100))


@given(st.lists(st.lists(accuracies, min_size=8, max_size=8), min_size=1, max_size=5), st.data())
def test_last_forgetting_is_that_of_a_whole_table(rows: list[list[float]], data: st.DataObject) -> None:
    """As i-Blurry has it: a table of group ends and classes, with 0 before a class has come."""
    come = sorted(data.draw(st.lists(st.integers(0, 8), min_size=len(rows), max_size=len(rows))))
    table = np.array([row[:n] + [0.0] * (8 - n) for row, n in zip(rows, come, strict=True)])
    lost = [table[:-1, c].max() - table[-1, c] for c in range(8) if len(table) > 1 and table[:-1, c].max() > 0]
    ours = last_forgetting([row[:n] for row, n in zip(rows, come, strict=True)])
    assert (ours is None) == (not lost)
    assert not lost or math.isclose(ours, np.mean(lost), abs_tol=1e-9)


SUPER, SUB, WRONG, NONE = 3, 5, 7, -1


@pytest.mark.parametrize(
    ("true", "predicted", "expected"),
    [
        ((SUPER, SUB, NONE), (SUPER, SUB, NONE), 1),
        ((SUPER, SUB, NONE), (NONE, NONE, NONE), 0),
        ((SUPER, SUB, NONE), (SUPER, NONE, NONE), 1 / 2),
        ((SUPER, SUB, NONE), (SUPER, SUB, WRONG), 4 / 9),
        ((SUPER, SUB, NONE), (SUPER, WRONG, NONE), 1 / 3 * 1 / 2),
        ((SUPER, NONE, NONE), (WRONG, NONE, NONE), 0),
    ],
)
def test_weighted_jaccard_of_known_cases(true: tuple[int], predicted: tuple[int], expected: float) -> None:
    assert math.isclose(pw_jaccard(torch.tensor([predicted]), torch.tensor([true])), expected)


@given(seeds, st.integers(1, 12), st.integers(1, 4))
def test_weighted_jaccard_is_that_of_sets(seed: int, n: int, levels: int) -> None:
    predicted, true = np.random.default_rng(seed).integers(-1, 3, size=(2, n, levels))
    by_hand = []
    for p, t in zip(predicted, true, strict=True):
        P, T = ({(level, column) for level, column in enumerate(row) if column >= 0} for row in (p, t))
        by_hand.append(len(P & T) / len(P | T) * len(P & T) / len(P) if P else 0)
    ours = pw_jaccard(torch.from_numpy(predicted), torch.from_numpy(true))
    assert math.isclose(ours, np.mean(by_hand), abs_tol=1e-12)
    assert 0 <= ours <= 1


@given(seeds, st.integers(1, 30), st.integers(1, 4))
def test_hierarchical_f1_is_that_of_hiclass(seed: int, n: int, levels: int) -> None:
    """HiClass takes names, with "" for a class that a row lacks, and divides by 0 where all lack."""
    rng = np.random.default_rng(seed)
    true, predicted = (np.append(rng.integers(-1, 3, (n, levels)), [[1] * levels], 0) for _ in range(2))

    def names(columns: np.ndarray) -> np.ndarray:
        return np.array([[f"{h}.{c}" if c >= 0 else "" for h, c in enumerate(row)] for row in columns.tolist()])

    ours = hierarchical_f1(torch.from_numpy(predicted), torch.from_numpy(true))
    scores = hiclass.metrics.precision, hiclass.metrics.recall, hiclass.metrics.f1
    np.testing.assert_allclose(ours, [score(names(true), names(predicted)) for score in scores])


def test_hierarchical_f1_without_a_hit_is_zero() -> None:
    assert hierarchical_f1(torch.tensor([[0, 1]]), torch.tensor([[1, -1]])) == (0, 0, 0)
    assert hierarchical_f1(torch.tensor([[-1]]), torch.tensor([[-1]])) == (0, 0, 0)


def test_correlation_is_numpys() -> None:
    a, b = np.random.default_rng(0).random((2, 30))
    ours = correlation(torch.from_numpy(a), torch.from_numpy(b))
    assert math.isclose(ours, np.corrcoef(a, b)[0, 1])
    assert math.isclose(correlation(torch.tensor([0.0, 0.1]), torch.tensor([0.1, 0.0])), -1), "however small"
    assert correlation(torch.ones(3), torch.arange(3)) is None


def random_probabilities(tree: Taxonomy, seed: int, b: int = 4) -> dict[int, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {h: torch.randn(b, w, generator=generator).mul(2).softmax(1).double() for h, w in tree.widths.items()}


def partial() -> Taxonomy:
    """Two roots, one without children; a leaf whose middle is missing; an unanchored leaf."""
    tree = Taxonomy()
    a, b, m, x, y, z = (
        tree.add(Label(name, level)) for name, level in [("a", 0), ("b", 0), ("m", 1), ("x", 2), ("y", 2), ("z", 2)]
    )
    tree.link(m, a)
    tree.link(x, m)
    tree.link(y, a)
    assert {tree.labels[n].name for n in (b, z)} == {"b", "z"}
    return tree


def test_decoding_by_brute_force() -> None:
    tree = partial()
    p = random_probabilities(tree, 0)
    # By name: (a, m, x), (a, -, y), (b, -, -), (-, -, z); "-" is worth the level's mean probability.
    columns = {"a": 0, "b": 1, "m": 0, "x": 0, "y": 1, "z": 2}
    paths = [("a", "m", "x"), ("a", None, "y"), ("b", None, None), (None, None, "z")]
    score = torch.stack(
        [
            math.prod(
                (p[h][:, columns[name]] if name else torch.full((4,), 1 / tree.widths[h], dtype=torch.double))
                for h, name in enumerate(path)
            )
            for path in paths
        ],
        1,
    )
    posterior = score / score.sum(1, keepdim=True)
    expected = {
        0: torch.stack([posterior[:, 0] + posterior[:, 1], posterior[:, 2]], 1) + posterior[:, [3]] * p[0],
        1: posterior[:, [0]] + (posterior[:, [1]] + posterior[:, [3]]) * p[1],
        2: posterior[:, [0, 1, 3]],
    }  # where a path has no class at a level but a finer one, the level by itself tells
    for h, q in believe(p, tree).marginals().items():
        torch.testing.assert_close(q, expected[h] / expected[h].sum(1, keepdim=True))
    found, probability = believe(p, tree).best_path()
    for row, (x, y, b, z) in enumerate(posterior.tolist()):
        best = 2 if b >= max(x + y, z) else [0, 1, 3][[x, y, z].index(max(x, y, z))]  # b ends above the finest level
        assert found[row].tolist() == [columns.get(name, -1) for name in paths[best]]
        assert probability[row] == pytest.approx((x, y, b, z)[best])
    assert {tuple(path) for path in found.tolist()} >= {(1, -1, -1), (0, 0, 0)}, "both kinds occur"


@given(seeds)
def test_decoded_predictions_of_a_full_tree_lie_on_paths_and_sum_to_one(seed: int) -> None:
    p = random_probabilities(TREE, seed)
    decoded = believe(p, TREE).marginals()
    for coarse, fine in ((0, 1), (1, 2)):  # marginals of one distribution over paths agree
        summed = torch.zeros_like(decoded[coarse]).index_add(1, TREE.ancestors(fine, coarse), decoded[fine])
        torch.testing.assert_close(summed, decoded[coarse])
    for q in decoded.values():
        torch.testing.assert_close(q.sum(1), torch.ones(len(q), dtype=torch.double))


def test_known_paths_end_where_nothing_is_below() -> None:
    assert sorted(map(tuple, known_paths(partial()).tolist())) == [
        (-1, -1, 2),
        (0, -1, 1),
        (0, 0, 0),
        (1, -1, -1),
    ]


def test_predictions_of_an_older_tree_are_widened() -> None:
    tree = balanced_tree(2)
    p = {0: torch.tensor([[0.3, 0.7]])}
    assert merge_synonyms(p, tree) is p
    tree.add(Label("new", 0))
    torch.testing.assert_close(merge_synonyms(p, tree)[0], torch.tensor([[0.3, 0.7, 0.0]]))


def test_certain_predictions_that_contradict_each_other_are_decoded() -> None:
    """Sure of the first root and of a child of the second: the two paths that are half right share the belief."""
    tree = balanced_tree(2, 2)
    p = {0: torch.tensor([[1.0, 0.0]]), 1: torch.tensor([[0.0, 0.0, 0.0, 1.0]])}
    torch.testing.assert_close(believe(p, tree).marginals()[0], torch.tensor([[2 / 3, 1 / 3]]))
    torch.testing.assert_close(believe(p, tree).marginals()[1], torch.tensor([[1 / 3, 1 / 3, 0.0, 1 / 3]]))


def test_a_level_that_only_an_impossible_path_reaches_stays_finite() -> None:
    tree = Taxonomy()
    for name, depth in (("a", 5), ("b", 4)):
        for level in range(depth):
            node = tree.add(Label(f"{name}{level}", level))
            if level:
                tree.link(node, node - 1)
    p = {level: torch.tensor([[0.0, 1.0]]) for level in range(4)} | {4: torch.tensor([[1.0]])}
    assert all(torch.isfinite(q).all() for q in believe(p, tree).marginals().values())
