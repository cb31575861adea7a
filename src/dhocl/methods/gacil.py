"""Generalised analytic continual learning (GACL, Zhuang et al. 2024).

GACL extends ACIL's formula by the labels of classes from earlier phases, which makes the recursion equal to ridge
regression on all samples. ACIL's code does this too. So here GACL differs only in its random ReLU expansion.
"""

from __future__ import annotations

from dataclasses import dataclass

from dhocl.methods.acil import ACIL, AnalyticSettings


@dataclass(frozen=True)
class GacilSettings(AnalyticSettings):
    """As in the authors' repository: 5,000 units and γ = 100, which is γ = 0.12 for expanded features of unit length.

    There, the features come from a layer norm (length √d) and the weights have variance 1 / 3d, so |φ|² is about
    5000 / 6. With longer features this γ would be negligible: accuracy halves when there are as many samples as units.
    """

    expansion: int = 5000
    gamma: float = 0.12


class GACIL(ACIL):
    pass
