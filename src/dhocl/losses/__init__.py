"""Losses as pure functions."""

from dhocl.losses.contrastive import hcon, supcon
from dhocl.losses.hierarchical import chained, hxe, sibling_log_softmax, soft_ce, soft_labels
from dhocl.losses.levels import (
    given_nll,
    haf,
    jensen_shannon,
    js_consistency,
    mixture_nll,
    multi_ce,
)

__all__ = [
    "chained",
    "given_nll",
    "haf",
    "hcon",
    "hxe",
    "jensen_shannon",
    "js_consistency",
    "mixture_nll",
    "multi_ce",
    "sibling_log_softmax",
    "soft_ce",
    "soft_labels",
    "supcon",
]
