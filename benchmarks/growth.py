"""How costs grow with the number of classes, nodes, stored images and pairs."""

from __future__ import annotations

import resource
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from halo_step import SIZE, Step
from timing import Row, milliseconds, take_turns
from worlds import World, full_tree, grow, names

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy
from dhocl.nn import backbones
from dhocl.nn.heads.analytic import AnalyticHead
from dhocl.nn.heads.linear import LinearHeads
from dhocl.nn.heads.prototypes import HprSettings, Prototypes
from dhocl.nn.memory import Reservoir
from dhocl.nn.optim import Optimizer


def megabytes() -> float:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def steps(quick: bool) -> list[Row]:
    """Time of HALO's step by number of known classes; all sizes are measured alternately."""
    sizes = [(100, 3), (1000, 7)] if quick else [(n, levels) for levels in (3, 7) for n in (100, 1000, 10_000)]
    backbone = backbones.load("efficientnet_lite0")
    ours = {(n, levels): Step(World(full_tree(n, levels), SIZE), backbone) for n, levels in sizes}
    spent = take_turns({f"{n}x{levels}": step.step for (n, levels), step in ours.items()}, 3 if quick else 7)
    told = []
    for (classes, levels), step in ours.items():
        size = f"{classes}x{levels}"
        took = float(np.median(spent[size]))
        state = sum(t.nbytes for t in _tensors(step.learner.state_dict())) / 1e6
        told.append(
            Row(
                f"HALO's step, {classes:,} classes, {levels} levels",
                f"{took:.0f} ms, state {state:.0f} MB",
                {f"step_ms_{size}": took, f"state_mb_{size}": state},
            )
        )
    return told


def taxonomy(quick: bool) -> list[Row]:
    told = []
    for size in (10**3, 10**5) if quick else (10**3, 10**4, 10**5, 10**6):
        labels = names(round(size * 0.86), 7)
        before = megabytes()
        began = time.perf_counter()
        tree = grow(labels)
        tree.complete(torch.tensor([0]))  # the links are worked off by who needs them first
        rate = len(tree) / (time.perf_counter() - began)
        grown = megabytes() - before
        y = torch.from_numpy(np.random.default_rng(0).integers(0, len(tree), 1024))
        complete = float(np.median(take_turns({"complete": partial(tree.complete, y)}, 20)["complete"]))
        one = milliseconds(partial(_add_one, tree), 20)
        middle = milliseconds(partial(_reparent, tree))
        numbers = {f"taxonomy_nodes_per_second_{size}": rate, f"complete_ms_{size}": complete}
        if size == (10**5 if quick else 10**6):
            numbers |= {"taxonomy_nodes_per_second": rate, "complete_ms": complete}
        told.append(
            Row(
                f"taxonomy of {len(tree):,} nodes, 7 levels",
                f"{rate:,.0f} nodes/s added and linked, 1,024 labels completed in {complete:.3f} ms, "
                f"one class more in {one:.3f} ms, one that takes over 1,000 others in {middle:.1f} ms, {grown:.0f} MB",
                numbers | {f"add_one_ms_{size}": one, f"reparent_1000_ms_{size}": middle},
            )
        )
    return told


def _add_one(tree: Taxonomy) -> None:
    """Add and link a class, then complete a batch."""
    finest = tree.levels[-1]
    node = tree.add(Label(f"new {len(tree)}", finest))
    tree.link(node, int(tree.nodes(tree.levels[-2])[0]))
    tree.complete(torch.tensor([node]))


def _reparent(tree: Taxonomy) -> None:
    """A thousand classes get an intermediate class as their parent."""
    level = tree.levels[-2]
    new = tree.add(Label(f"between {len(tree)}", level))
    for child in tree.nodes(tree.levels[-1])[:1000].tolist():
        tree.link(child, new)
    tree.complete(torch.tensor([new]))


def one_by_one(quick: bool) -> list[Row]:
    """Add classes one by one: heads, optimizer state and analytic weights. Time per class must stay constant."""
    counts = (0, 500, 1000) if quick else (0, 2500, 5000, 10_000)
    tree, optimizer = Taxonomy(), Optimizer(0.0)
    heads = LinearHeads(1280, optimizer, 1e-3, Rng(0, "heads"))
    analytic = AnalyticHead(64, 1.0)
    features = torch.zeros(1, 1280)
    spent = []
    for start, end in pairwise(counts):
        began = time.perf_counter()
        for i in range(start, end):
            tree.add(Label(str(i), 0))
            heads.grow(tree)
            analytic.grow(i + 1)
            if i == start:
                optimizer.step(heads(features)[0].sum())  # so that there are moments to grow
        spent.append(1e6 * (time.perf_counter() - began) / (end - start))
    size = sum(t.nbytes for part in (heads, optimizer) for t in _tensors(part.state_dict())) + analytic.W.nbytes
    return [
        Row(
            f"growing from 0 to {counts[-1]:,} classes one by one",
            f"{', '.join(f'{t:.0f}' for t in spent)} µs a class (up to {', '.join(f'{n:,}' for n in counts[1:])}), "
            f"{size / 1e6:.0f} MB at the end",
            {"grow_us_first": spent[0], "grow_us_last": spent[-1], "grown_mb": size / 1e6},
        )
    ]


def memory(quick: bool) -> list[Row]:
    told = []
    for capacity in (10**3, 10**4) if quick else (10**3, 10**4, 10**5, 10**6):
        buffer = Reservoir(capacity, Rng(0, "memory"))
        x = torch.zeros((32, 3, 32, 32), dtype=torch.uint8)
        y = torch.zeros(32, dtype=torch.long)
        buffer.insert(x=x, y=y)
        for column in buffer.columns.values():
            column.zero_()  # really in memory
        buffer.size = buffer.seen = capacity
        spent = take_turns({"insert": partial(buffer.insert, x=x, y=y), "sample": partial(buffer.sample, 16)}, 9, 50)
        insert, sample = (float(np.median(spent[name])) for name in ("insert", "sample"))
        size = sum(column.nbytes for column in buffer.columns.values())
        told.append(
            Row(
                f"memory of {capacity:,} images of 32 px",
                f"insert 32 in {insert:.3f} ms, sample 16 in {sample:.3f} ms, {size / 1e6:,.0f} MB",
                {f"insert_ms_{capacity}": insert, f"sample_ms_{capacity}": sample},
            )
        )
    return told


def alignment(quick: bool) -> list[Row]:
    """Alignment and drift, forward and backward, by number of pairs of a class and an ancestor."""
    told = []
    for classes, levels in ((100, 3), (1000, 7)) if quick else ((100, 3), (1000, 3), (1000, 7), (10_000, 7)):
        tree = full_tree(classes, levels)
        optimizer = Optimizer(0.0)
        prototypes = Prototypes(320, HprSettings(), optimizer, 0)  # the last map of EfficientNet-Lite0 at 64 px
        patches = torch.randn(48, 4, 320, requires_grad=True)
        prototypes.grow(patches, torch.full((48, levels), UNKNOWN), tree)
        for _ in range(20):
            prototypes.tick()
        pairs = sum(n * place for place, n in enumerate(tree.widths.values()))
        took = float(np.median(take_turns({"both": partial(_regularise, prototypes, patches, tree)}, 5)["both"]))
        size = sum(t.nbytes for t in _tensors(prototypes.state_dict())) / 1e6
        told.append(
            Row(
                f"alignment and drift, {pairs:,} pairs ({classes:,} classes, {levels} levels)",
                f"{took:.1f} ms, prototypes {size:.0f} MB",
                {f"alignment_ms_{classes}x{levels}": took, f"prototypes_mb_{classes}x{levels}": size},
            )
        )
    return told


def _regularise(prototypes: Prototypes, patches: torch.Tensor, tree: Taxonomy) -> None:
    unlabelled = torch.full((len(patches), len(tree.levels)), UNKNOWN)
    losses = prototypes.losses(patches, unlabelled, tree)
    (losses.alignment + losses.drift).backward()  # type: ignore[no-untyped-call]


def _tensors(state: object) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    if isinstance(state, dict):
        return [tensor for value in state.values() for tensor in _tensors(value)]
    return []
