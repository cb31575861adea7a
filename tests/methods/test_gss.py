from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from dhocl.checks import feed, passes, setup, stream, true_tree
from dhocl.core.rng import Rng
from dhocl.core.taxonomy import Taxonomy
from dhocl.knowledge import Curator, Oracle
from dhocl.methods.gss import FIRST, GSS, Gradients, Greedy, GssSettings, similarities
from dhocl.nn.augment import augment
from dhocl.nn.network import Network
from tests.helpers.reference_replay import (
    Item,
    arriving,
    assert_holds,
    assert_step,
    draws,
    haf,
    late_links,
    learn,
    stored,
)

# -- the gradients ---------------------------------------------------------------------------------------------


def gradients_by_autograd(net: Network, x: Tensor, y: Sequence[int], tree: Taxonomy) -> Tensor:
    """(n, d²) of each item's loss with respect to a matrix that the features go through; the matrix is the identity."""
    whole = []
    for image, node in zip(x, y, strict=True):
        features = net.f(image[None])[0].detach()
        matrix = torch.eye(net.f.dim, requires_grad=True)
        z = net.heads(features @ matrix.t())[tree.labels[node].level]
        (gradient,) = torch.autograd.grad(F.cross_entropy(z, torch.tensor([tree.column(node)])), matrix)
        whole.append(gradient.flatten())
    return torch.stack(whole)


def cosine(a: Tensor, b: Tensor) -> float:
    return F.cosine_similarity(a.double(), b.double(), dim=0).item()


def test_similarities_are_those_of_gradients_by_autograd_also_across_levels() -> None:
    learner, batches = GSS(setup(), GssSettings()), stream(4)
    tree = feed(learner, batches).taxonomy
    x = torch.cat([x for x, _ in batches])
    y = [tree.id(label) for _, labels in batches for label in labels]
    gradients = gradients_by_autograd(learner.net, x, y, tree)
    learner.tree = tree
    rows = torch.arange(32)
    batch, memory = (learner.gradients(x[own], torch.tensor(y)[own]) for own in (rows[:8], rows[8:]))
    part = torch.arange(24) // 10  # of 10, 10 and 4 items
    whole, each = similarities(batch, memory, part)
    means = [gradients[8:][part == number].mean(0) for number in range(3)]
    assert whole.item() == pytest.approx(max(cosine(gradients[:8].mean(0), mean) for mean in means), abs=1e-4)
    for row in range(8):
        assert each[row].item() == pytest.approx(max(cosine(gradients[row], mean) for mean in means), abs=1e-4)
    coarse = torch.tensor([tree.labels[node].level == 0 for node in y])
    unit = F.normalize(gradients)
    assert (unit[coarse] @ unit[~coarse].t() < -1e-3).any(), "items of different levels can be in conflict"


def test_gradients_that_cancel_have_a_similarity() -> None:
    for seed in range(20):
        x, f = vectors(6, 5, seed), vectors(6, 5, seed + 100)
        batch = Gradients(torch.cat([x, -x]), torch.cat([f, f]))
        whole, each = similarities(batch, Gradients(x[:2], f[:2]), torch.arange(2))
        assert not whole.isnan()
        assert each.abs().max() <= 1 + 1e-6


# -- the algorithm ---------------------------------------------------------------------------------------------


def flat(x: Tensor, y: Tensor) -> Gradients:
    """Images that are their own gradients: (n, d)."""
    return Gradients(x, torch.ones(len(x), 1))


class ByHand:
    """The authors' greedy selection, one item after the other. Items are numbers, with a gradient each."""

    def __init__(self, capacity: int, parts: int, part: int, rng: Rng) -> None:
        self.capacity, self.parts, self.part, self.rng = capacity, parts, part, rng
        self.stored: list[int] = []
        self.scores: list[float] = []
        self.outcomes: set[str] = set()

    def insert(self, numbers: Sequence[int], gradients: dict[int, Tensor]) -> None:
        """`gradients` of these numbers and of all stored ones, by today's network."""
        scores, batch_cosine = [FIRST] * len(numbers), -1.0
        if self.stored:
            order = self.rng.permutation(len(self.stored))[: self.parts * self.part].tolist()
            starts = range(0, len(order), self.part)
            means = [
                torch.stack([gradients[self.stored[slot]] for slot in order[start : start + self.part]]).mean(0)
                for start in starts
            ]
            own = [gradients[number] for number in numbers]
            scores = [max(1 + max(cosine(g, mean) for mean in means), 1e-6) for g in own]
            batch_cosine = max(cosine(torch.stack(own).mean(0), mean) for mean in means)
        room = self.capacity - len(self.stored)
        if room > 0:
            self.stored += numbers[:room]
            self.scores += scores[:room]
        elif batch_cosine >= 0:
            self.outcomes.add("refused")
        elif self.capacity:
            self._replace(numbers, scores)

    def _replace(self, numbers: Sequence[int], scores: Sequence[float]) -> None:
        weights = np.array([score - min(self.scores) + 1e-6 for score in self.scores])
        n = min(len(numbers), self.capacity)
        slots = self.rng.choice(self.capacity, n, replace=False, p=weights / weights.sum())
        coins = self.rng.random(n)
        for number, score, slot, coin in zip(numbers, scores, slots.tolist(), coins, strict=False):
            won = coin < self.scores[slot] / (self.scores[slot] + score)
            self.outcomes.add("replaced" if won else "lost")
            if won:
                self.stored[slot], self.scores[slot] = number, score


def vectors(n: int, d: int, seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d))).float()


@given(
    st.integers(0, 9),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.integers(1, 9), min_size=5, max_size=9),
    st.integers(0, 999),
)
def test_is_the_algorithm_of_the_authors(capacity: int, parts: int, part: int, batches: list[int], seed: int) -> None:
    items = vectors(sum(batches), 2, seed)
    memory, start = Greedy(capacity, Rng(seed, "memory"), (parts, part), flat), 0
    by_hand = ByHand(capacity, parts, part, Rng(seed, "memory"))
    for b in batches:
        memory.insert(x=items[start : start + b], y=torch.arange(start, start + b))
        by_hand.insert(range(start, start + b), dict(enumerate(items)))
        start += b
    assert memory.columns["y"][: memory.size].tolist() == by_hand.stored
    assert memory.columns["score"][: memory.size].tolist() == pytest.approx(by_hand.scores, abs=1e-5)
    assert torch.equal(memory.columns["x"][: memory.size], items[by_hand.stored])


def test_the_comparison_above_covers_replacements() -> None:
    outcomes = set()
    for seed in range(20):
        by_hand, items = ByHand(6, 2, 2, Rng(seed, "memory")), vectors(60, 2, seed)
        for start in range(0, 60, 6):
            by_hand.insert(range(start, start + 6), dict(enumerate(items)))
        outcomes |= by_hand.outcomes
    assert outcomes == {"refused", "lost", "replaced"}


EAST, NORTH, WEST = torch.eye(2)[0], torch.eye(2)[1], -torch.eye(2)[0]


def eastern(seed: int = 0) -> Greedy:
    memory = Greedy(4, Rng(seed, "memory"), (5, 2), flat)
    memory.insert(x=EAST.repeat(4, 1), y=torch.arange(4))
    return memory


def test_a_full_memory_considers_no_batch_that_agrees_or_is_indifferent() -> None:
    memory = eastern()
    assert memory.columns["score"].tolist() == pytest.approx([1.1] * 4)
    for other in (EAST, NORTH, torch.zeros(2)):
        memory.insert(x=other.repeat(50, 1), y=torch.arange(10, 60))
        assert memory.columns["y"].tolist() == [0, 1, 2, 3]
    memory.insert(x=WEST[None], y=torch.tensor([99]))  # scores next to nothing, so it surely gets in
    assert 99 in memory.columns["y"].tolist()
    assert 0 < memory.columns["score"].min() < 0.01


def test_a_batch_is_considered_by_its_mean_so_an_item_that_agrees_can_enter() -> None:
    entered = 0
    for seed in range(50):
        memory = eastern(seed)
        memory.insert(x=torch.stack([WEST, WEST, WEST, EAST]), y=torch.arange(10, 14))
        entered += 13 in memory.columns["y"].tolist()
    assert 5 < entered < 35  # 1.1 / (1.1 + 2) of 50 are 18


def test_who_goes_is_drawn_by_score_above_the_smallest_and_then_by_a_coin() -> None:
    c = 1 - np.sqrt(0.5)  # at 135 degrees to all that is stored
    scores = np.array([0.2, 0.5, 1.0, 1.8])
    newcomer = torch.tensor([[-(0.5**0.5), 0.5**0.5]])
    gone = np.zeros(5)
    for seed in range(1500):
        memory = eastern(seed)
        memory.columns["score"][:] = torch.from_numpy(scores)
        memory.insert(x=newcomer, y=torch.tensor([9]))
        kept = memory.columns["y"].tolist()
        gone[kept.index(9) if 9 in kept else 4] += 1
    above = scores - scores.min()
    p = above / above.sum() * scores / (scores + c)
    assert gone[0] == 0
    assert chisquare(gone[1:], 1500 * np.append(p[1:], 1 - p.sum())).pvalue > 1e-3


def test_all_items_of_a_batch_are_compared_with_the_same_parts() -> None:
    scores = set()
    for seed in range(20):
        memory = Greedy(24, Rng(seed, "memory"), (1, 1), flat)
        memory.insert(x=torch.stack([EAST, WEST]).repeat(2, 1), y=torch.arange(4))
        memory.insert(x=EAST.repeat(20, 1), y=torch.arange(20))
        (score,) = set(memory.columns["score"][4:].tolist())
        scores.add(round(score, 3))
    assert scores == {0.0, 2.0}, "one stored item is the part, another for another seed"


# -- the learner -----------------------------------------------------------------------------------------------


def test_the_memory_does_not_stay_as_it_was_filled() -> None:
    """Half-way through the stream fish follow birds. The memory was full after 3 of 60 batches."""
    shares = []
    for seed in range(5):
        learner = GSS(setup(buffer=20, seed=seed), GssSettings())
        feed(learner, stream(60, seed=seed))
        shares.append((learner.memory.columns["arrived"] >= 240).float().mean())
    assert 0.4 <= torch.stack(shares).mean() <= 0.9


def test_a_step_is_that_of_replay_and_then_the_batch_is_compared_by_the_new_network() -> None:
    learner, curator = GSS(setup(buffer=20, replay_batch=4), GssSettings(subset=3)), late_links()
    rng, items = draws(), list[Item]()
    memory = ByHand(20, 3, 4, rng)
    for arrived in stream(24):
        ((batch, tree, (step,), stats),) = learn(learner, [arrived], curator)
        held = [items[number] for number in memory.stored]
        slots = rng.choice(len(held), min(4, len(held)), replace=False, shuffle=False) if held else []
        loss = haf(step.before, augment(batch.x, rng, flip=True), batch.y.tolist(), tree)
        if len(slots):
            x, y = stored(held, slots)
            loss = loss + haf(step.before, augment(x, rng, flip=True), y, tree)
        assert_step(step, loss)
        assert stats == {"loss": pytest.approx(loss.item(), rel=1e-5)}
        new = arriving(batch, len(items))
        items += new
        numbers = [*memory.stored, *(item.arrived for item in new)]
        gradients = gradients_by_autograd(step.after, *stored(items, numbers), tree)
        memory.insert([item.arrived for item in new], dict(zip(numbers, gradients, strict=True)))
        assert_holds(learner, [items[number] for number in memory.stored])
        scores = learner.memory.columns["score"][: len(memory.stored)].tolist()
        assert scores == pytest.approx(memory.scores, rel=1e-3, abs=1e-4)
        memory.scores = scores  # so that rounding does not add up
    assert memory.outcomes == {"refused", "lost", "replaced"}


def test_holds_really_occurring_items_and_gives_the_cost_it_says() -> None:
    learner, batches = GSS(setup(buffer=20), GssSettings(subset=3)), stream(12)
    curator = Curator(Oracle(true_tree()))
    for step, batch in enumerate(batches):
        before = passes(learner.net.f)
        feed(learner, [batch], curator)
        spent = passes(learner.net.f) - before
        held = min(20, 8 * step)
        assert spent == 3 * (8 + min(4, held)) + (8 + min(12, held) if held else 0)
    came = {(x.numpy().tobytes(), label) for xs, labels in batches for x, label in zip(xs, labels, strict=True)}
    columns = learner.memory.columns
    for x, y in zip(columns["x"], columns["y"].tolist(), strict=True):
        assert (x.numpy().tobytes(), curator.taxonomy.labels[y]) in came
