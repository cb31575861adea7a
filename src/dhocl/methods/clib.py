"""CLIB, continual learning for i-Blurry (Koh et al. 2022): keep what lowers the loss of the others when trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dhocl.learner import Batch, Setup
from dhocl.losses import given_nll
from dhocl.memory import Memory
from dhocl.methods.er import ER, ReplaySettings
from dhocl.rng import Rng
from dhocl.taxonomy import UNKNOWN, Taxonomy

CHUNK = 128  # images in one forward over the memory


@dataclass(frozen=True)
class ClibSettings(ReplaySettings):
    period: int = 0  # steps between looks at the whole memory; 0: so many that looking costs as much as training
    decay: float = 0.9  # κ of the running mean that is H
    quota: Literal["class", "level"] = "class"  # what shares the memory evenly; level: levels first, then their classes


def updated(score: Tensor, used: Tensor, before: Tensor, after: Tensor, decay: float) -> Tensor:
    """H_i ← H_i + (1-κ) (D - mean of H over S) for the items i of S, which were trained on between two looks.

    All (n,), `used` telling S. D is the mean drop of the loss, over the items that were there at both looks (`before`
    is NaN for others). The mean of H over the batch predicts D, and H is corrected by the error. The authors' code
    *adds* mean_S(H) / |S|, which neither predicts D nor has a fixed point, so it is not followed.
    """
    known = ~before.isnan()
    if not known.any() or not used.any():
        return score
    drop = (before - after)[known].mean()
    return torch.where(used, score + (1 - decay) * (drop - score[used].mean()), score)


class Scored(Memory):
    """Evicts the item of smallest score H from the largest class, the newcomer counted; the newcomer always enters.

    Columns beside image and label: `score`; `loss` at the last look, NaN for who came since; `used`, trained on since.
    """

    def __init__(self, capacity: int, rng: Rng, level_quota: bool = False) -> None:
        super().__init__(capacity, rng)
        self.steps = 0  # trained since the last look
        self.tree = Taxonomy()  # today's, so it is no state
        self._level_quota = level_quota

    def classes(self, items: dict[str, Tensor]) -> Tensor:
        """(n, k) nodes each item is counted for, the given label first, -1 where there are fewer."""
        return items["y"][:, None]

    def follow(self, taxonomy: Taxonomy) -> None:
        super().follow(taxonomy)
        self.tree = taxonomy

    def insert(self, **items: Tensor) -> None:
        n = len(items["y"])
        fresh = {"score": torch.zeros(n), "loss": torch.full((n,), math.nan), "used": torch.zeros(n, dtype=torch.bool)}
        super().insert(**items, **fresh)

    def admit(self, items: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        new = self.classes(items).numpy()  # (n, k)
        held = np.full((self.capacity, new.shape[1]), UNKNOWN)
        score = np.zeros(self.capacity, dtype=np.float32)
        if self.size:
            held[: self.size] = self.classes({name: column[: self.size] for name, column in self.columns.items()})
            score[: self.size] = self.columns["score"][: self.size]
        placed: dict[int, int] = {}  # slot -> row: of two items for one slot the later stays
        filled = self.size
        for row, own in enumerate(new if self.capacity else []):
            kin = held[:filled, 0] == own[0]
            start = score[:filled][kin].mean() if kin.any() else score[:filled].mean() if filled else 0.0
            slot = filled if filled < self.capacity else self._victim(held, score, own)
            filled = max(filled, slot + 1)
            held[slot], score[slot], placed[slot] = own, start, row
            items["score"][row] = float(start)  # what `insert` is about to write
        return np.array(list(placed.values()), dtype=np.int64), np.array(list(placed), dtype=np.int64)

    def _victim(self, held: np.ndarray, score: np.ndarray, own: np.ndarray) -> int:
        """The slot that a newcomer of the classes `own` (k,) takes over; held (capacity, k), score (capacity,)."""
        counts = np.bincount(np.append(held, own) + 1)[1:]  # by node; what is not a class falls in the first place
        stored = np.bincount(held.ravel() + 1, minlength=len(counts) + 1)[1:] > 0  # the newcomer's may have no item yet
        if self._level_quota:
            level = np.array([label.level for label in self.tree.labels[: len(counts)]])
            totals = np.where(np.bincount(level, weights=stored) > 0, np.bincount(level, weights=counts), 0)
            stored &= level == totals.argmax()
        counts = np.where(stored, counts, 0)
        largest = self._rng.choice(np.flatnonzero(counts == counts.max()))
        members = np.flatnonzero((held == largest).any(1))
        return int(members[score[members].argmin()])

    def take(self, n: int) -> dict[str, Tensor]:
        """A batch to train on, which is remembered until the next look."""
        slots = self.draw(n)
        self.columns["used"][torch.from_numpy(slots)] = True
        self.steps += 1
        return self.read(slots)

    def look(self, seen: dict[str, Tensor], decay: float) -> None:
        """Take in the columns (size, ...) that looking at all items gave: their `loss`, and what else is in it."""
        score, used, before = (self.columns[name][: self.size] for name in ("score", "used", "loss"))
        score.copy_(updated(score, used, before, seen["loss"], decay))
        used.zero_()
        self.steps = 0
        for name, values in seen.items():
            self.columns[name][: self.size] = values

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.steps = state["steps"]


class CLIB(ER):
    """Inserts first and then trains on the memory alone; every so many steps it looks at the loss of each stored item.

    A step takes as many images as ER's, stream and replay together, so with the default period CLIB costs up to twice
    ER. A class is a label as it was given, and an item's loss is its cross-entropy at that level. Departures: one step
    a batch instead of up to three a sample, and no adaptive learning rate, for it needs an optimizer whose rates can
    be changed, and ours are part of the settings that all methods share.
    """

    memory: Scored

    def __init__(self, setup: Setup, settings: ClibSettings) -> None:
        self.settings = settings
        super().__init__(setup, settings)

    def make_memory(self) -> Scored:
        return Scored(self.setup.buffer, self.rng, self.settings.quota == "level")

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.net.grow(taxonomy)
        self.memory.follow(taxonomy)
        self.memory.insert(x=batch.x, y=batch.y)
        chosen = self.chosen(batch)
        loss = self.loss([chosen], taxonomy)
        self.net.step(loss)
        period = self.settings.period or math.ceil(self.memory.size / (3 * len(chosen.y)))
        if self.memory.size and self.memory.steps >= period:
            self.look(taxonomy)
        return {"loss": loss.item()}

    def chosen(self, batch: Batch) -> Batch:
        """What to train on: the memory, or the stream where nothing may be kept."""
        items = self.memory.take(len(batch.y) + self.setup.replay_batch)
        return Batch(items["x"], items["y"]) if self.memory.size else batch

    def look(self, taxonomy: Taxonomy) -> None:
        """Go over the whole memory as it is stored, without augmentation."""
        chunks = np.array_split(np.arange(self.memory.size), math.ceil(self.memory.size / CHUNK))
        seen = [self.seen(self.predict(items["x"]), items["y"], taxonomy) for items in map(self.memory.read, chunks)]
        self.memory.look({name: torch.cat([part[name] for part in seen]) for name in seen[0]}, self.settings.decay)

    def seen(self, p: dict[int, Tensor], y: Tensor, taxonomy: Taxonomy) -> dict[str, Tensor]:
        """What the probabilities (n, classes) per level of stored items tell of them, by column."""
        return {"loss": given_nll(p, y, taxonomy)}
