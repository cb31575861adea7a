"""Rows of the recipes: what is compared in each."""

from __future__ import annotations

from typing import Any

Rows = dict[str, dict[str, Any]]
LOSSES: Rows = {
    loss: {"method": "er", "settings": {"loss": loss} if loss != "haf" else {}}
    for loss in ("multi_ce", "hxe", "soft_ce", "haf", "hcon")
}
MIDDLE_MAP = {"adapter": True, "lr_prototypes": 3e-3, "map_stride": 16}
HEADS: Rows = {
    "linear": {"method": "halo", "settings": {"heads": "linear", "hpr": False}},
    "analytic": {"method": "acil"},
    "icicle": {"method": "icicle"},
    "predla": {"method": "halo", "settings": {"hpr": False}},
    "halo": {"method": "halo"},
    "halo, middle map": {"method": "halo", "settings": MIDDLE_MAP},
    "halo_printed": {"method": "halo_printed"},
}
# Methods whose authors train more than one step per batch, closer to them: nsce as much as they do, rm 4 of their 256
# epochs, onpro 4 turns of an image of their 16 copies.
EFFORT: Rows = {
    "rm, 4 epochs": {"method": "rm", "settings": {"memory_epochs": 4}},
    "onpro, 4 rotations": {"method": "onpro", "settings": {"rotations": 4}},
    "nsce, every 100": {"method": "nsce", "settings": {"every": 100}},
}
DOUBLED = {"side": 2.0, "mirror": False}
BEST: Rows = {
    **{name: {"method": name} for name in ("halo", "acil", "ncm", "slda", "ranpac", "er", "er_ace", "derpp", "gdumb")},
    "amber": {"method": "amber"},
    "amber, doubled side": {"method": "amber", "settings": DOUBLED},
    "amber_plus": {"method": "amber_plus"},
    "joint": {"method": "joint"},
}
PARTS: Rows = {
    name: {"method": "amber", "settings": settings}
    for name, settings in {
        "amber": {},
        "one penalty": {"adapt": False},
        "final features alone": {"stages": 0.0},
        "no mirror images": {"mirror": False},
        "no completion": {"completion": "never"},
        "no balance": {"balance": 0.0},
        "no doubt": {"doubt": False},
    }.items()
} | {
    "acil": {"method": "acil"},
    "acil, stages": {"method": "acil", "settings": {"stages": 0.5}},
    "acil, balance": {"method": "acil", "settings": {"balance": 0.5}},
    **{f"{name}, both": {"method": name, "settings": {"stages": 0.5, "balance": 0.5}} for name in ("acil", "gacil")},
}
CONDITIONS: Rows = {
    "as it is": {},
    **{f"buffer {size}": {"buffer": size} for size in (100, 5000)},
    **{f"delay {batches}": {"delay": float(batches)} for batches in (10, 50)},
    **{f"{n} group{'s' if n > 1 else ''}": {"groups": n} for n in (1, 5, 50)},
    **{f"vacant {p} %": {"vacant": p / 100} for p in (20, 40)},
    **{f"noise {p} %": {"noise": p / 100} for p in (20, 40)},
}
LINKS = ("as it is", "delay 50", "vacant 40 %", "noise 40 %")
GROUPS = ("as it is", "5 groups", "50 groups")
CLAIMED: dict[str, tuple[str, ...]] = {  # conditions that the claims compare
    "halo": (*LINKS, "buffer 100", "buffer 5000"),
    "amber": LINKS,
    "er": GROUPS,
    "acil": GROUPS,
}
TUNED: dict[str, tuple[float, ...]] = {
    "lambda": (0.1, 1, 10, 100),
    "delta": (0.1, 0.5, 1, 2),
    "gamma": (0.1, 0.3, 1, 10),
    "prototypes": (1, 3, 5, 10),
    "top_patches": (0.02, 0.1, 0.5),  # the paper's K
    "margin": (0.05, 0.1, 0.3),
}
NEEDED: Rows = {"delta": {"mixing": "replay"}}  # settings that have an effect only with another
SENSITIVITY: Rows = {
    f"{name} {value:g}": {"method": "halo", "settings": {name: value} | NEEDED.get(name, {})}
    for name, values in TUNED.items()
    for value in values
}
PROTOTYPES: Rows = {
    name: {"method": "halo", "settings": settings}
    for name, settings in {
        "halo": {},
        "no prototypes": {"hpr": False},
        "prototypes do not predict": {"prototypes_predict": False},
        "adapter": {"adapter": True, "lr_prototypes": 3e-3},
        "adapter, middle map": MIDDLE_MAP,
        "rate of the backbone": {"lr_prototypes": 1e-4},
        "no regulariser": {"lambda": 0.0},
    }.items()
}


def methods(*names: str) -> Rows:
    return {name: {"method": name} for name in names}
