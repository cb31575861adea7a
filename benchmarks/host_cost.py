"""Overhead of the framework: plain replay on a linear model, compared with a hand-written loop of the same maths."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import avalanche_cost
import numpy as np
import torch
import torch.nn.functional as F
from timing import Row, afresh, excess, ratio
from torch import Tensor, nn
from worlds import BATCH, REPLAY, World, full_tree, make_learner

from dhocl.core.taxonomy import Taxonomy
from dhocl.knowledge import Curator, Oracle
from dhocl.nn.backbones import Backbone
from dhocl.nn.learner import Batch

SIZE = 32
BUFFER = 1000


class Pixels(Backbone):
    """Normalised pixels as features: with the heads on top, a linear model."""

    def __init__(self) -> None:
        super().__init__(3 * SIZE * SIZE, {1: 3}, mean=(0.5,) * 3, std=(0.25,) * 3)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.flatten(1), x


class BareLoop:
    """Replay with reservoir, crop, flip, normalise, cross-entropy at each level and agreement between levels (HAF)."""

    def __init__(self, tree: Taxonomy) -> None:
        self.rng = np.random.default_rng(0)
        dim = 3 * SIZE * SIZE
        self.heads = [nn.Linear(dim, width) for width in tree.widths.values()]
        parameters = [p for head in self.heads for p in head.parameters()]
        self.adam = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-4, fused=True)
        self.parents = [tree.parents(level) for level in tree.levels[1:]]
        self.x = torch.empty((BUFFER, 3, SIZE, SIZE), dtype=torch.uint8)
        self.y = torch.empty((BUFFER, len(tree.levels)), dtype=torch.long)
        self.seen = 0

    def step(self, x: Tensor, y: Tensor) -> float:
        """(b, 3, H, W) uint8, (b, levels) columns with -1 for unknown"""
        b = len(x)
        size = min(self.seen, BUFFER)
        again = self.rng.choice(size, min(REPLAY, size), replace=False, shuffle=False)
        images = torch.cat([x, torch.from_numpy(self.x.numpy()[again])])
        targets = torch.cat([y, torch.from_numpy(self.y.numpy()[again])])
        features = ((self.augment(images).float() - 127.5) / 63.75).flatten(1)
        logits = [head(features) for head in self.heads]
        loss = self.loss([z[:b] for z in logits], targets[:b])
        if len(again):
            loss = loss + self.loss([z[b:] for z in logits], targets[b:])
        self.adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.adam.step()
        arrival = self.seen + np.arange(b)
        slots = np.where(arrival < BUFFER, arrival, (self.rng.random(b) * (arrival + 1)).astype(np.int64))
        kept = slots < BUFFER
        self.x.numpy()[slots[kept]] = x.numpy()[kept]
        self.y.numpy()[slots[kept]] = y.numpy()[kept]
        self.seen += b
        return loss.item()

    def augment(self, x: Tensor) -> Tensor:
        b, reach = len(x), SIZE // 8
        windows = []
        for _ in range(2):
            offsets = torch.from_numpy(self.rng.integers(-reach, reach + 1, b))
            windows.append((torch.arange(SIZE) + offsets[:, None]).clamp(0, SIZE - 1))
        rows, columns = windows
        columns = torch.where(torch.from_numpy(self.rng.random(b) < 0.5)[:, None], columns.flip(1), columns)
        pixels = ((torch.arange(b)[:, None] * SIZE + rows)[:, :, None] * SIZE + columns[:, None, :]).flatten()
        picked = x.permute(0, 2, 3, 1).reshape(-1, 3).index_select(0, pixels)
        return picked.view(b, SIZE, SIZE, 3).permute(0, 3, 1, 2)

    def loss(self, logits: list[Tensor], targets: Tensor) -> Tensor:
        total = torch.zeros(())
        for place, z in enumerate(logits):
            known = (targets[:, place] >= 0).sum().clamp_min(1)
            total = total + F.cross_entropy(z, targets[:, place], ignore_index=-1, reduction="sum") / known
        for coarse, fine, parents in zip(logits, logits[1:], self.parents, strict=False):
            p = coarse.softmax(1)
            q = torch.zeros_like(p).index_add(1, parents, fine.softmax(1))
            log_m = ((p + q) / 2).clamp_min(1e-12).log()
            js = sum((side * (side.clamp_min(1e-12).log() - log_m)).sum(1) for side in (p, q))
            total = total + 0.25 * js.mean()  # type: ignore[union-attr]
        return total


def measure(quick: bool) -> list[Row]:
    tree = full_tree(100, 3)
    world = World(tree, SIZE)
    batches = [world.batch() for _ in range(20)]
    spent = afresh(lambda: _sides(tree, world, batches), 1 if quick else 9, turns=5)
    per_step = {name: [took / len(batches) for took in all_] for name, all_ in spent.items()}
    above, times = excess(per_step["ours"], per_step["bare"]), ratio(per_step["ours"], per_step["bare"])
    floor = statistics.median(per_step["bare"])
    told = [
        Row(
            f"host cost of er, {BATCH}+{REPLAY} images of {SIZE} px, linear model",
            f"{above:+.2f} ms a step on top of {floor:.2f}, {times:.2f} x",
            {"host_ms_per_step": above, "host_ratio": times, "bare_ms_per_step": floor},
        )
    ]
    if "avalanche" in per_step:
        theirs = excess(per_step["avalanche"], per_step["bare"])
        told.append(
            Row("the same by Avalanche, one level only", f"{theirs:+.1f} ms", {"avalanche_ms_per_step": theirs})
        )
    return told


def _sides(tree: Taxonomy, world: World, batches: list[Batch]) -> dict[str, Callable[[], None]]:
    """The two implementations."""
    named = [world.names(batch.y) for batch in batches]
    columns = [tree.complete(batch.y) for batch in batches]
    learner = make_learner("er", Pixels(), BUFFER)
    curator = Curator(Oracle(tree), delay=0)
    bare = BareLoop(tree)
    curator.observe(list(tree))  # everything is known: a stream that stands still, as the bare loop has it

    def ours() -> None:
        for batch, labels in zip(batches, named, strict=True):
            learner.learn(Batch(batch.x, curator.observe(labels)), curator.taxonomy)

    def by_hand() -> None:
        for batch, targets in zip(batches, columns, strict=True):
            bare.step(batch.x, targets)

    sides = {"ours": ours, "bare": by_hand}
    images, fine = torch.cat([batch.x for batch in batches]), torch.cat(columns)[:, -1].clamp_min(0).tolist()
    if avalanche := avalanche_cost.stepper(images, fine, 100, SIZE, BUFFER):
        sides["avalanche"] = avalanche
    return sides
