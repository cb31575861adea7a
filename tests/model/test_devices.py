"""Models, bulk learning and whole runs on a stand-in for a GPU: the same as on the CPU, bit for bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from dhocl import Classifier, Label, Model, ModelConfig
from dhocl.bulk.learning import learn_in_bulk, locally
from dhocl.checks import exam, stream, true_tree
from dhocl.core.devices import find_device
from dhocl.core.errors import InputError
from dhocl.experiment.config import RunConfig
from dhocl.experiment.record import Record
from dhocl.experiment.run import run
from dhocl.methods.amber import Amber
from dhocl.model.merging import merge, strip
from tests.helpers.albums import labelled
from tests.helpers.small_runs import SMALL
from tests.helpers.standin import DEVICE, accelerator

COMPLETED = {"completion": "always", "window": 16, "refresh": 8, "calibration": 64}


def make(device: str, method: str = "amber", **settings: Any) -> Model:
    config = ModelConfig(("kind", "species"), method, backbone="tiny", image_size=32, settings=settings)
    return Model(config, tree=true_tree(), device=device)


def taught(model: Model, seed: int = 0, batches: int = 12) -> Model:
    for x, labels in stream(batches, seed):
        model.observe(x, labels)
    return model


def corrected(model: Model) -> Model:
    """Some samples are forgotten, in the window and before, and one gets another label."""
    batches = stream(12)
    for x, labels in (batches[0], batches[-1]):
        model.forget(x[:2], labels[:2])
    (x, labels) = batches[-2]
    model.relabel(x[:1], labels[:1], [Label("carp", 1)])
    return model


def test_a_model_on_the_device_is_told_and_asked_from_the_cpu() -> None:
    x, _ = exam()
    here = corrected(taught(make("cpu", **COMPLETED)))
    assert isinstance(here.learner, Amber)
    assert here.learner.statistics.soft, "labels must be completed for this test"
    assert here.learner.reliability.fitted_at, "reliabilities must be fitted for this test"
    assert here.learner.penalties.log, "penalties must be learned for this test"
    with accelerator():
        there = corrected(taught(make("cuda", **COMPLETED)))
        assert there.device == DEVICE
        mine, theirs = here.beliefs(x), there.beliefs(x)
        assert torch.equal(mine.posterior, theirs.posterior)
        assert all(torch.equal(mine.levels[level], p) for level, p in theirs.levels.items())
        assert all(torch.equal(mine.familiar[level], p) for level, p in theirs.familiar.items())
        assert here.suggest(x, 5) == there.suggest(x, 5)
        assert all(torch.equal(here.probabilities(x)[level], p) for level, p in there.reader().probabilities(x).items())


def test_models_are_merged_and_stripped_on_the_device() -> None:
    x, _ = exam()
    found = {}
    with accelerator():
        for device in ("cpu", "cuda"):
            model, other = (taught(make(device, **COMPLETED), seed, batches=4) for seed in (0, 1))
            merge(model, other)
            strip(model)
            found[device] = model.beliefs(x).posterior
    assert torch.equal(found["cpu"], found["cuda"])


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labelled(tmp_path_factory.mktemp("data") / "photos", 24)


def test_bulk_learning_sums_up_on_the_device_and_a_cpu_predicts(album: Path, tmp_path: Path) -> None:
    x, _ = exam()
    found = []
    with accelerator():
        for device in ("cpu", "cuda"):
            options = {"backbone": "tiny", "image_size": 32, "device": device}
            for _ in learn_in_bulk(tmp_path / device, album, options, partial(locally, device=device)):
                pass
            found.append(Classifier.load(tmp_path / device, device="cpu").probabilities(x))
    assert all(torch.equal(found[1][level], p) for level, p in found[0].items())


@pytest.mark.parametrize("method", ["amber", "halo"])
def test_a_run_on_the_device_is_that_of_the_cpu_and_goes_on_there(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = RunConfig(**SMALL | {"method": method, "samples": 128, "test_samples": 60})
    for _ in run(config, tmp_path / "here", device="cpu"):
        pass
    expected = Record(tmp_path / "here")
    with accelerator():
        for progress in run(config, tmp_path / "there", device="cuda"):
            if progress.scores:
                break
    record = Record(tmp_path / "there")
    assert record.describe()["device"] == "cuda:0"
    for _ in run(config, tmp_path / "there", resume=True, device="cpu"):
        pass
    assert "started on cuda:0" in caplog.text
    assert record.curve() == expected.curve()
    assert all(torch.equal(record.matrices()[name], matrix) for name, matrix in expected.matrices().items())


def test_a_device_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert find_device("auto") == find_device("cpu") == torch.device("cpu")
    for name in ("cuda", "cuda:0", "tpu", ""):
        with pytest.raises(
            InputError, match=f"`device` {name}: there are no GPUs that PyTorch can use here; choose one"
        ):
            find_device(name)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert find_device("auto") == find_device("cuda") == find_device("cuda:0") == torch.device("cuda", 0)
    assert find_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(InputError, match="`device` cuda:2: there are 2 GPUs here; choose one of auto, cpu, cuda"):
        find_device("cuda:2")
