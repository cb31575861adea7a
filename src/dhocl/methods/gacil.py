"""Generalised analytic continual learning (GACL, Zhuang et al. 2024).

What GACL adds to ACIL's formula, the labels of classes met before, makes the recursion exactly that of ridge regression
on everything seen. ACIL's own code has it too, so the two rows differ in what remains: GACL widens the features by a
random ReLU layer and regularises them strongly.
"""

from __future__ import annotations

from dataclasses import dataclass

from dhocl.methods.acil import ACIL, AnalyticSettings


@dataclass(frozen=True)
class GacilSettings(AnalyticSettings):
    """As in its repository: 5,000 units, γ = 100, features as they are."""

    expansion: int = 5000
    gamma: float = 100.0
    normalise: bool = False


class GACIL(ACIL):
    pass
