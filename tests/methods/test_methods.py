from __future__ import annotations

import dataclasses
import itertools
import typing
from collections.abc import Callable
from pathlib import Path

import pytest

from dhocl.checks import CHECKS, Factory, assert_valid, exam, feed, setup, stream
from dhocl.core.errors import InputError
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
    "amber_plus, short start": ("amber_plus", {"start": 24}),
    "halo, PredLA alone": ("halo", {"hpr": False}),
    "halo, linear alone": ("halo", {"heads": "linear"}),
    "halo, analytic alone": ("halo", {"heads": "analytic", "hpr": False}),
    "halo, the paper's mixing": ("halo", {"mixing": "replay"}),
    **{f"er, {loss}": ("er", {"loss": loss}) for loss in ("multi_ce", "hxe", "soft_ce", "hcon")},
    "halo, prototypes cached often": ("halo", {"cache_every": 2}),
    "acil, expanded": ("acil", {"expansion": 96}),
    "acil, stages, balanced": ("acil", {"stages": 0.5, "balance": 0.5}),
    "gacil, stages, balanced": ("gacil", {"expansion": 96, "stages": 0.5, "balance": 0.5}),
    "mir, hxe": ("mir", {"candidates": 8, "loss": "hxe"}),
    "clib, levels": ("clib", {"quota": "level", "loss": "hxe", "period": 2}),
    "plfms, bold guesses": ("plfms", {"threshold": 0.3, "quota": "level", "loss": "hxe"}),
    # At 15 samples the checkpoint of the suite falls between two choices, where items wait.
    "rm, two epochs": ("rm", {"every": 15, "memory_epochs": 2, "loss": "hxe"}),
    "gdumb, hcon": ("gdumb", {"every": 15, "epochs": 2, "loss": "hcon"}),
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
        chosen = VARIANTS[name][1] | {"loss": loss}
        learner, curator = METHODS[name].learner(setup(), method_settings(name, chosen)), None
        for batch in stream(5):  # the last one ends a period, after all links came
            curator = feed(learner, [batch], curator)
            answer = learner.predict(x)
            assert_valid(answer, curator.taxonomy, len(x))
        answers.append(answer)
    assert len(answers) >= 4
    for one, other in itertools.combinations(answers, 2):
        assert any((one[level] != other[level]).any() for level in one), "two losses make the same learner"


RATES = {"lr_backbone": 1e-4, "lr_heads": 3e-3, "weight_decay": 1e-4}
SLOW = {"lr_backbone": 1e-5}
REPLAY = RATES | {"loss": "haf", "average": "level"}
CLIB = REPLAY | {"period": 0, "decay": 0.9, "quota": "class"}
ANALYTIC = {"gamma": 0.3, "expansion": 0, "normalise": True, "exposed_labels": True, "analytic_tau": 0.3}
STAGED = {"stages": 0.0, "balance": 0.0}
PROTOTYPES = {"cluster": 0.8, "separation": 0.08, "lr_prototypes": 1e-2, "logit_scale": 4.0}
HPR = PROTOTYPES | {"prototypes": 5, "adapter": False, "prototype_size": 256, "lambda_": 10.0, "margin": 0.1}
HPR |= {"top_patches": 0.1, "cache_every": 20, "map_stride": 32, "printed": False}
HALO = RATES | ANALYTIC | HPR | {"heads": "both", "hpr": True, "mixing": "equal", "prototypes_predict": True}
HALO |= {"linear_tau": 2.0, "prototype_tau": 2.0, "lr_alpha": 1e-2, "lr_tau": 0.1, "delta": 0.5}
HALO |= {"batch_statistics": False, "average": "level"}
PRINTED = HALO | dict.fromkeys(("lr_backbone", "lr_heads", "lr_prototypes", "lr_alpha"), 5e-4)
PRINTED |= {"mixing": "replay", "gamma": 1.0, "normalise": False, "adapter": True, "printed": True}
PRINTED |= {"batch_statistics": True}
PRINTED |= {"cluster": 1.0, "separation": 1.0, "lambda_": 0.1, "map_stride": 8}

AMBER = {
    "gamma": 0.75,
    "stages": 0.5,
    "adapt": True,
    "side": 1.0,
    "mirror": True,
    "balance": 0.5,
    "completion": "gated",
    "window": 512,
    "recency": 25.0,
    "margin": 30.0,
    "refresh": 128,
    "calibration": 512,
    "doubt": True,
}
DEFAULTS = {
    "amber": AMBER,
    "amber_plus": AMBER | RATES | {"start": 1024},
    **dict.fromkeys(("er", "er_ace", "cbrs"), REPLAY),
    "halo": HALO,
    "halo_printed": PRINTED,
    "derpp": REPLAY | {"alpha": 0.5, "beta": 1.0},
    "gdumb": REPLAY | SLOW | {"every": 0, "epochs": 10},
    "mir": REPLAY | {"candidates": 50, "virtual_lr": 1e-3},
    "gss": REPLAY | {"subset": 10},
    "clib": CLIB,
    "rm": REPLAY | {"every": 0, "memory_epochs": 1},
    "plfms": CLIB | SLOW | {"threshold": 0.8},
    "icarl_sdc": RATES
    | SLOW
    | {"lr_heads": 1e-3, "every": 0, "means": "running", "sigma": 0.2, "own_label": True, "ncm_tau": 0.05},
    "lwf": REPLAY | {"every": 0, "distillation": 1.0, "temperature": 2.0},
    "ewc": REPLAY | {"every": 0, "penalty": 1e4, "fisher_rate": 0.5},
    "icicle": REPLAY | PROTOTYPES | {"every": 0, "prototypes": 3, "distillation": 0.25, "top_patches": 0.03},
    "acil": ANALYTIC | STAGED,
    "gacil": ANALYTIC | STAGED | {"gamma": 0.12, "expansion": 5000},
    "ncm": {"tau": 0.05},
    "slda": {"shrinkage": 1e-4, "tau": 1.0},
    "ranpac": {"expansion": 2000, "window": 500, "tau": 0.3},
    "onpro": RATES
    | {"rotations": 1, "base_rate": 0.9, "mixup": 0.2, "most_mixed": 0.6}
    | {"instance_temperature": 0.07, "prototype_temperature": 0.5},
    "nsce": REPLAY | {"every": 0, "spread": 0.01, "separation": 0.1, "momentum": 0.95, "threshold": 0.2},
    "ccl_dc": REPLAY | SLOW | {"loss": "multi_ce", "distillation": 2.0, "temperature": 4.0, "views": 4},
    "onlora": REPLAY
    | {"loss": "multi_ce", "lr_backbone": 3e-3, "rank": 4, "penalty": 2000.0, "memory": "reservoir", "hard": 4}
    | {"window": 5, "plateau_mean": 1.0, "plateau_variance": 0.01},
    "finetune": REPLAY | SLOW,
    "joint": REPLAY | {"steps": 8},
}


@pytest.mark.parametrize("name", METHODS, ids=lambda name: name.replace("_printed", ", as printed") + ", defaults")
def test_defaults_do_not_change_unnoticed(name: str) -> None:
    """The tables in docs/ depend on them: a change belongs in DEFAULTS, in docs/deviations.md and in CHANGELOG.md."""
    assert dataclasses.asdict(METHODS[name].settings()) == DEFAULTS[name]


@pytest.mark.parametrize("name", METHODS, ids=lambda name: f"{name}, zeros")
def test_a_setting_of_zero_is_refused_or_works(name: str) -> None:
    x, _ = exam()
    short = {key: value for key, value in {"every": 12, "expansion": 50, "views": 1}.items() if key in DEFAULTS[name]}
    for key in [key for key, value in DEFAULTS[name].items() if type(value) in (int, float)]:
        try:
            settings = method_settings(name, short | {key.rstrip("_"): 0})
        except InputError:
            continue
        learner = METHODS[name].learner(setup(), settings)
        curator = feed(learner, stream(4))
        assert_valid(learner.predict(x), curator.taxonomy, len(x))


@pytest.mark.parametrize("name", METHODS)
def test_beats_chance_on_glyphs(name: str, tmp_path: Path) -> None:
    # The whole chain of ccl_dc, eight steps per batch and ten rounds of training on the memory take up to two minutes,
    # and regressions on the features of all stages half a minute.
    once = {method: {"every": 880} for method in ("gdumb", "rm", "nsce")}
    final = {"amber": {"stages": 0.0}, "amber_plus": {"stages": 0.0, "start": 440}}
    settings = ({"ccl_dc": {"views": 1}, "joint": {"steps": 2}} | once | final).get(name, {})
    stream = {"samples": 880, "test_samples": 440, "eval_every": 880, "image_size": 48, "groups": 2}
    config = RunConfig(name, settings=settings, buffer=100, **stream)
    for _ in run(config, tmp_path / "run"):
        pass
    (scores,) = Record(tmp_path / "run").curve()
    for level, width in scores["classes"].items():
        assert scores["level_accuracy"][level] > 2 * 100 / width, f"level {level}"
