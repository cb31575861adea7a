"""What the grids of recipes are made for: scales, their data sets, and any other data set."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import ceil
from typing import Any, NamedTuple

from dhocl.experiment.config import RunConfig

Fields = Mapping[str, Any]  # of a RunConfig


class Scale(StrEnum):
    """`smoke` checks that everything runs; `mini` has a tenth of the images; `full` has all, with a small network.

    `paper` is the paper's setting.
    """

    smoke = "smoke"
    mini = "mini"
    full = "full"
    paper = "paper"


class Basis(NamedTuple):
    """A scale and the data sets of a grid."""

    scale: Scale
    datasets: Mapping[str, Fields]  # by panel, which is the name of the data set if the fields have none
    images: Mapping[str, int]  # of the training part, by panel
    given: bool = False  # whether they are streams with an order of their own


SEEDS = {Scale.smoke: 1, Scale.mini: 2, Scale.full: 3, Scale.paper: 5}

DINO = "hub:Ramos-Ramos/dino-resnet-50"  # the ResNet-50 of the paper, pretrained on ImageNet
UNNAMED = "hub:"  # chosen by the user: a backbone that was not trained on images of the stream
OPTIONAL = "{backbone}"  # in the name of a row: left out if the user chooses none
SMALL = {
    "backbone": "tiny",
    "image_size": 32,
    "samples": 440,
    "test_samples": 220,
    "buffer": 60,
    "batch": 16,
    "replay_batch": 8,
}
FINE = {"batch": 8, "replay_batch": 4, "image_size": 224, "backbone": DINO}
MINI = {"samples": 6000, "test_samples": 2000, "buffer": 200}
EVALUATIONS = 32  # at full scale
IMAGES = {"cifar100": 50_000, "cub200": 5_994, "glyphs": 8_800}


def full(images: int, **fields: Any) -> dict[str, Any]:
    """Fields at full scale, with evaluations after whole batches."""
    batch = fields.get("batch", RunConfig.batch)
    steps = ceil(images * fields.get("passes", 1) / (EVALUATIONS * batch))
    return {"eval_every": steps * batch, "eval_samples": 2500} | fields


BASES: dict[Scale, dict[str, dict[str, Any]]] = {
    Scale.smoke: {"glyphs": SMALL | {"eval_every": 88}},
    Scale.mini: {
        "cifar100": MINI | {"image_size": 64},
        "cub200": MINI | {"samples": 3000, "test_samples": 1000, "image_size": 96},
        "glyphs": MINI | {"image_size": 64},
    },
    Scale.full: {
        "cifar100": full(IMAGES["cifar100"], image_size=64),
        "cub200": full(IMAGES["cub200"], image_size=96, passes=2, batch=8, replay_batch=4),
        "glyphs": full(IMAGES["glyphs"], image_size=64),
    },
    Scale.paper: {
        "cifar100": {"backbone": DINO, "image_size": 32, "eval_every": 1600},
        "aircraft": FINE | {"passes": 2},
        "cub200": FINE | {"passes": 2},
        "inaturalist2018": FINE | {"passes": 4, "buffer": 5000, "eval_every": 20000},
        "imagenet_h": FINE | {"backbone": UNNAMED, "buffer": 5000, "eval_every": 50000},
    },
}


def basis_of(scale: Scale) -> Basis:
    """The data sets of a scale."""
    return Basis(scale, BASES[scale], IMAGES)


def basis_for(scale: Scale, panel: str, dataset: str, images: int, tests: int, classes: int | None) -> Basis:
    """A data set that the scale does not have.

    Args:
        scale: decides the size of the images and of the stream.
        panel: name in tables.
        dataset: as in a `RunConfig`.
        images: in the training part.
        tests: images in the test part.
        classes: of the finest level; None for a stream with an order of its own, which has no groups.

    >>> basis_for(Scale.full, "folder birds", "folder", 9000, 3000, classes=40).datasets["folder birds"]
    {'dataset': 'folder', 'eval_every': 288, 'eval_samples': 2500, 'image_size': 96}
    """
    usual: dict[Scale, dict[str, Any]] = {
        Scale.smoke: SMALL,
        Scale.mini: MINI | {"image_size": 96},
        Scale.full: full(images, image_size=96),
        Scale.paper: FINE,
    }
    there = {"samples": images, "test_samples": tests, "eval_samples": tests}
    # A part is asked for only if it is smaller than the whole.
    fields = {name: value for name, value in usual[scale].items() if name not in there or value < there[name]}
    if classes is not None and classes < RunConfig.groups:
        fields["groups"] = classes
    return Basis(scale, {panel: {"dataset": dataset} | fields}, {panel: images}, given=classes is None)
