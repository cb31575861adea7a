"""Every method by its name on the command line. Adding one is a file here and a line below."""

from __future__ import annotations

from typing import NamedTuple

from dhocl.learner import Learner, TrainSettings
from dhocl.methods.acil import ACIL, AnalyticSettings
from dhocl.methods.er import ER
from dhocl.methods.halo import HALO, HaloSettings
from dhocl.settings import Settings


class Method(NamedTuple):
    learner: type[Learner]  # called with (Setup, settings)
    settings: type[Settings]
    summary: str
    origin: str


METHODS: dict[str, Method] = {
    "halo": Method(
        HALO,
        HaloSettings,
        "linear and analytic heads mixed by PredLA, hierarchical prototypes",
        "Wang et al. 2026",
    ),
    "er": Method(ER, TrainSettings, "experience replay from a reservoir, HAF loss", "Rolnick et al. 2019"),
    "acil": Method(
        ACIL,
        AnalyticSettings,
        "recursive ridge regression on frozen features, no memory",
        "Zhuang et al. 2022",
    ),
}
