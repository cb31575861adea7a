from __future__ import annotations

from collections.abc import Callable

import pytest

from dhocl.checks import CHECKS, Factory
from dhocl.config import find_method, method_settings
from dhocl.methods import METHODS

VARIANTS = {
    **{name: (name, {}) for name in METHODS},
    "halo, PredLA alone": ("halo", {"hpr": False}),
    "halo, linear alone": ("halo", {"heads": "linear"}),
    "halo, analytic alone": ("halo", {"heads": "analytic", "hpr": False}),
    "halo, the paper's letter": ("halo", {"letter": True, "anchor": False, "normalise": False}),
    "acil, expanded": ("acil", {"expansion": 96}),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("variant", VARIANTS)
def test_conformance(variant: str, check: Callable[[Factory], None]) -> None:
    name, chosen = VARIANTS[variant]
    check(lambda setup: find_method(name).learner(setup, method_settings(name, chosen)))
