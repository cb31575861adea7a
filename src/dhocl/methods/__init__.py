"""Every method by its name on the command line. Adding one is a file here and a line below."""

from __future__ import annotations

from typing import NamedTuple

from dhocl.learner import Learner
from dhocl.methods.acil import ACIL, AnalyticSettings
from dhocl.methods.cbrs import CBRS
from dhocl.methods.ccl_dc import CCLDC, CclDcSettings
from dhocl.methods.clib import CLIB, ClibSettings
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.ewc import EWC, EwcSettings
from dhocl.methods.finetune import Finetune
from dhocl.methods.gacil import GACIL, GacilSettings
from dhocl.methods.gss import GSS, GssSettings
from dhocl.methods.halo import HALO, HaloSettings
from dhocl.methods.icarl_sdc import ICaRL, IcarlSettings
from dhocl.methods.icicle import ICICLE, IcicleSettings
from dhocl.methods.joint import Joint, JointSettings
from dhocl.methods.lwf import LwF, LwfSettings
from dhocl.methods.mir import MIR, MirSettings
from dhocl.methods.nsce import NsCE, NsceSettings
from dhocl.methods.onlora import OnLoRA, OnLoraSettings
from dhocl.methods.onpro import OnPro, OnProSettings
from dhocl.methods.plfms import PLFMS, PlfmsSettings
from dhocl.methods.rm import RM, RmSettings
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
    "mir": Method(MIR, MirSettings, "replays what the coming step would hurt most", "Aljundi et al. 2019a"),
    "gss": Method(GSS, GssSettings, "keeps items whose gradients disagree", "Aljundi et al. 2019b"),
    "clib": Method(CLIB, ClibSettings, "keeps what lowers the others' loss, trains on memory alone", "Koh et al. 2022"),
    "rm": Method(RM, RmSettings, "re-chooses its memory from sure to unsure", "Bang et al. 2021"),
    "plfms": Method(
        PLFMS, PlfmsSettings, "CLIB with pseudo-labels for balance, spares classes just met", "Lee et al. 2023"
    ),
    "icarl_sdc": Method(
        ICaRL,
        IcarlSettings,
        "nearest class means that follow the drift of the features",
        "Rebuffi et al. 2017; Yu et al. 2020",
    ),
    "lwf": Method(LwF, LwfSettings, "distils an earlier copy of the network", "Li and Hoiem 2016"),
    "ewc": Method(EWC, EwcSettings, "holds the weights that mattered (EWC++)", "Chaudhry et al. 2018"),
    "icicle": Method(ICICLE, IcicleSettings, "prototypical parts held to where they looked", "Rymarczyk et al. 2023"),
    "acil": Method(ACIL, AnalyticSettings, "recursive ridge regression on frozen features", "Zhuang et al. 2022"),
    "gacil": Method(GACIL, GacilSettings, "the same on randomly widened features", "Zhuang et al. 2024"),
    "onpro": Method(OnPro, OnProSettings, "online prototypes held apart, confused classes mixed", "Wei et al. 2023"),
    "nsce": Method(NsCE, NsceSettings, "spread-out classifier, replay seldom but thorough", "Wang et al. 2024a"),
    "ccl_dc": Method(CCLDC, CclDcSettings, "two networks teach each other harder views", "Wang et al. 2024b"),
    "onlora": Method(
        OnLoRA, OnLoraSettings, "low-rank changes of a frozen backbone, merged at plateaus", "Wei et al. 2025"
    ),
    "finetune": Method(Finetune, ReplaySettings, "no memory: the floor", "-"),
    "joint": Method(Joint, JointSettings, "everything kept, trained over and over: the ceiling", "-"),
}
