"""Small learners of onlora, and the batches that they are trained on."""

from __future__ import annotations

from typing import Any

import torch

from dhocl.checks import setup, stream, true_tree
from dhocl.methods.onlora import OnLoRA, OnLoraSettings
from dhocl.nn.backbones import Backbone
from dhocl.nn.learner import Batch, Setup

TREE = true_tree()
EAGER = {"window": 2, "plateau_mean": 99.0, "plateau_variance": 99.0}  # merges at once, and after each peak


def known(steps: int, seed: int = 0) -> list[Batch]:
    """Batches of a stream, with the whole tree known from the start."""
    return [Batch(x, torch.tensor([TREE.id(label) for label in labels])) for x, labels in stream(steps, seed)]


def on(backbone: Backbone) -> Setup:
    return setup()._replace(backbone=backbone)


def trained(backbone: Backbone, steps: int = 4, **settings: Any) -> OnLoRA:
    learner = OnLoRA(on(backbone), OnLoraSettings(lr_backbone=1e-2, **settings))
    for batch in known(steps):
        learner.learn(batch, TREE)
    return learner
