"""None of these: scores, shares and their wiring, against counts one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl import Classifier, Label, Model, ModelConfig, Taxonomy
from dhocl.checks import pictures
from dhocl.classifier.prediction import first_new
from dhocl.core.decode import believe
from dhocl.model import Revision
from dhocl.model.novelty import FEWEST, WINDOW, Novelty, familiarity, strangeness

SHARES = st.sampled_from([0.0, 0.01, 0.05, 0.06, 0.5, 1.0])


def test_the_score_is_the_entropy_compared_with_a_guess() -> None:
    p = torch.tensor([[1.0, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.3, 0.2]])
    by_hand = -(0.5 * math.log(0.5) + 0.3 * math.log(0.3) + 0.2 * math.log(0.2)) - math.log(3)
    assert strangeness(p).tolist() == pytest.approx([-math.log(3), 0, by_hand], abs=1e-6)


@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_familiarity_counts_scores_at_least_as_high(scores: list[int], recent: list[int]) -> None:
    found = familiarity(torch.tensor(scores).float(), torch.tensor(recent).float())
    for score, share in zip(scores, found.tolist(), strict=True):
        assert share == pytest.approx((1 + sum(other >= score for other in recent)) / (1 + len(recent)))


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_the_rate_of_false_alarms_holds(rate: float) -> None:
    """Scores of any distribution, ties included."""
    rng = np.random.default_rng(0)
    drawn = torch.from_numpy(rng.exponential(size=(400, 60)).round(2))
    alarms = torch.stack([familiarity(row[50:], row[:50]) <= rate for row in drawn]).double().mean()
    assert float(alarms) <= rate + 0.005
    assert float(alarms) >= rate - 0.02, "the shares are multiples of 1 / 51"


@given(st.dictionaries(st.integers(0, 3), st.lists(SHARES, min_size=3, max_size=3)), SHARES)
def test_an_image_is_new_where_it_is_new_at_all_finer_levels(shares: dict[int, list[float]], rate: float) -> None:
    familiar = {level: torch.tensor(row, dtype=torch.double) for level, row in shares.items()}
    found = first_new(familiar, rate, 3)
    for image in range(3):
        new = [level for level in shares if all(shares[f][image] <= rate for f in shares if f >= level)]
        assert found[image] == min(new, default=None)


def small(calibrate: bool = True) -> Model:
    return Model(ModelConfig(("kind", "species"), method="acil", backbone="tiny", image_size=32, calibrate=calibrate))


def stream(batches: int) -> list[tuple[torch.Tensor, list[Label]]]:
    rng = np.random.default_rng(1)
    names = [Label("bird", 0), Label("robin", 1), Label("fish", 0), Label("cod", 1), Label("carp", 1)]
    found = []
    for step in range(batches):
        leaves = rng.integers(0, 5 if step else 3, 8)
        x = pictures((leaves % 4).tolist(), rng)
        found.append((x, [names[leaf] for leaf in leaves]))
    return found


def test_scores_are_those_of_known_classes_before_they_are_learned() -> None:
    """Each batch predicted by hand before it is learned. A link that comes with it counts."""
    model, expected, labels = small(), {0: [], 1: []}, {0: 0, 1: 0}
    for step, (x, given_labels) in enumerate(stream(6)):
        if step == 2:
            model.revise(Revision("link", Label("robin", 1), Label("bird", 0)))
        before = model._decode(model.learner.predict(x)) if step else None
        widths = dict(model.taxonomy.widths)
        model.observe(x, given_labels)
        tree = model.taxonomy
        for row, label in enumerate(given_labels):
            for node in tree.lineage(tree.id(label)):
                level, column = tree.labels[node].level, tree.column(node)
                labels[level] += 1
                if before is not None and column < widths.get(level, 0) and widths[level] > 1:
                    expected[level].append(float(strangeness(before.levels[level][row : row + 1])[0]))
    state = model.novelty.state_dict()
    assert state["labels"] == {"0": labels[0], "1": labels[1]}
    for level, scores in expected.items():
        assert len(scores) > 10
        assert state["recent"][str(level)].tolist() == pytest.approx(scores, abs=1e-6)


def test_the_window_is_bounded_and_the_oldest_leave() -> None:
    tree, novelty = Taxonomy(), Novelty()
    y = torch.tensor([tree.add(Label(name, 0)) for name in "ab"] * 60)
    for step in range(3):
        p = torch.full((120, 2), 0.5)
        p[:, 0] += 0.1 * step
        p[:, 1] -= 0.1 * step
        novelty.update(believe({0: p}, tree), y, tree)
    recent = novelty.state_dict()["recent"]["0"]
    assert len(recent) == WINDOW
    assert recent.unique().numel() == 2
    assert recent[:80].unique().numel() == 1


def test_a_model_that_was_stored_goes_on_the_same() -> None:
    first, batches = small(), stream(8)
    for x, labels in batches[:4]:
        first.observe(x, labels)
    second = Model.from_state(first.state_dict())
    old = Model.from_state({name: part for name, part in first.state_dict().items() if name != "novelty"})
    for x, labels in batches[4:]:
        for model in (first, second, old):
            model.observe(x, labels)
    a, b = first.novelty.state_dict(), second.novelty.state_dict()
    assert a["labels"] == b["labels"]
    assert all(torch.equal(a["recent"][level], b["recent"][level]) for level in ("0", "1"))
    assert len(old.novelty.state_dict()["recent"]["1"]) < len(a["recent"]["1"]), "gathered anew"
    reader, scores = first.reader(), len(a["recent"]["1"])
    first.observe(*batches[0])
    assert len(reader.novelty.state_dict()["recent"]["1"]) == scores, "a reader stays as it is"


def test_without_predictions_nothing_is_called_new() -> None:
    model = small(calibrate=False)
    for x, labels in stream(12):
        model.observe(x, labels)
    assert model.novelty.state_dict()["recent"] == {}
    assert model.beliefs(x).familiar == {}


def test_the_only_class_of_a_rank_is_never_certain() -> None:
    classifier = Classifier(["family", "species"], method="acil", backbone="tiny", image_size=32)
    images = pictures([0, 1, 2], np.random.default_rng(0))
    classifier.learn(images, [("Corvidae", "family"), ("raven", "species"), ("crow", "species")])
    (alone,) = classifier.predict(images[:1])
    assert alone.path == {"species": alone.path["species"]}, "no species is linked yet"
    for species in ("raven", "crow"):
        classifier.link((species, "species"), ("Corvidae", "family"))
    (found,) = classifier.predict(images[1:2])
    assert found.on_path["family"].probability == pytest.approx(2 / 3), "one image of it, by Laplace's rule"
    assert found.on_path["species"].probability <= 2 / 3
    assert found.only == ("family",)
    assert str(found).startswith("Corvidae (only one family known) > ")
    assert found.note == "only one family known"
    assert found.to_json()["only"] == ["family"]
    classifier.learn(images[:1], [("Paridae", "family")])
    assert classifier.predict(images[1:2])[0].only == ()


def test_a_classifier_calls_new_what_is_stranger_than_what_it_knew() -> None:
    classifier = Classifier(["kind", "species"], method="acil", backbone="tiny", image_size=32)
    rng = np.random.default_rng(0)
    for _ in range(3):
        leaves = rng.integers(0, 4, FEWEST)
        classifier.learn(pictures(leaves.tolist(), rng), [(f"class {leaf}", "species") for leaf in leaves])
    images = pictures([0, 1], rng)
    model = classifier.model
    scores = strangeness(model.beliefs(images).levels[1])
    share = [(1 + int((model.novelty.state_dict()["recent"]["1"] >= s).sum())) for s in scores]
    total = 1 + len(model.novelty.state_dict()["recent"]["1"])
    found = classifier.predict(images)
    assert [each.familiar["species"] for each in found] == pytest.approx([s / total for s in share])
    assert all(each.new is None for each in classifier.predict(images, false_alarms=0))
    assert all(each.new == "species" for each in classifier.predict(images, false_alarms=1))
