"""Learners on vectors of features in place of images: tests of what is learned of them need no network."""

from __future__ import annotations

from dhocl.nn import backbones
from dhocl.nn.learner import Setup


def vector_setup(dim: int) -> Setup:
    """For images (B, dim, 1, 1)."""
    return Setup(backbones.load(f"features:{dim}"), buffer=0, replay_batch=0, flip=False, seed=0)
