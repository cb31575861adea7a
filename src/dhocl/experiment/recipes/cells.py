"""Grids that are more than rows x data sets."""

from __future__ import annotations

import dataclasses
from math import inf

from dhocl.experiment.recipes.printed import ALL
from dhocl.experiment.recipes.recipe import DINO, OPTIONAL, UNNAMED, GridCell, Scale, config, grid, panels
from dhocl.experiment.recipes.rows import BEST, CONDITIONS, EFFORT, HEADS, Rows, methods
from dhocl.methods import METHODS

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
