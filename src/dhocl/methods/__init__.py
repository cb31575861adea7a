"""All methods by name. To add one, add a file here and a line below."""

from __future__ import annotations

from typing import NamedTuple

from dhocl.core.settings import Settings
from dhocl.methods.acil import ACIL, AnalyticSettings
from dhocl.methods.amber import Amber, AmberSettings
from dhocl.methods.amber_plus import AmberPlus, AmberPlusSettings
from dhocl.methods.cbrs import CBRS
from dhocl.methods.ccl_dc import CCLDC, CclDcSettings
from dhocl.methods.clib import CLIB, ClibSettings
from dhocl.methods.derpp import DERpp, DerppSettings
from dhocl.methods.er import ER, ReplaySettings
from dhocl.methods.er_ace import ERACE
from dhocl.methods.ewc import EWC, EwcSettings
from dhocl.methods.finetune import Finetune, FinetuneSettings
from dhocl.methods.gacil import GACIL, GacilSettings
from dhocl.methods.gdumb import GDumb, GdumbSettings
from dhocl.methods.gss import GSS, GssSettings
from dhocl.methods.halo import HALO, HaloSettings, PrintedSettings
from dhocl.methods.icarl_sdc import ICaRL, IcarlSettings
from dhocl.methods.icicle import ICICLE, IcicleSettings
from dhocl.methods.joint import Joint, JointSettings
from dhocl.methods.lwf import LwF, LwfSettings
from dhocl.methods.mir import MIR, MirSettings
from dhocl.methods.ncm import NCM, NcmSettings
from dhocl.methods.nsce import NsCE, NsceSettings
from dhocl.methods.onlora import OnLoRA, OnLoraSettings
from dhocl.methods.onpro import OnPro, OnProSettings
from dhocl.methods.plfms import PLFMS, PlfmsSettings
from dhocl.methods.ranpac import RanPAC, RanpacSettings
from dhocl.methods.rm import RM, RmSettings
from dhocl.methods.slda import SLDA, SldaSettings
from dhocl.nn.learner import Learner


class Method(NamedTuple):
    learner: type[Learner]  # called with (Setup, settings)
    settings: type[Settings]
    summary: str
    origin: str


METHODS: dict[str, Method] = {
    "amber": Method(Amber, AmberSettings, "ridge on frozen stages, labels completed", "this project"),
    "amber_plus": Method(AmberPlus, AmberPlusSettings, "AMBER on a network trained at first", "this project"),
    "halo": Method(HALO, HaloSettings, "linear and analytic heads, prototypes", "Wang, ICML 2026"),
    "er": Method(ER, ReplaySettings, "replay from a reservoir", "Rolnick, NeurIPS 2019"),
    "er_ace": Method(ERACE, ReplaySettings, "softmax over present classes on the stream", "Caccia, ICLR 2022"),
    "derpp": Method(DERpp, DerppSettings, "replays labels and stored logits", "Buzzega, NeurIPS 2020"),
    "gdumb": Method(GDumb, GdumbSettings, "trains anew on a balanced memory alone", "Prabhu, ECCV 2020"),
    "cbrs": Method(CBRS, ReplaySettings, "replay from a class-balanced reservoir", "Chrysakis, ICML 2020"),
    "mir": Method(MIR, MirSettings, "replays items whose loss would rise most", "Aljundi, NeurIPS 2019"),
    "gss": Method(GSS, GssSettings, "stores items with diverse gradients", "Aljundi, NeurIPS 2019"),
    "clib": Method(CLIB, ClibSettings, "stores items that lower the loss most", "Koh, ICLR 2022"),
    "rm": Method(RM, RmSettings, "stores items of all uncertainties", "Bang, CVPR 2021"),
    "plfms": Method(PLFMS, PlfmsSettings, "CLIB with pseudo-labels for balance", "Lee, ICCV 2023"),
    "icarl_sdc": Method(ICaRL, IcarlSettings, "nearest class mean with drift compensation", "Rebuffi 2017, Yu 2020"),
    "lwf": Method(LwF, LwfSettings, "distillation from a network snapshot", "Li, ECCV 2016"),
    "ewc": Method(EWC, EwcSettings, "penalty on important weights (EWC++)", "Chaudhry, ECCV 2018"),
    "icicle": Method(ICICLE, IcicleSettings, "prototypical parts, distilled similarities", "Rymarczyk, ICCV 2023"),
    "acil": Method(ACIL, AnalyticSettings, "recursive ridge on frozen features", "Zhuang, NeurIPS 2022"),
    "gacil": Method(GACIL, GacilSettings, "ACIL with a random ReLU expansion", "Zhuang, NeurIPS 2024"),
    "ncm": Method(NCM, NcmSettings, "nearest class mean on frozen features", "Mensink, TPAMI 2013"),
    "slda": Method(SLDA, SldaSettings, "streaming linear discriminant analysis", "Hayes, CVPRW 2020"),
    "ranpac": Method(RanPAC, RanpacSettings, "ridge on a random projection, tuned online", "McDonnell 2023"),
    "onpro": Method(OnPro, OnProSettings, "prototype contrast, mixup by confusion", "Wei, ICCV 2023"),
    "nsce": Method(NsCE, NsceSettings, "non-sparse classifier, rare full replay", "Wang, NeurIPS 2024"),
    "ccl_dc": Method(CCLDC, CclDcSettings, "two networks distil each other", "Wang, CVPR 2024"),
    "onlora": Method(OnLoRA, OnLoraSettings, "LoRA, merged at loss plateaus", "Wei, WACV 2025"),
    "halo_printed": Method(HALO, PrintedSettings, "HALO as published", "Wang, ICML 2026"),
    "finetune": Method(Finetune, FinetuneSettings, "no memory: lower bound", "-"),
    "joint": Method(Joint, JointSettings, "stores everything: upper bound", "-"),
}
