"""Losses as pure functions."""

from dhocl.nn.losses.contrastive import hcon, supcon
from dhocl.nn.losses.hierarchical import Leaves, hxe, leaf_softmax, leaves, log_masses, soft_ce, soft_labels
from dhocl.nn.losses.levels import (
    Average,
    given_nll,
    haf,
    jensen_shannon,
    js_consistency,
    mixture_nll,
    multi_ce,
)

__all__ = [
    "Average",
    "Leaves",
    "given_nll",
    "haf",
    "hcon",
    "hxe",
    "jensen_shannon",
    "js_consistency",
    "leaf_softmax",
    "leaves",
    "log_masses",
    "mixture_nll",
    "multi_ce",
    "soft_ce",
    "soft_labels",
    "supcon",
]
