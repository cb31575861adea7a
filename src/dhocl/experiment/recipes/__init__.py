"""The experiments of the paper by name. To add one, add an entry to RECIPES."""

from __future__ import annotations

import dataclasses
from math import inf
from typing import Any

from dhocl.core.errors import InputError
from dhocl.experiment.recipes import printed
from dhocl.experiment.recipes.recipe import (
    BASES,
    DINO,
    OPTIONAL,
    SEEDS,
    UNNAMED,
    Bars,
    Curves,
    Exhibit,
    Forest,
    Front,
    GridCell,
    Growth,
    Holdings,
    Numbers,
    Recipe,
    Scale,
    Statistics,
    Structure,
    config,
    grid,
    panels,
)
from dhocl.methods import METHODS

__all__ = [
    "BASES",
    "OPTIONAL",
    "RECIPES",
    "SEEDS",
    "UNNAMED",
    "Bars",
    "Curves",
    "Exhibit",
    "Forest",
    "Front",
    "GridCell",
    "Growth",
    "Holdings",
    "Numbers",
    "Recipe",
    "Scale",
    "Statistics",
    "Structure",
    "find_recipe",
]

Rows = dict[str, dict[str, Any]]
ALL = printed.ALL
THREE = ("cifar100", "aircraft", "cub200")
FIVE = ("AAUC", "FAUC", "MS", "FFAcc", "FAAcc")
FULL = (*FIVE, "open.AAUC", "ms_mistakes", "cost_vs_er", "state_mb", "samples_per_second")
LOSSES = ("multi_ce", "hxe", "soft_ce", "haf", "hcon")
HEADS: Rows = {
    "linear": {"method": "halo", "settings": {"heads": "linear", "hpr": False}},
    "analytic": {"method": "acil"},
    "icicle": {"method": "icicle"},
    "predla": {"method": "halo", "settings": {"hpr": False}},
    "halo": {"method": "halo"},
    "halo_printed": {"method": "halo_printed"},
}
# Methods whose authors train more than one step per batch, with the settings of their authors.
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
}
CONDITIONS: Rows = {
    "as it is": {},
    **{f"buffer {size}": {"buffer": size} for size in (100, 5000)},
    **{f"delay {batches}": {"delay": float(batches)} for batches in (10, 50)},
    **{f"{n} group{'s' if n > 1 else ''}": {"groups": n} for n in (1, 5, 50)},
    **{f"vacant {p} %": {"vacant": p / 100} for p in (20, 40)},
    **{f"noise {p} %": {"noise": p / 100} for p in (20, 40)},
}
# At full scale, these have all seeds and the other methods one; those of LONG learn a fifth of the stream.
CORE = ("halo", "halo_printed", "er", "acil", "gacil", "nsce", "slda", "ranpac", "amber")
FULL_SIZES = {"cifar100": 50_000, "cub200": 5_994, "glyphs": 8_800}
LONG = ("ccl_dc", "joint", "rm, 4 epochs", "onpro, 4 rotations", "nsce, every 100")
LITE = {"untrained": "tiny", "EfficientNet-Lite0": "efficientnet_lite0", "EfficientNet-Lite2": "efficientnet_lite2"}
HUB = {
    "ViT-B CLIP": "hub:openai/clip-vit-base-patch16",
    "ViT-B DINO": "hub:facebook/dino-vitb16",
    "ViT-B MAE": "hub:facebook/vit-mae-base",
    "ResNet-50 supervised": "hub:microsoft/resnet-50",
    "ResNet-50 DINO": DINO,
}
TUNED: dict[str, tuple[float, ...]] = {
    "lambda": (0.1, 1, 10, 100),
    "delta": (0.1, 0.5, 1, 2),
    "gamma": (0.1, 1, 10),
    "prototypes": (1, 3, 5, 10),
    "top_patches": (0.02, 0.1, 0.5),  # the paper's K
    "margin": (0.05, 0.1, 0.3),
}
NEEDED: Rows = {"delta": {"mixing": "replay"}}  # settings that have an effect only with another


def methods(*names: str) -> Rows:
    return {name: {"method": name} for name in names}


def backbones(scale: Scale) -> list[GridCell]:
    """Below paper scale, also with backbones that the user names."""
    names, kinds = ("er", "acil", "halo", "amber"), LITE | {OPTIONAL: UNNAMED}
    if scale is Scale.paper:
        names, kinds = ("acil", "ccl_dc", "halo", "amber"), HUB
    return [
        GridCell(panel, f"{method} {kind}", config(scale, panel, method, backbone=name))
        for panel in panels(scale, "aircraft", "inaturalist2018")
        for method in names
        for kind, name in kinds.items()
    ]


def imagenet_h(scale: Scale) -> list[GridCell]:
    """At scales without ImageNet, the same grid on another data set."""
    return [
        GridCell(f"{panel}, {groups} groups", method, config(scale, panel, method, groups=groups))
        for panel in panels(scale, "imagenet_h")
        for groups in (10, 20)
        for method in ("er", "acil", "nsce", "ccl_dc", "halo")
    ]


def hle(scale: Scale) -> list[GridCell]:
    """As in the paper of HLE, no links are known."""
    shapes: Rows = {"single": {"groups": 5}, "dual": {"groups": 5}, "multi": {}}
    return [
        GridCell(
            f"{panel}, {shape}", method, config(scale, panel, method, scenario=f"hle_{shape}", delay=inf, **groups)
        )
        for panel in panels(scale, "cifar100")
        for shape, groups in shapes.items()
        for method in ("er", "plfms", "acil", "halo")
    ]


def everything(scale: Scale) -> list[GridCell]:
    rows: Rows = {**methods(*METHODS), "amber, doubled side": BEST["amber, doubled side"], "predla": HEADS["predla"]}
    cells = grid(*ALL, "glyphs", rows=rows | EFFORT)(scale)
    if scale is not Scale.full:
        return cells
    found = []
    for cell in cells:
        if cell.row in LONG:
            images = FULL_SIZES[cell.panel] // 5
            cell = cell._replace(config=dataclasses.replace(cell.config, samples=images))
        core = cell.config.method in CORE and cell.row not in LONG
        found.append(cell._replace(seeds=None if core else 1))
    return found


def conditions(scale: Scale) -> list[GridCell]:
    """Methods that store no images are the same with any buffer."""
    return [
        GridCell(f"{panel}, {condition}", method, config(scale, panel, method, **fields))
        for panel in panels(scale, "cifar100")
        for condition, fields in CONDITIONS.items()
        for method in ("halo", "er", "acil", "amber")
        if "buffer" not in fields or method in ("halo", "er")
    ]


RECIPES: dict[str, Recipe] = {
    "main": Recipe(
        "All methods on all data sets",
        "Table 1",
        everything,
        (Numbers(FULL, bounds=("finetune", "joint")), Front("AAUC"), Curves("accuracy")),
        printed.MAIN,
    ),
    "losses": Recipe(
        "Five hierarchical losses with experience replay",
        "Figure 2",
        grid(
            *ALL,
            "glyphs",
            rows={loss: {"method": "er", "settings": {"loss": loss} if loss != "haf" else {}} for loss in LOSSES},
        ),
        (Numbers(FULL), *(Bars(name) for name in FIVE)),
    ),
    "forgetting": Recipe(
        "Methods against forgetting",
        "Figure 3",
        grid("cifar100", "inaturalist2018", rows=methods("ewc", "lwf", "acil", "icarl_sdc", "er")),
        (Numbers(), Bars("FFAcc"), Curves("fine_accuracy")),
    ),
    "ablation": Recipe("Ablation of HALO", "Table 2", grid(*ALL, rows=HEADS), (Numbers(),), printed.ABLATION),
    "backbones": Recipe(
        "Backbones and their pretraining",
        "Table 3",
        backbones,
        (Numbers(("AAUC", "MS", "open.AAUC")),),
        printed.BACKBONES,
    ),
    "hierarchy_noise": Recipe(
        "Missing and wrong links",
        "Table 4",
        grid(
            "inaturalist2018",
            rows={
                "as it is": {"method": "halo"},
                **{f"vacant {p} %": {"method": "halo", "vacant": p / 100} for p in (20, 40)},
                **{f"noise {p} %": {"method": "halo", "noise": p / 100} for p in (20, 40)},
            },
        ),
        (Numbers(), Bars("AAUC")),
        printed.HIERARCHY_NOISE,
    ),
    "coarse_split": Recipe(
        "Groups of coarse instead of fine classes",
        "Table 6",
        grid(
            *THREE,
            rows={m: {"method": m, "split_level": 1} for m in ("er", "nsce", "ccl_dc", "acil", "halo")},
        ),
        (Numbers(),),
        printed.COARSE_SPLIT,
    ),
    "groups": Recipe(
        "The same classes in 5, 10 and 50 groups",
        "Table 7",
        grid(
            *ALL,
            rows={
                f"{method}, {groups} groups": {"method": method, "groups": groups}
                for method in ("halo", "acil", "gacil", "er")
                for groups in (5, 10, 50)
            },
        ),
        (Numbers(), Bars("FAUC")),
        printed.GROUPS,
    ),
    "buffer": Recipe(
        "Size of the replay buffer",
        "Table 8",
        grid(*THREE, rows={f"buffer {size}": {"method": "halo", "buffer": size} for size in (100, 500, 1000, 5000)}),
        (Numbers(), Bars("FAUC")),
        printed.BUFFER,
    ),
    "memory_policies": Recipe(
        "Memory policies: random, by class, by loss, by gradient",
        "Figure 10",
        grid("cifar100", "inaturalist2018", rows=methods("er", "cbrs", "clib", "gss")),
        (Numbers(), Curves("fine_accuracy"), Holdings()),
    ),
    "imagenet_h": Recipe(
        "ImageNet-H: a tree of uneven depth, padded", "Table 9", imagenet_h, (Numbers(),), printed.IMAGENET_H
    ),
    "throughput": Recipe(
        "Samples per second",
        "Figure 11",
        grid(
            "cifar100",
            rows={
                **methods(*METHODS),
                "halo without PredLA": {"method": "halo", "settings": {"heads": "linear"}},
                **EFFORT,
            },
        ),
        (Numbers(("samples_per_second", "cost_vs_er", "state_mb", "AAUC")), Bars("samples_per_second")),
    ),
    "delay": Recipe(
        "Delay of the knowledge source",
        "Table 10",
        grid(
            "cifar100",
            "inaturalist2018",
            rows={f"delay {delay}": {"method": "halo", "delay": float(delay)} for delay in (1, 10, 50)},
        ),
        (Numbers(),),
        printed.DELAY,
    ),
    "sensitivity": Recipe(
        "Sensitivity of HALO to its settings, one at a time",
        "Figures 7 and 9",
        grid(
            "cifar100",
            rows={
                f"{name} {value:g}": {"method": "halo", "settings": {name: value} | NEEDED.get(name, {})}
                for name, values in TUNED.items()
                for value in values
            },
        ),
        (Numbers(), Bars("AAUC")),
    ),
    "tree_growth": Recipe("Growth of the tree", "Figure 12", grid("cifar100", rows=methods("acil")), (Growth(),)),
    "prototype_structure": Recipe(
        "Distances between prototypes and in the tree",
        "Figures 6, 13 and 14",
        grid(
            "cifar100",
            rows={
                "with HPR": {"method": "halo"},
                "without HPR": {"method": "halo", "settings": {"lambda": 0.0}},
            },
        ),
        (Structure(),),
    ),
    "hpr": Recipe(
        "Conditions under which the prototypes of HALO help",
        "beyond the paper",
        grid(
            "cifar100",
            "cub200",
            "glyphs",
            rows={
                name: {"method": "halo", "settings": settings}
                for name, settings in {
                    "halo": {},
                    "no prototypes": {"hpr": False},
                    "prototypes do not predict": {"prototypes_predict": False},
                    "adapter": {"adapter": True, "lr_prototypes": 3e-3},
                    "adapter, middle map": {"adapter": True, "lr_prototypes": 3e-3, "map_stride": 16},
                    "rate of the backbone": {"lr_prototypes": 1e-4},
                    "no regulariser": {"lambda": 0.0},
                }.items()
            },
        ),
        (Numbers(), Bars("AAUC")),
    ),
    "best": Recipe(
        "AMBER, HALO and the methods that are closest to them",
        "beyond the paper",
        grid("cifar100", "cub200", "glyphs", rows=BEST),
        (
            Numbers(FULL, bounds=("joint",), reference="halo"),
            Forest("AAUC", "halo"),
            Forest("MS", "halo"),
            Front("AAUC"),
            Curves("accuracy"),
        ),
    ),
    "amber_parts": Recipe(
        "AMBER without one of its parts",
        "beyond the paper",
        grid("cifar100", "cub200", "glyphs", rows=PARTS),
        (Numbers((*FULL, "level_ece.-1"), reference="amber"), Forest("AAUC", "amber")),
    ),
    "conditions": Recipe(
        "Missing, wrong and late links, more and fewer groups, larger and smaller buffers",
        "beyond the paper",
        conditions,
        (Numbers(reference="halo"), Forest("AAUC", "halo")),
    ),
    "weak_features": Recipe(
        "CIFAR-100 at 32 pixels, where frozen features are weak",
        "beyond the paper",
        grid(
            "cifar100",
            rows={name: {"method": name, "image_size": 32} for name in ("halo", "er", "acil", "amber")}
            | {"amber, doubled side": {"method": "amber", "image_size": 32, "settings": DOUBLED}},
        ),
        (Numbers(FULL, reference="halo"), Curves("accuracy")),
    ),
    "learning_curves": Recipe(
        "Accuracy over the stream",
        "Figures 4 and 8",
        grid(*ALL, rows=methods("er", "icarl_sdc", "lwf", "ewc", "acil", "ccl_dc", "halo")),
        (Curves("fine_accuracy"), Curves("accuracy"), Curves("ms")),
    ),
    "iblurry": Recipe(
        "i-Blurry, one level only",
        "earlier work",
        grid(
            "cifar100",
            rows={m: {"method": m, "scenario": "iblurry", "groups": 5} for m in ("er", "clib", "acil", "halo")},
        ),
        (Numbers(("A_AUC.-1", "A_last.-1", "F_last.-1")),),
    ),
    "hle": Recipe(
        "Hierarchical label expansion: single, dual, multi-depth",
        "earlier work",
        hle,
        (Numbers(("A_AUC.-1", "A_last.-1", "F_last.-1", "A_AUC.-2", "A_last.-2", "F_last.-2")),),
    ),
    "iirc": Recipe(
        "Incremental implicitly refined classification",
        "earlier work",
        grid(
            "cifar100",
            rows={
                m: {"method": m, "scenario": "iirc", "delay": inf} for m in ("er", "icarl_sdc", "lwf", "acil", "halo")
            },
        ),
        (Numbers(("pw_js.group_ends", "A_AUC.-1", "A_last.-1", "F_last.-1")),),
    ),
    "dataset_stats": Recipe("The data sets and their trees", "Table 5", lambda scale: [], (Statistics(),)),
}


def find_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise InputError(f"there is no recipe {name!r}: choose one of {', '.join(RECIPES)}")
    return RECIPES[name]
