from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from dhocl.checks import feed, passes, setup, stream, true_tree
from dhocl.knowledge import Curator, Oracle
from dhocl.methods.gss import GSS, Directions, Greedy, GssSettings, cosines
from dhocl.rng import Rng

# -- the gradients ---------------------------------------------------------------------------------------------


def test_cosines_are_those_of_gradients_by_autograd_also_across_levels() -> None:
    learner = GSS(setup(), GssSettings())
    batches = stream(4)
    tree = feed(learner, batches).taxonomy
    x = torch.cat([x for x, _ in batches])
    y = torch.tensor([tree.id(label) for _, labels in batches for label in labels])
    whole = []
    for image, node in zip(x, y.tolist(), strict=True):
        features = learner.net.f(image[None])[0].detach().requires_grad_()
        z = learner.net.heads(features)[tree.labels[node].level]
        (gradient,) = torch.autograd.grad(F.cross_entropy(z, torch.tensor([tree.column(node)])), features)
        whole.append(torch.outer(gradient[0], features[0].detach()).flatten())
    expected = F.cosine_similarity(torch.stack(whole)[:, None], torch.stack(whole)[None], dim=2)
    learner.tree = tree
    unit = learner.directions(x, y)
    torch.testing.assert_close(cosines(unit, unit), expected, rtol=1e-3, atol=1e-3)
    levels = torch.tensor([tree.labels[node].level for node in y.tolist()])
    across = expected[levels == 0][:, levels == 1]
    assert (across < 0).any(), "items of different levels can be in conflict"


# -- the algorithm ---------------------------------------------------------------------------------------------


def flat(x: torch.Tensor, y: torch.Tensor) -> Directions:
    """Images that are their own gradients: (n, d) unit vectors."""
    return Directions(x, torch.ones(len(x), 1))


def vectors(n: int, d: int, seed: int) -> torch.Tensor:
    return F.normalize(torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d))).float())


def greedy_by_the_paper(items: torch.Tensor, capacity: int, n: int, rng: np.random.Generator) -> tuple[list, list]:
    """Algorithm 2, line by line."""
    M: list[int] = []
    C: list[float] = []
    for number, x in enumerate(items):
        subset = rng.choice(len(M), min(n, len(M)), replace=False)
        pick, coin = rng.random(2)
        c = 1 + max((float(x @ items[M[i]]) for i in subset), default=0.0)
        if len(M) < capacity:
            M.append(number)
            C.append(c)
        elif c < 1:
            i = int((np.cumsum(C) <= pick * sum(C)).sum())
            if coin < C[i] / (C[i] + c):
                M[i], C[i] = number, c
    return M, C


@given(st.integers(1, 9), st.integers(1, 12), st.lists(st.integers(1, 9), min_size=5, max_size=9), st.integers(0, 999))
def test_is_the_algorithm_of_the_paper(capacity: int, n: int, batches: list[int], seed: int) -> None:
    items = vectors(sum(batches), 2, seed)
    memory, start = Greedy(capacity, Rng(seed, "memory"), n, flat), 0
    for b in batches:
        memory.insert(x=items[start : start + b], y=torch.arange(start, start + b))
        start += b
    M, C = greedy_by_the_paper(items, capacity, n, Rng(seed, "memory"))
    assert memory.columns["y"][: memory.size].tolist() == M
    assert memory.columns["score"][: memory.size].tolist() == pytest.approx(C, abs=1e-5)
    assert torch.equal(memory.columns["x"][: memory.size], items[M])


def test_the_comparison_above_covers_replacements() -> None:
    memory = Greedy(6, Rng(3, "memory"), 2, flat)
    memory.insert(x=vectors(60, 2, 3), y=torch.arange(60))
    assert len([y for y in memory.columns["y"].tolist() if y >= 6]) >= 3


def test_a_full_memory_admits_nobody_who_agrees_or_is_indifferent() -> None:
    memory = Greedy(4, Rng(0, "memory"), 10, flat)
    east, north, west = torch.eye(2)[0], torch.eye(2)[1], -torch.eye(2)[0]
    memory.insert(x=east.repeat(4, 1), y=torch.arange(4))
    assert memory.columns["score"].tolist() == [1, 2, 2, 2]
    for other in (east, north, torch.zeros(2)):
        memory.insert(x=other.repeat(50, 1), y=torch.arange(10, 60))
        assert memory.columns["y"].tolist() == [0, 1, 2, 3]
    memory.insert(x=west[None], y=torch.tensor([99]))  # scores next to nothing, so it surely gets in
    assert 99 in memory.columns["y"].tolist()
    assert 0 < memory.columns["score"].min() < 0.01


def test_who_goes_is_drawn_by_score_and_then_by_a_coin() -> None:
    c = 1 - np.sqrt(0.5)  # at 135 degrees to all that is stored
    scores = np.array([0.2, 0.5, 1.0, 1.8])
    newcomer = torch.tensor([[-(0.5**0.5), 0.5**0.5]])
    gone = np.zeros(5)
    for seed in range(1500):
        memory = Greedy(4, Rng(seed, "memory"), 10, flat)
        memory.insert(x=torch.eye(2)[:1].repeat(4, 1), y=torch.arange(4))
        memory.columns["score"][:] = torch.from_numpy(scores)
        memory.insert(x=newcomer, y=torch.tensor([9]))
        kept = memory.columns["y"].tolist()
        gone[kept.index(9) if 9 in kept else 4] += 1
    p = scores / scores.sum() * scores / (scores + c)
    assert chisquare(gone, 1500 * np.append(p, 1 - p.sum())).pvalue > 1e-3


def test_each_item_has_a_subset_of_its_own() -> None:
    """Compared with one stored item of two that point apart, some arriving copies agree with theirs and some do not."""
    memory = Greedy(2, Rng(0, "memory"), 1, flat)
    memory.insert(x=torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), y=torch.arange(2))
    seen: list[np.ndarray] = []
    table = memory._table
    memory._table = lambda items, subsets: (seen.extend(subsets), table(items, subsets))[1]  # type: ignore[method-assign]
    memory.insert(x=torch.tensor([[1.0, 0.0]]).repeat(20, 1), y=torch.arange(2, 22))
    assert {int(slot) for subset in seen for slot in subset} == {0, 1}
    assert all(len(subset) == 1 for subset in seen)


def test_holds_really_occurring_items_and_gives_the_cost_it_says() -> None:
    learner, batches = GSS(setup(buffer=20), GssSettings(subset=10)), stream(12)
    curator = Curator(Oracle(true_tree()))
    for step, batch in enumerate(batches):
        before = passes(learner.net.f)
        feed(learner, [batch], curator)
        spent = passes(learner.net.f) - before
        stored = min(20, 8 * step)
        assert spent <= 3 * (8 + min(4, stored)) + 8 + stored
    came = {(x.numpy().tobytes(), label) for xs, labels in batches for x, label in zip(xs, labels, strict=True)}
    columns = learner.memory.columns
    for x, y in zip(columns["x"], columns["y"].tolist(), strict=True):
        assert (x.numpy().tobytes(), curator.taxonomy.labels[y]) in came
