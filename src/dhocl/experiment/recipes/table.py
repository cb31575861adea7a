"""The table of recipes. To add one, add an entry."""

from __future__ import annotations

from math import inf

from dhocl.experiment.recipes import printed
from dhocl.experiment.recipes.cells import backbones, best, conditions, everything, hle, imagenet_h
from dhocl.experiment.recipes.printed import ALL
from dhocl.experiment.recipes.recipe import (
    Across,
    Bars,
    Curves,
    Forest,
    Front,
    Growth,
    Holdings,
    Numbers,
    Recipe,
    Statistics,
    Structure,
    grid,
)
from dhocl.experiment.recipes.rows import DOUBLED, EFFORT, HEADS, LOSSES, PARTS, PROTOTYPES, SENSITIVITY, methods
from dhocl.methods import METHODS

THREE = ("cifar100", "aircraft", "cub200")
FIVE = ("AAUC", "FAUC", "MS", "FFAcc", "FAAcc")
FULL = (*FIVE, "open.AAUC", "ms_mistakes", "cost_vs_er", "state_mb")
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
        grid(*ALL, "glyphs", rows=LOSSES),
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
        (Across(("AAUC", "FAUC", "MS", "open.AAUC")),),
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
        (Numbers(("samples_per_second", "cost_vs_er", "state_mb", "AAUC", "open.AAUC")), Bars("samples_per_second")),
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
        grid("cifar100", rows=SENSITIVITY),
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
        grid("cifar100", "cub200", "glyphs", rows=PROTOTYPES),
        (Numbers(), Bars("AAUC")),
    ),
    "best": Recipe(
        "AMBER, HALO and the methods that are closest to them",
        "beyond the paper",
        best,
        (
            Numbers((*FULL, "open.FAUC", "open.MS", "level_ece.-1"), bounds=("joint",), reference="halo"),
            Forest("AAUC", "halo"),
            Forest("MS", "halo"),
            Front("AAUC"),
            Curves("accuracy"),
        ),
    ),
    "amber_parts": Recipe(
        "AMBER without one of its parts, and ACIL with some of them",
        "beyond the paper",
        grid("cifar100", "cub200", "glyphs", rows=PARTS),
        (Numbers((*FULL, "level_ece.-1"), reference="amber"), Forest("AAUC", "amber")),
    ),
    "conditions": Recipe(
        "Missing, wrong and late links, more and fewer groups, larger and smaller buffers",
        "beyond the paper",
        conditions,
        (Across(("AAUC", "FAUC", "MS"), reference="halo"),),
    ),
    "weak_features": Recipe(
        "CIFAR-100 at 32 pixels, where frozen features are weak",
        "beyond the paper",
        grid(
            "cifar100",
            rows={name: {"method": name, "image_size": 32} for name in ("halo", "er", "acil", "amber", "amber_plus")}
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
    "dataset_stats": Recipe("The data sets and their trees", "Table 5", lambda basis: [], (Statistics(),)),
}
