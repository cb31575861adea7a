"""What to label next, against brute force and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dhocl.core.decode import Beliefs
from dhocl.model.suggest import Kernel, Looks, choose, doubts, ranks, suggest


def points(n: int, dim: int = 3, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, dim))).float()


def slow_kernel(phi: Tensor, near: int = 10, neighbours: int = 20) -> tuple[np.ndarray, float]:
    """(n, n) similarities, 0 where j is none of the nearest of i."""
    n = len(phi)
    distances = np.array([[float(((a - b) ** 2).sum()) for b in phi] for a in phi])
    width = float(np.sort([sorted(row)[min(near, n - 1)] for row in distances])[(n - 1) // 2])
    k = np.exp(-distances / (2 * width))
    for row in range(n):
        k[row, np.argsort(distances[row])[neighbours:]] = 0
    return k, width


def worth(chosen: list[int], k: np.ndarray, doubt: Tensor, covered: Tensor) -> float:
    return sum(
        float(d) * max([float(c), *(k[i, j] for j in chosen)])
        for i, (d, c) in enumerate(zip(doubt, covered, strict=True))
    )


@given(n=st.integers(1, 40), seed=st.integers(0, 99), count=st.integers(0, 8), learned=st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_each_choice_is_the_one_that_raises_the_worth_most(n: int, seed: int, count: int, learned: int) -> None:
    phi, known = points(n, seed=seed), points(learned, seed=seed + 1000)
    doubt = torch.rand(n, generator=torch.Generator().manual_seed(seed))
    looks = Looks(doubt, torch.zeros(n, dtype=torch.long), torch.zeros(n, 1, dtype=torch.bool))
    found = suggest(looks, phi, known, count)
    k, width = slow_kernel(phi) if n > 1 else (np.ones((1, 1)), 1e-12)
    nearest = [min((float(((a - b) ** 2).sum()) for b in known), default=math.inf) for a in phi]
    covered = torch.tensor([math.exp(-d / (2 * width)) for d in nearest])
    assert len(found) == len({each.row for each in found}) == min(n, count)
    chosen: list[int] = []
    for each in found:
        before = worth(chosen, k, doubt, covered)
        gains = [worth([*chosen, j], k, doubt, covered) - before for j in range(n) if j not in chosen]
        assert each.score == pytest.approx(max(gains), abs=1e-4)
        chosen.append(each.row)
        assert worth(chosen, k, doubt, covered) - before == pytest.approx(max(gains), abs=1e-4)
        assert (each.uncertainty, each.novelty) == (
            pytest.approx(float(doubt[each.row])),
            pytest.approx(1 - float(covered[each.row]), abs=1e-4),
        )


def test_of_equal_images_the_first_is_taken_and_none_twice() -> None:
    phi = torch.ones(5, 2)
    found = choose(Kernel.of(phi), torch.ones(5), torch.zeros(5), 3)
    assert found == [(0, 5.0), (1, 0.0), (2, 0.0)]


def test_what_is_learned_is_not_suggested_first() -> None:
    phi = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [9.0]])
    looks = Looks.at(None, 6, 2)
    assert [each.row for each in suggest(looks, phi, phi[:3], 2)] != [0, 1]
    assert suggest(looks, phi, phi[:3], 1)[0].row in (3, 4, 5)
    assert suggest(looks, phi, None, 1)[0].novelty == 1


def test_an_empty_pool() -> None:
    assert suggest(Looks.at(None, 0, 2), torch.zeros(0, 4), None, 3) == []
    assert suggest(Looks.at(None, 0, 2), torch.zeros(0, 4), torch.zeros(2, 4), 3) == []


def test_no_class_is_known() -> None:
    """All is doubted. The gap of the coarsest rank is asked about once, then the next, then finest labels."""
    looks = Looks.at(None, 4, 3)
    assert looks.doubt.tolist() == [1, 1, 1, 1]
    assert ranks(looks, [2, 0, 1, 3]) == [0, 1, 2, 2]


def test_one_class_is_known() -> None:
    """A posterior of 1 is half a doubt, or nothing would be suggested."""
    assert doubts(torch.ones(3, 1)).tolist() == [0.5] * 3
    assert doubts(torch.tensor([[0.6, 0.3, 0.1]])).tolist() == pytest.approx([1 - 0.6 * 3 / 4])


def beliefs(kinds: int) -> Beliefs:
    """Two images: species 0 lies below kind 0, species 1 has no known parent."""
    paths = torch.tensor([[0, 0], [-1, 1]])
    kind = torch.full((2, kinds), 0.005)
    kind[:, 0] = 1 - 0.005 * (kinds - 1)
    return Beliefs({0: kind, 2: torch.eye(2)}, torch.eye(2), paths)


@pytest.mark.parametrize(("kinds", "asked"), [(1, [1, 0]), (3, [1, 0]), (9, [1, 1])])
def test_a_rank_without_a_class_on_the_path_is_asked_about_unless_it_is_sure(kinds: int, asked: list[int]) -> None:
    """Level 1 has no class at all. The kind of the second image is sure if there are kinds enough."""
    looks = Looks.at(beliefs(kinds), 2, 3)
    assert looks.path.tolist() == [0, 1]
    assert ranks(looks, [0, 1]) == asked
    assert looks.gaps[:, 2].tolist() == [False, False]  # the finest is never a gap


def test_a_gap_of_a_path_is_asked_about_once() -> None:
    gaps = torch.tensor([[True, False], [True, False], [True, False], [False, False]])
    looks = Looks(torch.ones(4), torch.tensor([7, 7, 8, 7]), gaps)
    assert ranks(looks, [0, 1, 2, 3]) == [0, 1, 0, 1]
    assert ranks(Looks.joined([looks, looks]), [0, 4, 6]) == [0, 1, 0]
