"""Grids that are more than rows x data sets."""

from __future__ import annotations

import dataclasses
from math import inf

from dhocl.experiment.recipes.basis import DINO, OPTIONAL, UNNAMED, Basis, Scale
from dhocl.experiment.recipes.printed import ALL
from dhocl.experiment.recipes.recipe import GridCell, config, grid, panels
from dhocl.experiment.recipes.rows import BEST, CLAIMED, CONDITIONS, EFFORT, HEADS, Rows, methods
from dhocl.methods import METHODS

CORE = ("halo", "halo_printed", "er", "acil", "gacil", "nsce", "slda", "ranpac", "amber")  # have all seeds
# More than five times the cost of replay. In short streams, so are rounds of training over the memory.
LONG = ("ccl_dc", "joint", "rm, 4 epochs", "onpro, 4 rotations", "nsce, every 100")
LONG_ON = dict.fromkeys(("cub200", "glyphs"), ("rm", "gdumb"))
COMPARED = ("halo", "er", "acil", "amber")
LITE = {"EfficientNet-Lite0": "efficientnet_lite0", "EfficientNet-Lite2": "efficientnet_lite2"}
HUB = {
    "ViT-B CLIP": "hub:openai/clip-vit-base-patch16",
    "ViT-B DINO": "hub:facebook/dino-vitb16",
    "ViT-B MAE": "hub:facebook/vit-mae-base",
    "ResNet-50 supervised": "hub:microsoft/resnet-50",
    "ResNet-50 DINO": DINO,
}


def backbones(basis: Basis) -> list[GridCell]:
    """Below paper scale, also with backbones that the user names."""
    names, kinds = ("er", "acil", "halo", "amber"), LITE | {OPTIONAL: UNNAMED}
    if basis.scale is Scale.smoke:
        kinds = {"untrained": "tiny"} | kinds
    if basis.scale is Scale.paper:
        names, kinds = ("acil", "ccl_dc", "halo", "amber"), HUB
    return [
        GridCell(panel, f"{method} {kind}", config(basis, panel, method, backbone=name))
        for panel in panels(basis, "aircraft", "inaturalist2018")
        for method in names
        for kind, name in kinds.items()
    ]


def imagenet_h(basis: Basis) -> list[GridCell]:
    """At scales without ImageNet, the same grid on another data set."""
    return [
        GridCell(f"{panel}, {groups} groups", method, config(basis, panel, method, groups=groups))
        for panel in panels(basis, "imagenet_h")
        for groups in (10, 20)
        for method in ("er", "acil", "nsce", "ccl_dc", "halo")
    ]


def hle(basis: Basis) -> list[GridCell]:
    """As in the paper of HLE, no links are known."""
    shapes: Rows = {"single": {"groups": 5}, "dual": {"groups": 5}, "multi": {}}
    return [
        GridCell(
            f"{panel}, {shape}", method, config(basis, panel, method, scenario=f"hle_{shape}", delay=inf, **groups)
        )
        for panel in panels(basis, "cifar100")
        for shape, groups in shapes.items()
        for method in ("er", "plfms", "acil", "halo")
    ]


def everything(basis: Basis) -> list[GridCell]:
    rows: Rows = {**methods(*METHODS), "amber, doubled side": BEST["amber, doubled side"], "predla": HEADS["predla"]}
    cells = grid(*ALL, "glyphs", rows=rows | EFFORT)(basis)
    if basis.scale is Scale.full:
        cells = [cell._replace(seeds=None if cell.config.method in CORE else 1) for cell in cells]
    return long_apart(cells, basis)


def best(basis: Basis) -> list[GridCell]:
    return long_apart(grid("cifar100", "cub200", "glyphs", rows=BEST)(basis), basis)


def long_apart(cells: list[GridCell], basis: Basis) -> list[GridCell]:
    """At full scale, long rows and those of COMPARED learn a fifth of the stream, in a panel of their own."""
    if basis.scale is not Scale.full:
        return cells
    long = [cell for cell in cells if cell.row in LONG or cell.row in LONG_ON.get(cell.panel, ())]
    parts = [cell for cell in cells if cell in long or cell.row in COMPARED]
    return [cell for cell in cells if cell not in long] + [_fifth(cell, basis) for cell in parts]


def _fifth(cell: GridCell, basis: Basis) -> GridCell:
    images = basis.images[cell.panel] // 5
    part = dataclasses.replace(cell.config, samples=images)
    return GridCell(f"{cell.panel}, {images:,} images", cell.row, part, seeds=1)


def conditions(basis: Basis) -> list[GridCell]:
    """Methods that store no images are the same with any buffer. At full scale, only some rows have three seeds."""
    full = basis.scale is Scale.full
    return [
        GridCell(
            f"{panel}, {condition}",
            method,
            config(basis, panel, method, **fields),
            seeds=2 if full and condition not in CLAIMED[method] else None,
        )
        for panel in panels(basis, "cifar100")
        for condition, fields in CONDITIONS.items()
        for method in ("halo", "er", "acil", "amber")
        if ("buffer" not in fields or method in ("halo", "er")) and not (full and condition == "1 group")
    ]
