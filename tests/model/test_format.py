"""One model format: what a run, a classifier and a service leave open in one another."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from dhocl import Classifier, InputError, RunConfig, run
from dhocl.checks import exam
from dhocl.experiment.record import Record
from dhocl.service.bodies import Limits
from dhocl.service.keeper import Pace
from dhocl.service.served import Asked
from dhocl.service.service import Service
from tests.helpers.serving import as_post, examples, leave, opened
from tests.helpers.small_runs import SMALL

X, _ = exam()


def served(folder: Path) -> list[dict[str, object]]:
    service = Service(folder, {}, Limits(), Pace())
    (found,) = service.engine.snapshot.predict(list(X.permute(0, 2, 3, 1).numpy()), [Asked(len(X))])
    leave(service)
    return found


def small() -> Classifier:
    classifier = Classifier(["kind", "species"], backbone="tiny", image_size=32, buffer=30)
    names = ["robin", "crow", "cod", "carp"]
    classifier.learn(X, [(names[n // 10], "species") for n in range(len(X))])
    return classifier


def test_a_finished_run_is_loaded_learns_on_and_is_served(finished: Record, tmp_path: Path) -> None:
    classifier = Classifier.load(finished.folder)
    assert classifier.taxonomy.dumps() == finished.taxonomy().dumps()
    predictions = classifier.predict(X)
    assert set(predictions[0].levels) == set(classifier.levels)
    classifier.learn(X[:4], [("new", classifier.levels[-1])] * 4)
    classifier.save(tmp_path / "copy")
    assert Classifier.load(tmp_path / "copy").predict(X) == classifier.predict(X)
    found = served(tmp_path / "copy")
    for one, other in zip(found, classifier.predict(X), strict=True):
        assert [node["name"] for node in one["path"]] == list(other.path.values())
        assert one["path"][-1]["probability"] == pytest.approx(other.probability, abs=1e-4)


def test_a_served_run_counts_and_calibrates(finished: Record, tmp_path: Path) -> None:
    """A run predicts no batch before it is learned, unless asked to; a service always does."""
    shutil.copytree(finished.folder, tmp_path / "m")
    service = Service(tmp_path / "m", {}, Limits(), Pace())
    known = [label for label in service.engine.snapshot.taxonomy if label.level == 2][:5]
    given = [(image, label.name, service.ranks[2]) for (image, _, _), label in zip(examples(5), known, strict=True)]
    service.journal.append([as_post(given, service.image_size)])
    assert service.engine.turn()
    assert service.engine.snapshot.progress[service.ranks[2]]["seen"] == 5
    assert service.journal.recent(1)[0].outcome["predicted"] is not None
    leave(service)


def test_what_a_service_learns_is_read_while_it_runs(tmp_path: Path) -> None:
    small().save(tmp_path / "m")
    service = Service(tmp_path / "m", {}, Limits(), Pace())
    service.journal.append([as_post(examples(20), service.image_size)])
    while service.engine.turn():
        pass
    service.engine.save()
    classifier = Classifier.load(tmp_path / "m")
    image = np.full((32, 32, 3), 90, dtype=np.uint8)
    ((answer,),) = service.engine.snapshot.predict([image], [Asked(1, 0.5, top=2)])
    assert answer == classifier.predict(image, top=2)[0].to_json(0.5), "one shape for all"
    with pytest.raises(InputError, match="in use by another process"):
        classifier.save(tmp_path / "m")
    leave(service)
    with pytest.raises(InputError, match="of a run or of a service: save in another one"):
        classifier.save(tmp_path / "m")


def test_an_unfinished_run_is_read_but_not_served(tmp_path: Path) -> None:
    config = RunConfig(**SMALL | {"method": "acil"})
    for progress in run(config, tmp_path / "run"):
        if progress.scores:
            with pytest.raises(InputError, match="in use by another process"):
                next(run(config, tmp_path / "run", resume=True))
            break
    assert len(Classifier.load(tmp_path / "run").taxonomy) > 0
    with pytest.raises(InputError, match="is not finished: `dhocl run --resume"):
        opened(tmp_path / "run")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no model"):
        Classifier.load(tmp_path)
