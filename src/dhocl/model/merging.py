"""Merge models that learned apart, such as those of two museums."""

from __future__ import annotations

import torch

from dhocl.core.errors import InputError
from dhocl.core.joining import Contradiction, join
from dhocl.model.model import Model
from dhocl.nn.ledger import Ledger

ALIKE = ("levels", "method", "backbone", "image_size", "flip", "settings", "precision")


def merge(model: Model, other: Model) -> list[Contradiction]:
    """Add to `model` what `other` has learned. `other` is not changed.

    Classes of the same name and level become one. The method must be one whose statistics add up.

    Returns the links of `other` that contradict those of `model`, which are not used.

    >>> from dhocl import Label, ModelConfig
    >>> config = ModelConfig(("kind",), backbone="features:2")
    >>> here, there = Model(config), Model(config)
    >>> _ = here.observe(torch.eye(2)[:1, :, None, None], [Label("bird", 0)])
    >>> _ = there.observe(torch.eye(2)[1:, :, None, None], [Label("fish", 0)])
    >>> merge(here, there), here
    ([], Model(amber, levels kind, 2 classes))
    """
    for name in ALIKE:
        mine, theirs = getattr(model.config, name), getattr(other.config, name)
        if mine != theirs:
            raise InputError(f"these models can not be merged: `{name}` is {mine} in one, {theirs} in the other")
    tree, contradictions = join(model.taxonomy, other.taxonomy)
    nodes = torch.tensor([tree.id(label) for label in other.taxonomy.labels], dtype=torch.long)
    model.learner.absorb(other.learner, nodes, tree)
    model.curator.absorb(other.curator, nodes.tolist(), tree)
    model.ledger.absorb(other.ledger, nodes)
    model.novelty.absorb(other.novelty)
    if other.tree:
        contradictions += [each for each in model.extend(other.tree) if each not in contradictions]
    return contradictions


def strip(model: Model) -> None:
    """Drop what is stored of single samples, as far as prediction does not need it: features, labels and hashes."""
    model.learner.strip()
    model.ledger = Ledger()
