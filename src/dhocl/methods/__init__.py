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
from dhocl.methods.halo import HALO, HaloSettings, PrintedSettings
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
    "halo": Method(HALO, HaloSettings, "linear and analytic heads, prototypes", "Wang, ICML 2026"),
    "er": Method(ER, ReplaySettings, "replay from a reservoir", "Rolnick, NeurIPS 2019"),
    "cbrs": Method(CBRS, ReplaySettings, "replay from a reservoir balanced by class", "Chrysakis, ICML 2020"),
    "mir": Method(MIR, MirSettings, "replays what the next step would hurt most", "Aljundi, NeurIPS 2019"),
    "gss": Method(GSS, GssSettings, "keeps items whose gradients disagree", "Aljundi, NeurIPS 2019"),
    "clib": Method(CLIB, ClibSettings, "keeps what lowers the others' loss", "Koh, ICLR 2022"),
    "rm": Method(RM, RmSettings, "keeps items from sure to unsure", "Bang, CVPR 2021"),
    "plfms": Method(PLFMS, PlfmsSettings, "clib, balanced by pseudo-labels", "Lee, ICCV 2023"),
    "icarl_sdc": Method(ICaRL, IcarlSettings, "nearest class means that follow the drift", "Rebuffi 2017, Yu 2020"),
    "lwf": Method(LwF, LwfSettings, "distils an earlier copy of the network", "Li, ECCV 2016"),
    "ewc": Method(EWC, EwcSettings, "holds the weights that mattered (EWC++)", "Chaudhry, ECCV 2018"),
    "icicle": Method(ICICLE, IcicleSettings, "prototypical parts held to where they look", "Rymarczyk, ICCV 2023"),
    "acil": Method(ACIL, AnalyticSettings, "recursive ridge on frozen features", "Zhuang, NeurIPS 2022"),
    "gacil": Method(GACIL, GacilSettings, "the same on randomly widened features", "Zhuang, NeurIPS 2024"),
    "onpro": Method(OnPro, OnProSettings, "prototypes held apart, confused ones mixed", "Wei, ICCV 2023"),
    "nsce": Method(NsCE, NsceSettings, "spread classifier, rare thorough replay", "Wang, NeurIPS 2024"),
    "ccl_dc": Method(CCLDC, CclDcSettings, "two networks teach each other hard views", "Wang, CVPR 2024"),
    "onlora": Method(OnLoRA, OnLoraSettings, "low-rank changes, merged at plateaus", "Wei, WACV 2025"),
    "halo_printed": Method(HALO, PrintedSettings, "halo as the paper prints it", "Wang, ICML 2026"),
    "finetune": Method(Finetune, ReplaySettings, "no memory: the floor", "-"),
    "joint": Method(Joint, JointSettings, "everything kept and repeated: the ceiling", "-"),
}
