"""The engine without HTTP: what it learns, in which order, and what a crash leaves of it."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dhocl import Classifier, InputError, Label, Model
from dhocl.classifier.restriction import Allowed, Restriction
from dhocl.core.taxonomy import Taxonomy
from dhocl.service import reports
from dhocl.service.bodies import Limits
from dhocl.service.images import pixels
from dhocl.service.keeper import Pace
from dhocl.service.served import Asked, as_array
from dhocl.service.service import Service
from tests.helpers.engines import observe, revise, work_off
from tests.helpers.serving import OPTIONS, examples, leave, opened

pytestmark = pytest.mark.usefixtures("short_memory")

LINK = {"kind": "link", "child": {"name": "cod", "rank": "species"}, "parent": {"name": "fish", "rank": "kind"}}


def everything(service: Service) -> dict[str, Any]:
    """All that a checkpoint holds, with tensors flat."""
    service.engine.save()
    flat: dict[str, Any] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                add(f"{name}/{key}", item)
        else:
            flat[name] = value.clone() if isinstance(value, torch.Tensor) else value

    add("", service.engine._served.state_dict())
    return flat


def assert_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        same = torch.equal(value, b[name]) if isinstance(value, torch.Tensor) else value == b[name]
        assert same, name


def fill(service: Service) -> None:
    """100 observations with revisions between them."""
    observe(service, examples(40))
    revise(service, **LINK)
    observe(service, examples(30, seed=1))
    revise(service, kind="merge", **{"class": {"name": "crow", "rank": "species"}, "into": "robin"})
    revise(service, kind="rename", **{"class": {"name": "dodo", "rank": "species"}, "to": "extinct"})  # unknown
    observe(service, examples(30, seed=2))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    service = opened(tmp_path_factory.mktemp("undisturbed") / "m")
    fill(service)
    work_off(service)
    state = everything(service)
    leave(service)
    return state


def test_everything_is_learned_once_and_in_order(undisturbed: dict[str, Any]) -> None:
    assert undisturbed["/service/learned"] == 100
    assert undisturbed["/service/applied"] == 103
    assert undisturbed["/model/learner/window/seen"] == 100, "counted by the learner itself"
    tree = Taxonomy.loads(undisturbed["/model/curator/taxonomy"])
    assert tree.parent(tree.id(Label("cod", 1))) == tree.id(Label("fish", 0))
    assert tree.id(Label("crow", 1)) == tree.id(Label("robin", 1))


@pytest.mark.parametrize("seed", range(8))
def test_killed_anywhere_it_ends_as_if_it_had_not_been(
    undisturbed: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Each life applies some micro-batches, perhaps writes a checkpoint, and is gone."""
    rng = np.random.default_rng(seed)
    lives = [(rng.integers(0, 5), rng.random() < 0.5) for _ in range(3)]
    folder = tmp_path_factory.mktemp("killed") / "m"
    service = opened(folder)
    fill(service)
    for turns, saves in lives:
        work_off(service, turns)
        if saves:
            service.engine.save()
            work_off(service, 1)
        leave(service)
        service = opened(folder)
    work_off(service)
    assert service.journal.queued == 0
    assert_same(everything(service), undisturbed)
    leave(service)


def test_micro_batches_are_repeated_as_they_were(tmp_path: Path) -> None:
    """Posted in dribs and drabs, they were small; after a crash all wait at once, and are learned as before."""
    service = opened(tmp_path / "m")
    for seed in range(5):
        observe(service, examples(3, seed))
        work_off(service)
    before = service.engine._served.state_dict()["service"]
    leave(service)
    again = opened(tmp_path / "m")
    work_off(again)
    assert again.engine._served.state_dict()["service"] == before
    assert before["step"] == 5
    leave(again)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    service = opened(tmp_path / "m")
    fill(service)
    for _ in range(4):
        work_off(service, 1)
        service.engine.save()
    leave(service)
    newest = max((tmp_path / "m" / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    again = opened(tmp_path / "m")
    work_off(again)
    assert_same(everything(again), undisturbed)
    leave(again)


def test_a_batch_that_the_learner_fails_on_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, last = examples(20), examples(20, seed=1)
    poison = [(image, "poison", "species") for image, _, _ in examples(3, seed=2)]
    clean = opened(tmp_path / "clean")
    for batch in (first, last):
        observe(clean, batch)
        work_off(clean)
    observed = Model.observe

    def fails_at_the_end(self: Model, x: Any, labels: Any) -> Any:
        result = observed(self, x, labels)
        if Label("poison", 1) in labels:
            raise RuntimeError("diverged")
        return result

    monkeypatch.setattr(Model, "observe", fails_at_the_end)
    service = opened(tmp_path / "m")
    with caplog.at_level(logging.CRITICAL):
        for batch in (first, poison, last):
            observe(service, batch)
            work_off(service)
    assert (service.engine.snapshot.learned, service.engine.snapshot.refused, service.journal.queued) == (40, 3, 0)
    found, expected = everything(service), everything(clean)
    for name in ("applied", "step", "refused"):
        found.pop(f"/service/{name}")
        expected.pop(f"/service/{name}")
    assert_same(found, expected)
    for each in (clean, service):
        leave(each)


def test_revisions_that_the_tree_refuses_are_noted(tmp_path: Path) -> None:
    service = opened(tmp_path / "m")
    observe(service, examples(20))
    cod = {"name": "cod", "rank": "species"}
    numbers = [
        revise(service, kind="link", child=cod, parent={"name": "unicorn", "rank": "kind"}),
        revise(service, kind="link", child={"name": "fish", "rank": "kind"}, parent=cod),
        revise(service, kind="merge", **{"class": cod, "into": "unicorn"}),
        revise(service, kind="add", **{"class": cod, "parent": {"name": "fish", "rank": "kind"}}),
        revise(service, kind="explode"),
    ]
    before = service.engine.snapshot.taxonomy.version
    work_off(service)
    for number in numbers:
        entry = service.journal.entry(number)
        assert entry is not None
        assert entry.state == "refused", entry
        assert entry.outcome
        assert entry.outcome["reason"]
    assert service.engine.snapshot.taxonomy.version == before + 6, "two kinds and four species came, nothing else"
    assert (service.engine.snapshot.learned, service.engine.snapshot.refused) == (20, 0)
    leave(service)


def test_a_snapshot_stays_as_it_is(tmp_path: Path) -> None:
    service = opened(tmp_path / "m")
    observe(service, examples(40))
    work_off(service, 1)
    snapshot, image = service.engine.snapshot, np.full((32, 32, 3), 90, dtype=np.uint8)
    nothing = Restriction((Allowed(frozenset()),), asked="`among`")
    alone, problem, third = snapshot.predict([image] * 3, [Asked(1), Asked(1, restriction=nothing), Asked(1)])
    assert isinstance(problem, InputError)
    assert alone == third, "a request without possible classes does not fail the others"
    before = snapshot.predict([image], [Asked(1, 0.5)]), snapshot.taxonomy.dumps(), snapshot.progress
    revise(service, **LINK)
    observe(service, [(examples(1)[0][0], f"new {n}", "species") for n in range(20)])
    work_off(service)
    assert service.engine.snapshot.predict([image], [Asked(1, 0.5)]) != before[0]
    assert (snapshot.predict([image], [Asked(1, 0.5)]), snapshot.taxonomy.dumps(), snapshot.progress) == before
    leave(service)


def test_progressive_accuracy_is_that_of_a_prediction_before_learning(tmp_path: Path) -> None:
    """Against a classifier that is fed by hand."""
    service = opened(tmp_path / "m")
    by_hand = Classifier(**OPTIONS)
    seen, correct = {"kind": 0, "species": 0}, {"kind": 0, "species": 0}
    confused: Counter[tuple[str, str, str]] = Counter()
    for seed in range(5):
        wrong = {"crow": "robin", "bird": "fish"} if seed == 4 else {}  # so that there are mistakes
        batch = [(image, wrong.get(name, name), rank) for image, name, rank in examples(12, seed)]
        observe(service, batch)
        work_off(service)
        images = [as_array(pixels(image, 32, 10**6), 32) for image, _, _ in batch]
        guesses = by_hand.predict(images) if len(by_hand.taxonomy) else [None] * 12
        for guess, (_, name, rank) in zip(guesses, batch, strict=True):
            seen[rank] += 1
            correct[rank] += guess is not None and rank in guess.levels and guess.levels[rank].name == name
            if guess is not None and Label(name, rank == "species") in by_hand.taxonomy:
                confused[rank, name, guess.levels[rank].name] += guess.levels[rank].name != name
        by_hand.learn(images, [(name, rank) for _, name, rank in batch])
    found = service.engine.snapshot.progress
    assert {rank: value["seen"] for rank, value in found.items()} == seen
    assert {rank: value["correct"] for rank, value in found.items()} == correct
    assert sum(correct.values()) > 20
    told = reports.confusions(service.engine.snapshot, most=100)
    counts = {(rank, p["true"], p["predicted"]): p["count"] for rank, pairs in told.items() for p in pairs}
    assert counts == +confused
    assert counts
    assert all(
        [p["count"] for p in pairs] == sorted((p["count"] for p in pairs), reverse=True) for pairs in told.values()
    )
    leave(service)


def test_confusions_follow_renamed_and_merged_classes(tmp_path: Path) -> None:
    service = opened(tmp_path / "m")
    observe(service, examples(30))
    work_off(service)
    for true, predicted, times in (("robin", "cod", 3), ("crow", "cod", 2), ("robin", "crow", 4)):
        tree = service.engine._served.taxonomy
        pair = (tree.id(Label(true, 1)), tree.id(Label(predicted, 1)))
        for _ in range(times):
            service.engine._served.progress.confuse("species", *pair)
    species = {"name": "crow", "rank": "species"}
    revise(service, **{"kind": "rename", "class": {"name": "cod", "rank": "species"}, "to": "codfish"})
    revise(service, **{"kind": "merge", "class": species, "into": "robin"})
    work_off(service)
    told = {p["true"]: p for p in reports.confusions(service.engine.snapshot, most=100)["species"]}
    assert told["robin"] == {"true": "robin", "predicted": "codfish", "count": 5}
    assert "crow" not in told
    (most,) = reports.confusions(service.engine.snapshot, most=1)["species"]
    assert most == told["robin"], "the most frequent comes first"
    leave(service)


def test_an_observation_counts_at_the_ranks_above_it(tmp_path: Path) -> None:
    service = opened(tmp_path / "m")
    observe(service, examples(30))
    work_off(service)
    revise(service, **LINK)
    work_off(service)
    before = service.engine.snapshot.progress
    observe(service, [(image, name, rank) for image, name, rank in examples(30, seed=1) if name == "cod"])
    work_off(service)
    after = service.engine.snapshot.progress
    cods = after["species"]["seen"] - before["species"]["seen"]
    assert cods > 0
    assert after["kind"]["seen"] - before["kind"]["seen"] == cods
    leave(service)


def test_only_one_process_has_a_folder(tmp_path: Path) -> None:
    service = opened(tmp_path / "m")
    with pytest.raises(InputError, match="in use by another process"):
        opened(tmp_path / "m")
    leave(service)


def test_parts_that_do_not_belong_together_are_told_in_a_line(tmp_path: Path) -> None:
    service = opened(tmp_path / "m")
    observe(service, examples(10))
    work_off(service)
    service.engine.save()
    leave(service)
    shutil.copytree(tmp_path / "m", tmp_path / "n")
    (tmp_path / "m" / "journal.sqlite").unlink()
    with pytest.raises(InputError, match="does not continue its checkpoint"):
        opened(tmp_path / "m")
    shutil.rmtree(tmp_path / "n" / "checkpoints")
    with pytest.raises(InputError, match="no intact checkpoint"):
        opened(tmp_path / "n")


def test_a_model_stays_what_it_was_made_as(tmp_path: Path) -> None:
    leave(opened(tmp_path / "m"))
    leave(opened(tmp_path / "m"))  # the same flags may be given again
    with pytest.raises(InputError, match="was created with --image-size 32: leave the option out"):
        Service(tmp_path / "m", OPTIONS | {"image_size": 64}, Limits(), Pace())
    with pytest.raises(InputError, match="has no model: give --levels"):
        Service(tmp_path / "other", {}, Limits(), Pace())
    assert not (tmp_path / "other").exists()


def test_a_snapshot_lags_only_while_more_entries_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, made = opened(tmp_path / "m"), []
    reader = Model.reader
    monkeypatch.setattr(Model, "reader", lambda model, lagging=False: made.append(lagging) or reader(model, lagging))
    observe(service, examples(70))  # micro-batches of 32, 32 and 6
    work_off(service)
    assert made == [True, True, False]
    leave(service)
