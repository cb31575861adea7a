"""Model by itself: what it adds to learner, curator and taxonomy."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from dhocl import InputError, Label, Model, ModelConfig, Revision
from dhocl.checks import exam, stream, true_tree
from dhocl.core import checkpoint
from dhocl.core.decode import believe, merge_synonyms
from dhocl.nn.learner import Batch

BIRD, FISH, ROBIN, COD = Label("bird", 0), Label("fish", 0), Label("robin", 1), Label("cod", 1)
CONFIG = ModelConfig(("kind", "species"), method="er", backbone="tiny", image_size=32, buffer=20, replay_batch=4)
X, _ = exam()


def taught(steps: int = 6, config: ModelConfig = CONFIG) -> Model:
    model = Model(config, tree=true_tree())
    for x, labels in stream(steps):
        model.observe(x, labels)
    return model


def equal(a: dict[int, torch.Tensor], b: dict[int, torch.Tensor]) -> bool:
    return list(a) == list(b) and all(torch.equal(a[level], b[level]) for level in a)


def test_it_learns_as_its_parts_would_and_predicts_by_level_and_by_path() -> None:
    uncalibrated = ModelConfig(**CONFIG.to_json() | {"levels": CONFIG.levels, "calibrate": False})
    model, parts = taught(config=uncalibrated), Model(CONFIG, tree=true_tree())
    for x, labels in stream(6):
        parts.learner.learn(Batch(x, parts.curator.observe(labels)), parts.taxonomy)
    p = merge_synonyms(parts.learner.predict(X), parts.taxonomy)
    assert equal(model.probabilities(X, "level"), p)
    assert equal(model.probabilities(X), believe(p, parts.taxonomy).marginals())


def test_each_batch_is_predicted_before_it_is_learned() -> None:
    model = taught(3)
    x, labels = stream(6)[4]
    expected = model.beliefs(x)
    before = model.observe(x, labels).before
    assert before is not None
    assert equal(before.levels, expected.levels)
    assert not equal(model.beliefs(x).levels, expected.levels)
    assert model.calibration.state_dict() != taught(3).calibration.state_dict()
    assert Model(CONFIG).observe(x, labels).before is None, "nothing was known"


def test_a_reader_stays_as_it_is_and_its_network_rests() -> None:
    model = taught(3)
    reader, before = model.reader(), model.probabilities(X)
    assert all(torch.allclose(reader.probabilities(X)[level], p, atol=1e-5) for level, p in before.items())
    kept = reader.probabilities(X)
    for x, labels in stream(6)[3:]:
        model.observe(x, labels)
    model.revise(Revision("merge", COD, Label("carp", 1)))
    assert equal(reader.probabilities(X), kept)
    assert not equal(model.probabilities(X), kept)


def test_a_reader_that_predicts_does_not_put_the_learner_to_rest() -> None:
    """It may predict while the other learns, in another thread."""
    model, alone = taught(3), taught(3)
    with model.reader().resting():
        for each in (model, alone):
            for x, labels in stream(6)[3:]:
                each.observe(x, labels)
    assert equal(model.probabilities(X), alone.probabilities(X))


def test_revisions_change_the_tree_and_are_not_undone_by_a_source() -> None:
    model = Model(CONFIG, tree=true_tree())
    model.observe(X[:4], [BIRD, FISH, ROBIN, COD])
    tree = model.taxonomy
    model.revise(Revision("link", ROBIN, FISH))
    model.observe(X[:1], [ROBIN])
    model.apply([(ROBIN, BIRD)])
    assert tree.parent(tree.id(ROBIN)) == tree.id(FISH)
    model.revise(Revision("unlink", ROBIN))
    model.apply([(ROBIN, BIRD)])
    assert tree.parent(tree.id(ROBIN)) == -1
    model.revise(Revision("add", Label("wren", 1), BIRD))
    assert tree.parent(tree.id(Label("wren", 1))) == tree.id(BIRD)
    model.revise(Revision("rename", COD, Label("codfish", 1)))
    assert tree.id(Label("codfish", 1)) == tree.id(COD)
    model.revise(Revision("merge", Label("wren", 1), ROBIN))
    assert tree.id(Label("wren", 1)) == tree.id(ROBIN)


@pytest.mark.parametrize(
    ("revision", "why"),
    [
        (Revision("link", ROBIN, COD), "level"),
        (Revision("link", Label("dodo", 1), BIRD), "'dodo'"),
        (Revision("add", ROBIN, BIRD), "is there already: link it"),
        (Revision("add", Label("fowl", 0), BIRD), "a parent's level is smaller"),
        (Revision("merge", ROBIN), "no such revision"),
        (Revision("paint", ROBIN, BIRD), "no such revision"),
    ],
)
def test_what_the_tree_refuses_is_told_in_a_line_and_changes_nothing(revision: Revision, why: str) -> None:
    model = Model(CONFIG)
    model.observe(X[:4], [BIRD, FISH, ROBIN, COD])
    before = model.taxonomy.dumps()
    with pytest.raises(InputError, match=why):
        model.revise(revision)
    assert model.taxonomy.dumps() == before


def test_restored_from_a_checkpoint_it_goes_on_bit_for_bit(tmp_path: Path) -> None:
    first, whole = taught(5), taught(5)
    checkpoint.save(tmp_path, first.state_dict())
    second = Model.from_state(checkpoint.load_newest(tmp_path) or {})
    assert (second.config, repr(second)) == (first.config, repr(first))
    for model in (second, whole):
        for x, labels in stream(4, seed=7):
            model.observe(x, labels)
    assert equal(second.probabilities(X), whole.probabilities(X))
    assert not equal(second.probabilities(X), first.probabilities(X))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"levels": "family,genus"}, "`levels` 'family,genus' is text: give a list of names"),
        ({"levels": ()}, r"`levels` \(\): different names"),
        ({"levels": ("a", "a")}, r"`levels` \('a', 'a'\): different names"),
        ({"image_size": 0}, "`image_size` 0: at least 1"),
        ({"buffer": -1}, "`buffer` -1: at least 0"),
    ],
)
def test_a_config_that_can_not_be_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        ModelConfig(**{"levels": ("kind",)} | wrong)  # type: ignore[arg-type]


class Hanging:
    """Answers after a second."""

    slow = True

    def query(self, label: Label, known: object) -> list[tuple[Label, Label]]:
        time.sleep(1)
        return [(label, BIRD)] if label == ROBIN else []


def test_a_slow_source_is_asked_in_the_background() -> None:
    model = Model(CONFIG, source=Hanging())
    began = time.monotonic()
    model.observe(X[:2], [BIRD, ROBIN])
    assert time.monotonic() - began < 0.9
    while model.taxonomy.parent(model.taxonomy.id(ROBIN)) == -1:
        time.sleep(0.1)
        model.observe(X[:1], [ROBIN])
        assert time.monotonic() - began < 60


def test_an_unknown_decoding_is_refused() -> None:
    model = taught()
    with pytest.raises(InputError, match="`decode` tree: one of level, path"):
        model.probabilities(X, "tree")  # type: ignore[arg-type]
