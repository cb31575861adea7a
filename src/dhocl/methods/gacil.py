"""Generalised analytic continual learning (GACL, Zhuang et al. 2024).

What GACL adds to ACIL's formula, the labels of classes met before, makes the recursion exactly that of ridge regression
on everything seen. ACIL's own code has it too, so the two rows differ in what remains: GACL widens the features by a
random ReLU layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from dhocl.methods.acil import ACIL, AnalyticSettings


@dataclass(frozen=True)
class GacilSettings(AnalyticSettings):
    """As in its repository: 5,000 units and γ = 100, which is 0.12 for units scaled to length 1.

    There, features of a layer norm (length √d) go through weights of variance 1 / 3d, so |φ|² is about 5000 / 6. With
    longer units γ would be next to nothing, and accuracy would drop by half where the samples are as many as units.
    """

    expansion: int = 5000
    gamma: float = 0.12


class GACIL(ACIL):
    pass
