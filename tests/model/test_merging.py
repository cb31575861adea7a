"""Models that learned apart are merged: as if one had learned everything."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dhocl import Label, Model, ModelConfig, Taxonomy
from dhocl.core.errors import InputError
from dhocl.core.taxonomy import UNKNOWN
from dhocl.knowledge import Oracle
from dhocl.methods.amber import ROUNDS, Amber
from dhocl.model.merging import merge, strip
from dhocl.model.model import Revision
from dhocl.nn.memory import Reservoir

DIM = 6
KINDS = {"robin": "bird", "tit": "bird", "pike": "fish", "cod": "fish"}
NAMES = [*(Label(name, 1) for name in KINDS), Label("bird", 0), Label("fish", 0)]


def true_tree() -> Taxonomy:
    tree = Taxonomy()
    for child, parent in KINDS.items():
        tree.link(tree.add(Label(child, 1)), tree.add(Label(parent, 0)))
    return tree


def make(**more: Any) -> Model:
    method = {"completion": "never", "adapt": False} | more
    config = ModelConfig(("kind", "species"), backbone=f"features:{DIM}", calibrate=False, settings=method)
    return Model(config, tree=true_tree())


def samples(n: int, seed: int) -> tuple[Tensor, list[Label]]:
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(len(NAMES), (n,), generator=rng)
    return (torch.randn(n, DIM, generator=rng) + 2 * torch.eye(DIM)[y])[:, :, None, None], [NAMES[i] for i in y]


def taught(model: Model, x: Tensor, labels: list[Label]) -> Model:
    for start in range(0, len(x), 8):
        model.observe(x[start : start + 8], labels[start : start + 8])
    return model


def sums(model: Model) -> dict[Label, tuple[list[float], float]]:
    """Per class, by name: what the statistics say."""
    learner, tree = model.learner, model.taxonomy
    assert isinstance(learner, Amber)
    found: dict[Label, tuple[list[float], float]] = {}
    for node, (row, count) in enumerate(
        zip(learner.statistics.sums.filled, learner.statistics.counts.filled, strict=True)
    ):
        label = tree.labels[tree.accepted(node)]
        old, n = found.get(label, ([0.0] * DIM, 0.0))
        found[label] = (np.add(old, row.tolist()).tolist(), n + float(count))
    return {label: each for label, each in found.items() if each[1]}


def assert_same_sums(one: Model, other: Model) -> None:
    mine, theirs = sums(one), sums(other)
    assert mine.keys() == theirs.keys()
    for label, (row, count) in mine.items():
        assert count == theirs[label][1]
        assert row == pytest.approx(theirs[label][0], abs=1e-4)
    grams = [model.learner.statistics.grams for model in (one, other)]  # type: ignore[union-attr]
    assert grams[0].keys() == grams[1].keys()
    for level, gram in grams[0].items():
        torch.testing.assert_close(gram, grams[1][level], rtol=1e-5, atol=1e-4)


def by_name(model: Model, x: Tensor) -> dict[Label, Tensor]:
    tree = model.taxonomy
    return {
        tree.labels[int(node)]: p[:, column]
        for level, p in model.probabilities(x).items()
        for column, node in enumerate(tree.nodes(level))
    }


def test_two_halves_equal_one_model_that_learned_both() -> None:
    x, labels = samples(240, 0)
    here, there = taught(make(), x[:96], labels[:96]), taught(make(), x[96:], labels[96:])
    whole = taught(make(), x, labels)
    assert merge(here, there) == []
    assert_same_sums(here, whole)
    for model in (here, whole):  # they have fitted reliabilities at other times
        model.learner.reliability.log_beta.clear()  # type: ignore[union-attr]
        model.learner.reliability.shapes.clear()  # type: ignore[union-attr]
    found, expected = by_name(here, x[:20]), by_name(whole, x[:20])
    for label, p in expected.items():
        torch.testing.assert_close(found[label], p, rtol=1e-4, atol=1e-5)


def test_reliabilities_are_fitted_to_the_samples_of_both() -> None:
    x, labels = samples(240, 0)
    here, there = taught(make(), x[:96], labels[:96]), taught(make(), x[96:], labels[96:])
    before = copy.deepcopy(here.learner.reliability)  # type: ignore[union-attr]
    merge(here, there)
    learner = here.learner
    assert isinstance(learner, Amber)
    leaves = sum(label.level == 1 for label in labels)
    assert learner.memory.size == learner.memory.seen == leaves
    assert learner.window.seen == 240
    again = copy.deepcopy(learner)
    again.reliability = before
    again.reliability.absorb(there.learner.reliability, 144 / 240)  # type: ignore[union-attr]
    for _ in range(ROUNDS):
        again._refit()
    assert learner.reliability.state_dict() == again.reliability.state_dict()
    assert learner.reliability.log_beta != there.learner.reliability.log_beta  # type: ignore[union-attr]


def test_images_of_both_tell_how_strange_one_looks() -> None:
    config = ModelConfig(("kind", "species"), backbone=f"features:{DIM}")
    x, labels = samples(200, 9)
    here, there = (taught(Model(config, tree=true_tree()), x[s], labels[s]) for s in (slice(90), slice(90, 200)))
    mine, theirs = (model.novelty.state_dict() for model in (here, there))
    merge(here, there)
    joined = here.novelty.state_dict()
    for level in ("0", "1"):
        expected = torch.cat([theirs["recent"][level], mine["recent"][level]])[-200:]
        assert torch.equal(joined["recent"][level], expected)
        assert joined["labels"][level] == mine["labels"][level] + theirs["labels"][level]


def test_soft_targets_are_added_by_name() -> None:
    x, labels = samples(200, 1)
    here = taught(make(completion="always", window=32), x[:100], labels[:100])
    there = taught(make(completion="always", window=32), x[100:], labels[100:])
    parts = [model.learner._closed()[0] for model in (here, there)]  # type: ignore[union-attr]
    mine = copy.deepcopy(here.learner.statistics.soft[1])  # type: ignore[union-attr]
    names = [[model.taxonomy.labels[int(n)] for n in model.taxonomy.nodes(1)] for model in (here, there)]
    assert names[0] != names[1]  # classes came in another order
    merge(here, there)
    joined = here.learner.statistics.soft[1]  # type: ignore[union-attr]
    for column, label in enumerate(names[0]):
        theirs = names[1].index(label)
        torch.testing.assert_close(joined.N[column], mine.N[column] + parts[1].soft[1].N[theirs])
        torch.testing.assert_close(joined.M[column], mine.M[column] + parts[1].soft[1].M[theirs])
    waiting = here.learner.window  # type: ignore[union-attr]
    assert 0 < len(waiting.y) <= 64  # its own samples wait on


def test_the_other_model_is_not_changed() -> None:
    x, labels = samples(120, 2)
    here, there = taught(make(), x[:60], labels[:60]), taught(make(completion="never"), x[60:], labels[60:])
    before = copy.deepcopy(there.state_dict())
    merge(here, there)
    torch.testing.assert_close(there.state_dict()["learner"]["statistics"], before["learner"]["statistics"])
    assert there.state_dict()["curator"] == before["curator"]
    assert len(there.learner.window.y) == len(before["learner"]["window"]["y"])  # type: ignore[union-attr]


def test_a_merged_model_learns_on_and_is_the_same_after_a_resume() -> None:
    x, labels = samples(300, 3)
    here, there = (taught(make(adapt=True, completion="gated"), x[s], labels[s]) for s in (slice(100), slice(100, 200)))
    merge(here, there)
    twin = Model.from_state(copy.deepcopy(here.state_dict()))
    for model in (here, twin):
        taught(model, x[200:], labels[200:])
    for level, p in here.probabilities(x[:9]).items():
        assert torch.equal(p, twin.probabilities(x[:9])[level])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 119), max_size=2), st.lists(st.sampled_from(range(6)), max_size=3), st.integers(0, 99))
def test_names_that_changed_on_one_side(cuts: list[int], changes: list[int], seed: int) -> None:
    """Revisions on either side; the sums per class are those of one model with all samples and all revisions."""
    revisions = [
        Revision("rename", Label("robin", 1), Label("Erithacus", 1)),
        Revision("merge", Label("tit", 1), Label("robin", 1)),
        Revision("unlink", Label("cod", 1)),
        Revision("link", Label("pike", 1), Label("fish", 0)),
        Revision("merge", Label("fish", 0), Label("bird", 0)),
        Revision("rename", Label("tit", 1), Label("Parus", 1)),
    ]
    x, labels = samples(120, seed)
    cut = cuts[0] if cuts else 60
    here, there, whole = taught(make(), x[:cut], labels[:cut]), taught(make(), x[cut:], labels[cut:]), make()
    taught(whole, x, labels)
    for change in changes:
        with suppress(InputError):  # refused by the one, it is not for the other
            there.revise(revisions[change])
            whole.revise(revisions[change])
    merge(here, there)
    mine, theirs = sums(here), sums(whole)
    total = {name: sum(count for label, (_, count) in each.items()) for name, each in (("a", mine), ("b", theirs))}
    assert total["a"] == total["b"] == 120
    for label, (row, count) in mine.items():
        same = whole.taxonomy.labels[whole.taxonomy.id(label)]
        assert count == theirs[same][1]
        assert row == pytest.approx(theirs[same][0], abs=1e-3)


def test_samples_of_both_can_be_forgotten() -> None:
    """Those of the other model too, with the soft targets that they were learned with."""
    x, labels = samples(200, 8)
    here, there = (taught(make(completion="always", window=16), x[s], labels[s]) for s in (slice(100), slice(100, 200)))
    merge(here, there)
    for start in range(0, 200, 20):
        here.forget(x[start : start + 20], labels[start : start + 20])
    statistics = here.learner.statistics  # type: ignore[union-attr]
    assert not sums(here)
    for gram in statistics.grams.values():
        torch.testing.assert_close(gram, torch.zeros_like(gram), rtol=0, atol=1e-3)
    for part in statistics.soft[1]:
        torch.testing.assert_close(part, torch.zeros_like(part), rtol=0, atol=1e-3)
    assert here.learner.memory.size == len(here.learner.window.y) == len(here.ledger.keys) == 0  # type: ignore[union-attr]


def test_contradictions_are_returned_and_not_used() -> None:
    x, labels = samples(80, 4)
    here, there = taught(make(), x[:40], labels[:40]), taught(make(), x[40:], labels[40:])
    there.revise(Revision("link", Label("robin", 1), Label("fish", 0)))
    found = merge(here, there)
    assert [(each.child.name, each.kept.name, each.other.name) for each in found] == [("robin", "bird", "fish")]
    tree = here.taxonomy
    assert tree.labels[tree.parent(tree.id(Label("robin", 1)))].name == "bird"


def test_what_can_not_be_merged() -> None:
    with pytest.raises(InputError, match="`settings` is"):
        merge(make(), make(balance=0.0))
    with pytest.raises(InputError, match="`backbone` is features:6 in one, features:7"):
        merge(make(), Model(ModelConfig(("kind", "species"), backbone="features:7")))
    config = ModelConfig(("kind",), method="er", backbone="tiny", image_size=32)
    with pytest.raises(InputError, match="does not add up"):
        merge(Model(config), Model(config))


def test_answers_that_wait_and_classes_placed_by_hand_are_taken_over() -> None:
    config = ModelConfig(("kind", "species"), backbone=f"features:{DIM}", delay=3)
    here, there = Model(config, source=Oracle(true_tree())), Model(config, source=Oracle(true_tree()))
    x = samples(1, 5)[0]
    fish, cod, pike = Label("fish", 0), Label("cod", 1), Label("pike", 1)
    for _ in range(4):
        here.observe(x, [fish])
    for label in (fish, pike, cod):  # the answer about cod counts three batches later
        there.observe(x, [label])
    there.revise(Revision("link", pike, fish))
    merge(here, there)
    tree = here.taxonomy
    assert here.curator.settled == {tree.id(pike)}
    for _ in range(2):
        here.observe(x, [fish])
        assert tree.parent(tree.id(cod)) == UNKNOWN
    here.observe(x, [fish])
    assert tree.parent(tree.id(cod)) == tree.id(fish)


@pytest.mark.parametrize(("mine", "theirs"), [(3, 2), (40, 5), (5, 40), (40, 80), (0, 30), (30, 0)])
def test_a_sample_of_both_streams(mine: int, theirs: int) -> None:
    """Each item is stored with the same probability, whichever stream it came from."""
    capacity, stored = 10, np.zeros(mine + theirs)
    for seed in range(400):
        rng = np.random.default_rng(seed)
        here, there = Reservoir(capacity, rng), Reservoir(capacity, np.random.default_rng(1000 + seed))
        if mine:
            here.insert(y=torch.arange(mine))
        if theirs:
            there.insert(y=torch.arange(theirs))
        here.absorb(there, torch.arange(theirs) + mine)
        assert here.size == min(capacity, mine + theirs)
        assert here.seen == mine + theirs
        held = here.nodes.tolist()
        assert len(set(held)) == len(held)
        stored[held] += 1
    expected = min(1, capacity / (mine + theirs))
    error = np.sqrt(expected * (1 - expected) / 400)
    assert np.abs(stored / 400 - expected).max() <= 4.5 * error + 1e-9


def test_a_stripped_model_has_sums_alone_and_predicts_the_same() -> None:
    x, labels = samples(150, 6)
    model = taught(make(completion="always", window=32), x, labels)
    before = model.probabilities(x[:9])
    whole, _ = model.learner._closed()  # type: ignore[union-attr]
    strip(model)
    state = model.learner.state_dict()
    assert len(state["window"]["phi"]) == len(state["window"]["y"]) == len(state["window"]["recent"]) == 0
    assert state["memory"]["size"] == 0
    assert len(model.ledger.keys) == len(state["window"]["keys"]) == len(state["window"]["left"]["keys"]) == 0
    torch.testing.assert_close(state["statistics"]["soft"]["1"]["N"], whole.soft[1].N)
    for level, p in model.probabilities(x[:9]).items():
        torch.testing.assert_close(p, before[level], rtol=0, atol=0.05)  # labels were completed once more
    other = taught(make(completion="always", window=32), *samples(60, 7))
    merge(other, model)
    assert other.learner.window.seen == 210  # type: ignore[union-attr]
