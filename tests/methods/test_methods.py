from __future__ import annotations

import itertools
import typing
from collections.abc import Callable
from pathlib import Path

import pytest

from dhocl.checks import CHECKS, Factory, assert_valid, exam, feed, setup, stream
from dhocl.experiment.config import RunConfig
from dhocl.experiment.record import Record
from dhocl.experiment.run import run
from dhocl.methods import METHODS
from dhocl.methods.registry import find_method, method_settings

VARIANTS = {
    **{
        name: (name, {"every": 12} if "every" in typing.get_type_hints(METHODS[name].settings) else {})
        for name in METHODS
    },
    "halo, PredLA alone": ("halo", {"hpr": False}),
    "halo, linear alone": ("halo", {"heads": "linear"}),
    "halo, analytic alone": ("halo", {"heads": "analytic", "hpr": False}),
    "halo, the paper's mixing": ("halo", {"mixing": "replay"}),
    **{f"er, {loss}": ("er", {"loss": loss}) for loss in ("multi_ce", "hxe", "soft_ce", "hcon")},
    "halo, prototypes cached often": ("halo", {"cache_every": 2}),
    "acil, expanded": ("acil", {"expansion": 96}),
    "mir, hxe": ("mir", {"candidates": 8, "loss": "hxe"}),
    "clib, levels": ("clib", {"quota": "level", "loss": "hxe", "period": 2}),
    "plfms, bold guesses": ("plfms", {"threshold": 0.3, "quota": "level", "loss": "hxe"}),
    # At 15 samples the checkpoint of the suite falls between two choices, where items wait.
    "rm, two epochs": ("rm", {"every": 15, "memory_epochs": 2, "loss": "hxe"}),
    "gss, one": ("gss", {"subset": 1, "loss": "hxe"}),
    "icarl_sdc, its letter": ("icarl_sdc", {"every": 12, "own_label": False, "means": "exemplars"}),
    "onpro, turned": ("onpro", {"rotations": 4}),
    "ccl_dc, short chain": ("ccl_dc", {"views": 2, "loss": "hxe"}),
    "onlora, merging": ("onlora", {"window": 2, "plateau_mean": 9.0, "plateau_variance": 9.0}),
    "onlora, hard images": ("onlora", {"memory": "hard", "window": 2, "plateau_mean": 9.0, "plateau_variance": 9.0}),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("variant", VARIANTS)
def test_conformance(variant: str, check: Callable[[Factory], None]) -> None:
    name, chosen = VARIANTS[variant]
    check(lambda setup: find_method(name).learner(setup, method_settings(name, chosen)))


OFFERED = {name: typing.get_type_hints(method.settings).get("loss") for name, method in METHODS.items()}


@pytest.mark.parametrize("name", [name for name, losses in OFFERED.items() if losses])
def test_each_loss_that_a_method_offers_runs_and_has_an_effect(name: str) -> None:
    x, _ = exam()
    answers = []
    for loss in typing.get_args(OFFERED[name]):
        learner, curator = METHODS[name].learner(setup(), method_settings(name, {"loss": loss})), None
        for batch in stream(4):
            curator = feed(learner, [batch], curator)
            answer = learner.predict(x)
            assert_valid(answer, curator.taxonomy, len(x))
        answers.append(answer)
    assert len(answers) >= 4
    for one, other in itertools.combinations(answers, 2):
        assert any((one[level] != other[level]).any() for level in one), "two losses make the same learner"


@pytest.mark.parametrize("name", METHODS)
def test_beats_chance_on_glyphs(name: str, tmp_path: Path) -> None:
    settings = {"views": 1} if name == "ccl_dc" else {}  # the whole chain takes two minutes
    config = RunConfig(name, settings=settings, samples=880, test_samples=880, groups=2, buffer=100, eval_every=880)
    for _ in run(config, tmp_path / "run"):
        pass
    (scores,) = Record(tmp_path / "run").curve()
    for level, width in scores["classes"].items():
        assert scores["level_accuracy"][level] > 2 * 100 / width, f"level {level}"
