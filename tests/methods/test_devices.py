"""Each method computes where its backbone is, on a stand-in for a GPU that refuses to mix devices.

The stand-in computes on the CPU, so all results must be those of the CPU, bit for bit.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from dhocl.checks import check_learner, exam, feed, setup, stream
from dhocl.core import checkpoint
from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Taxonomy
from dhocl.methods.acil import ACIL, AnalyticSettings
from dhocl.methods.registry import find_method, method_settings
from dhocl.nn import backbones
from dhocl.nn.learner import Batch, Learner
from tests.helpers.standin import DEVICE, accelerator
from tests.methods.test_methods import VARIANTS

COMPLETED = {"completion": "always", "window": 16, "refresh": 8, "calibration": 64}
EACH = VARIANTS | {"amber, completed": ("amber", COMPLETED)}
STEPS = {"amber, completed": 14}  # for a fit, there must be some samples


def make(variant: str, device: str) -> Learner:
    name, chosen = EACH[variant]
    ready = setup()._replace(backbone=backbones.load("tiny", device))
    return find_method(name).learner(ready, method_settings(name, chosen))  # type: ignore[call-arg]


def on_cpu(p: dict[int, Tensor]) -> dict[int, Tensor]:
    assert {q.device for q in p.values()} == {DEVICE}
    return {level: q.cpu() for level, q in p.items()}


def assert_equal(found: dict[int, Tensor], expected: dict[int, Tensor]) -> None:
    assert list(found) == list(expected)
    assert all(torch.equal(found[level], p) for level, p in expected.items())


def forgets(learner: Learner, batch: Batch, taxonomy: Taxonomy) -> bool:
    try:
        learner.forget(batch, taxonomy)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("variant", EACH)
def test_a_method_computes_where_its_backbone_is_and_goes_on_elsewhere(variant: str, tmp_path: Path) -> None:
    """Learned, read, written and forgotten on the stand-in; then on the CPU, from its checkpoint; then there again."""
    x, _ = exam()
    *most, last = stream(STEPS.get(variant, 5))
    here = make(variant, "cpu")
    curator = feed(here, most)
    with accelerator():
        there = make(variant, "cuda")
        feed(there, most)
        assert_equal(on_cpu(there.predict(x)), here.predict(x))
        assert_equal(on_cpu(there.reader().predict(x)), here.reader().predict(x))
        written = checkpoint.load(checkpoint.save(tmp_path / "there", there.state_dict()))
    moved = make(variant, "cpu")
    moved.load_state_dict(written)
    y = curator.observe(last[1])
    for learner in (here, moved):
        learner.learn(Batch(last[0], y), curator.taxonomy)
    assert_equal(moved.predict(x), here.predict(x))
    with accelerator():
        back = make(variant, "cuda")
        back.load_state_dict(checkpoint.load(checkpoint.save(tmp_path / "here", moved.state_dict())))
        some = Batch(last[0][:2], y[:2])
        assert forgets(back, some, curator.taxonomy) == forgets(here, some, curator.taxonomy)
        assert_equal(on_cpu(back.predict(x)), here.predict(x))


def test_the_conformance_checks_run_on_a_gpu() -> None:
    with accelerator():
        check_learner(lambda setup: ACIL(setup, AnalyticSettings()))
