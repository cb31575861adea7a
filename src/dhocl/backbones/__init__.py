"""Backbones: networks that turn pixels into features, by name, from a hub, or your own.

>>> import torch
>>> backbone = load("tiny")
>>> features, fmap = backbone(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
>>> features.shape, fmap.shape
(torch.Size([2, 64]), torch.Size([2, 64, 2, 2]))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from dhocl.backbones.base import IMAGENET_MEAN, IMAGENET_STD, Backbone, frozen
from dhocl.backbones.efficientnet import efficientnet_lite0
from dhocl.backbones.hub import hub
from dhocl.backbones.parts import side_by_side
from dhocl.backbones.simple import tiny, wrap
from dhocl.errors import InputError

__all__ = ["BACKBONES", "IMAGENET_MEAN", "IMAGENET_STD", "Backbone", "frozen", "load", "side_by_side", "wrap"]

HUB = "hub:"


class Entry(NamedTuple):
    build: Callable[[], Backbone]
    about: str


BACKBONES: dict[str, Entry] = {
    "efficientnet_lite0": Entry(efficientnet_lite0, "ImageNet weights that come with pip; 1280 features"),
    "tiny": Entry(tiny, "three convolutions, random, untrained: for tests; 64 features"),
}


def load(name: str) -> Backbone:
    """A fresh backbone, in evaluation mode: a name in BACKBONES, or `hub:` and a model's name or folder.

    It is on a GPU where there is one (CUDA_VISIBLE_DEVICES= hides it). Weights that no file holds are drawn from a
    fixed seed, so loading twice gives the same network, and the global generator stays as it was.
    """
    if not name.startswith(HUB) and name not in BACKBONES:
        raise InputError(f"no backbone {name!r}: choose from {', '.join(BACKBONES)} or hub:<name>")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        backbone = hub(name.removeprefix(HUB)) if name.startswith(HUB) else BACKBONES[name].build()
    if torch.cuda.is_available():
        torch.backends.cudnn.deterministic = True  # the same seed, the same run
        backbone = backbone.to("cuda")
    return backbone
