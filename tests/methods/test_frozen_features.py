"""Features that stay: computed once, they replace the images."""

from __future__ import annotations

import pytest
import torch

from dhocl.core.taxonomy import Label
from dhocl.model import Model, ModelConfig

KINDS = [Label("bird", 0), Label("fish", 0), Label("robin", 1), Label("pike", 1)]


def taught(method: str) -> tuple[Model, torch.Tensor]:
    x = torch.randint(256, (24, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    model = Model(ModelConfig(("kind", "species"), method=method, backbone="tiny", image_size=32))
    model.observe(x[:12], 3 * KINDS)
    return model, x[12:]


@pytest.mark.parametrize("method", ["amber", "acil", "gacil", "ncm", "slda", "ranpac"])
def test_predictions_from_features_are_those_from_images(method: str) -> None:
    model, x = taught(method)
    phi = model.learner.frozen_features(x.clone())
    assert phi is not None
    assert phi.shape[0] == 12
    for level, p in model.probabilities(phi).items():
        assert torch.allclose(p, model.probabilities(x)[level], atol=1e-5)
    assert model.suggest(phi, 4)[0].row == model.suggest(x, 4)[0].row
    model.observe(x[:4], KINDS)
    assert torch.equal(phi, model.learner.frozen_features(x.clone()))


def test_amber_keeps_what_it_learned_and_a_reader_what_was_learned_before() -> None:
    model, x = taught("amber")
    reader = model.reader()
    learned = reader.learner.learned()
    assert learned is not None
    assert len(learned) >= 12  # those in the window, and leaves again
    model.observe(x, 3 * KINDS)
    assert torch.equal(reader.learner.learned(), learned)
    assert len(model.learner.learned()) > len(learned)  # type: ignore[arg-type]
    own = reader.learner.frozen_features(x[:1])
    assert own is not None
    assert (model.learner.learned() - own).norm(dim=1).min() < 1e-5  # type: ignore[operator]
    seen = [each.novelty for each in model.suggest(x, 12)]
    assert max(seen) < 0.01 < min(each.novelty for each in reader.suggest(x, 12))


def test_a_method_that_trains_suggests_by_its_predictions() -> None:
    model, x = taught("er")
    assert model.learner.frozen_features(x) is None
    assert model.learner.learned() is None
    assert len({each.row for each in model.suggest(x, 5)}) == 5
    fresh = Model(ModelConfig(("kind", "species"), method="er", backbone="tiny", image_size=32))
    assert [each.level for each in fresh.suggest(x, 3)] == [0, 1, 1]
    assert fresh.suggest(x[:0], 3) == []
