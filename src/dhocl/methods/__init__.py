"""Every method by its name on the command line. Adding one is a file here and a line below."""

from __future__ import annotations

from typing import NamedTuple

from dhocl.learner import Learner
from dhocl.methods.acil import ACIL, AnalyticSettings
from dhocl.methods.cbrs import CBRS
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.ewc import EWC, EwcSettings
from dhocl.methods.finetune import Finetune
from dhocl.methods.gacil import GACIL, GacilSettings
from dhocl.methods.halo import HALO, HaloSettings
from dhocl.methods.joint import Joint, JointSettings
from dhocl.methods.lwf import LwF, LwfSettings
from dhocl.methods.mir import MIR, MirSettings
from dhocl.settings import Settings


class Method(NamedTuple):
    learner: type[Learner]  # called with (Setup, settings)
    settings: type[Settings]
    summary: str
    origin: str


METHODS: dict[str, Method] = {
    "halo": Method(
        HALO, HaloSettings, "linear and analytic heads mixed by PredLA, hierarchical prototypes", "Wang et al. 2026"
    ),
    "er": Method(ER, ReplaySettings, "replay from a reservoir; loss by --set loss=", "Rolnick et al. 2019"),
    "cbrs": Method(CBRS, ReplaySettings, "replay from a class-balanced reservoir", "Chrysakis and Moens 2020"),
    "mir": Method(MIR, MirSettings, "replays what the coming step would hurt most", "Aljundi et al. 2019"),
    "lwf": Method(LwF, LwfSettings, "distils an earlier copy of the network", "Li and Hoiem 2016"),
    "ewc": Method(EWC, EwcSettings, "holds the weights that mattered (EWC++)", "Chaudhry et al. 2018"),
    "acil": Method(ACIL, AnalyticSettings, "recursive ridge regression on frozen features", "Zhuang et al. 2022"),
    "gacil": Method(GACIL, GacilSettings, "the same on randomly widened features", "Zhuang et al. 2024"),
    "finetune": Method(Finetune, ReplaySettings, "no memory: the floor", "-"),
    "joint": Method(Joint, JointSettings, "everything kept, trained over and over: the ceiling", "-"),
}
