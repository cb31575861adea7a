"""Backbones: networks that map pixels to features. Finds them by name, from a hub, or from your code.

>>> import torch
>>> backbone = load("tiny")
>>> features, fmap = backbone(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
>>> features.shape, fmap.shape
(torch.Size([2, 64]), torch.Size([2, 64, 2, 2]))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from dhocl.core import outside
from dhocl.core.devices import Device, find_device
from dhocl.core.errors import InputError
from dhocl.nn.backbones.base import IMAGENET_MEAN, IMAGENET_STD, Backbone, frozen
from dhocl.nn.backbones.efficientnet import efficientnet_lite0, efficientnet_lite2
from dhocl.nn.backbones.hub import hub
from dhocl.nn.backbones.parts import side_by_side
from dhocl.nn.backbones.simple import tiny, wrap
from dhocl.nn.backbones.vectors import vectors

__all__ = [
    "BACKBONES",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Backbone",
    "find_backbone",
    "frozen",
    "load",
    "side_by_side",
    "wrap",
]

HUB, FEATURES = "hub:", "features:"
Build = Callable[[], nn.Module]


class BackboneInfo(NamedTuple):
    build: Build
    summary: str


BACKBONES: dict[str, BackboneInfo] = {
    "efficientnet_lite0": BackboneInfo(efficientnet_lite0, "ImageNet weights, installed by pip; 1280 features"),
    "efficientnet_lite2": BackboneInfo(efficientnet_lite2, "ImageNet weights, of the extra lite2; 1280 features"),
    "tiny": BackboneInfo(tiny, "three untrained convolutions, for tests; 64 features"),
}


def find_backbone(backbone: str | Build) -> BackboneInfo:
    """The backbone with a name.

    One of BACKBONES, `hub:NAME`, `features:DIM`, `module:function`, or an entry point of a package.
    """
    if isinstance(backbone, str) and backbone in BACKBONES:
        return BACKBONES[backbone]
    if isinstance(backbone, str) and backbone.startswith(HUB):
        return BackboneInfo(partial(hub, backbone.removeprefix(HUB)), "a model from a hub")
    if isinstance(backbone, str) and backbone.startswith(FEATURES):
        return BackboneInfo(partial(vectors, backbone.removeprefix(FEATURES)), "feature vectors of another encoder")
    known = [*BACKBONES, "hub:NAME", "features:DIM"]
    build = outside.find(backbone, "backbone", known) if isinstance(backbone, str) else backbone
    if not callable(build):
        raise InputError(f"{backbone} is not a backbone: expected a function that returns a network, not {build!r}")
    return BackboneInfo(build, outside.first_line(build))


def load(backbone: str | Build | nn.Module, device: Device = "auto") -> Backbone:
    """A backbone in evaluation mode: a name, a function without arguments that returns a network, or a network.

    A network that is not a `Backbone` is wrapped, not copied; call `wrap` yourself to set its normalisation. Random
    weights are drawn from a fixed seed, so loading twice gives the same network. The global generator is not changed.
    `device` is one of `dhocl.core.devices`.
    """
    place = find_device(device)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        network = backbone if isinstance(backbone, nn.Module) else find_backbone(backbone).build()
    if not isinstance(network, nn.Module):
        raise InputError(f"{backbone} returned {type(network).__name__}, not an nn.Module")
    loaded = network if isinstance(network, Backbone) else wrap(network)
    return loaded.to(place)
