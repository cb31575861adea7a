"""Mixed precision: only what is inside of the backbone is computed in bfloat16."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dhocl import Classifier, Model, ModelConfig, RunConfig
from dhocl.checks import exam, stream, true_tree
from dhocl.core.errors import InputError
from dhocl.core.precision import Precision
from dhocl.experiment.run import load_dataset, make_model
from dhocl.methods.amber import Amber
from dhocl.methods.er import ER
from dhocl.model.merging import merge
from dhocl.nn.backbones import Backbone, load


def inside(backbone: Backbone, call: Callable[[Tensor], object]) -> set[torch.dtype]:
    """The types of what the convolutions return."""
    seen: set[torch.dtype] = set()
    hooks = [
        module.register_forward_hook(lambda _, __, out: seen.add(out.dtype))
        for module in backbone.modules()
        if isinstance(module, nn.Conv2d)
    ]
    call(exam()[0])
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("name", ["tiny", "efficientnet_lite0"])
def test_a_backbone_computes_in_bfloat16_and_returns_float32(name: str) -> None:
    plain, mixed = load(name), load(name)
    mixed.precision = "bfloat16"
    x, _ = exam()
    with torch.no_grad():
        assert inside(plain, plain) == {torch.float32}
        assert inside(mixed, mixed) == {torch.bfloat16}
        outputs = [(*net(x), *net.pooled(x), net.features(x)) for net in (mixed, plain)]
        for found, exact in zip(*outputs, strict=True):
            assert found.dtype == torch.float32
            assert not torch.equal(found, exact)
            assert (found - exact).norm() < 0.05 * exact.norm()  # bfloat16 has 8 bits
        with mixed.resting():
            assert (mixed.features(x) - plain.features(x)).norm() < 0.05 * plain.features(x).norm()


def test_gradients_are_those_of_float32_but_for_rounding() -> None:
    x, _ = exam()
    gradients = []
    for precision in ("float32", "bfloat16"):
        backbone = load("tiny")
        backbone.precision = precision  # type: ignore[assignment]
        backbone.features(x).square().mean().backward()  # type: ignore[no-untyped-call]
        gradients.append(torch.cat([p.grad.flatten() for p in backbone.parameters() if p.grad is not None]))
    exact, found = gradients
    assert found.dtype == torch.float32
    assert (found - exact).norm() < 0.05 * exact.norm()


def model(method: str, precision: Precision) -> Model:
    config = ModelConfig(("kind", "species"), method, backbone="tiny", image_size=32, precision=precision)
    made = Model(config, tree=true_tree())
    for x, labels in stream(6):
        made.observe(x, labels)
    return made


def test_what_is_learned_stays_in_float32() -> None:
    amber, er = model("amber", "bfloat16").learner, model("er", "bfloat16").learner
    assert isinstance(amber, Amber)
    assert isinstance(er, ER)
    assert amber.features.f0.precision == "bfloat16"
    assert {gram.dtype for gram in amber.statistics.grams.values()} == {torch.float32}
    assert {p.dtype for p in er.net.optimizer.parameters()} == {torch.float32}
    x, _ = exam()
    for learner in (amber, er):
        assert {p.dtype for p in learner.predict(x).values()} == {torch.float32}
    exact = model("amber", "float32").learner.predict(x)
    assert (amber.predict(x)[1].argmax(1) == exact[1].argmax(1)).float().mean() > 0.9


def test_precision_belongs_to_the_model() -> None:
    mixed = model("amber", "bfloat16")
    again = Model.from_state(mixed.state_dict())
    assert again.backbone.precision == "bfloat16"
    assert model("amber", "float32").backbone.precision == "float32"
    with pytest.raises(InputError, match="`precision` is float32 in one, bfloat16 in the other"):
        merge(model("amber", "float32"), mixed)
    with pytest.raises(InputError, match="`precision` half"):
        Classifier(["kind"], backbone="tiny", precision="half")  # type: ignore[arg-type]
    config = RunConfig(backbone="tiny", image_size=32, samples=40, test_samples=40, precision="bfloat16")
    assert make_model(config, load_dataset(config), 40).backbone.precision == "bfloat16"
    old = mixed.config.to_json()
    del old["precision"]  # earlier versions had none
    assert ModelConfig.from_json(old).precision == "float32"
