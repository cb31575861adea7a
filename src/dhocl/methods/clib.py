"""CLIB, continual learning for i-Blurry (Koh et al. 2022): store the items that lower the loss when trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.methods.er import ER, ReplaySettings
from dhocl.nn.learner import Batch
from dhocl.nn.losses import given_nll
from dhocl.nn.memory import Memory

CHUNK = 128  # images in one forward pass over the memory


@dataclass(frozen=True)
class ClibSettings(ReplaySettings):
    period: int = 0  # steps between scorings of the whole memory; 0: auto, scoring costs as much as training
    decay: float = 0.9  # κ of the running mean H
    quota: Literal["class", "level"] = "class"  # balance classes, or levels first and then the classes of a level


def updated(score: Tensor, used: Tensor, before: Tensor, after: Tensor, decay: float) -> Tensor:
    """H_i ← H_i + (1-κ) (D - mean of H over S) for the items i of S, trained on between two scorings.

    All (n,); `used` is the mask of S. D is the mean decrease of the loss over the items stored at both scorings
    (`before` is NaN for the others). The mean of H over S predicts D, and H is corrected by the error. The authors'
    code *adds* mean_S(H) / |S|, which does not predict D and has no fixed point, so it is not used.
    """
    known = ~before.isnan()
    if not known.any() or not used.any():
        return score
    drop = (before - after)[known].mean()
    return torch.where(used, score + (1 - decay) * (drop - score[used].mean()), score)


class Scored(Memory):
    """Stores every new item. Evicts the item with the smallest score H of the class that is then the largest.

    Extra columns: `score`; `loss` at the last scoring, NaN for newer items; `used`, trained on since then.
    """

    def __init__(self, capacity: int, rng: Rng, level_quota: bool = False) -> None:
        super().__init__(capacity, rng)
        self.steps = 0  # since the last scoring
        self.tree = Taxonomy()  # set by `follow`, so not saved
        self._level_quota = level_quota

    def classes(self, items: dict[str, Tensor]) -> Tensor:
        """(n, k) nodes that each item counts for: the given label first, padded with -1."""
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
        placed: dict[int, int] = {}  # slot -> row: the last item drawn to a slot stays
        filled = self.size
        for row, own in enumerate(new if self.capacity else []):
            same_class = held[:filled, 0] == own[0]
            start = score[:filled][same_class].mean() if same_class.any() else score[:filled].mean() if filled else 0.0
            slot = filled if filled < self.capacity else self._evicted(held, score, own)
            filled = max(filled, slot + 1)
            held[slot], score[slot], placed[slot] = own, start, row
            items["score"][row] = float(start)  # written by `insert`
        return np.array(list(placed.values()), dtype=np.int64), np.array(list(placed), dtype=np.int64)

    def _evicted(self, held: np.ndarray, score: np.ndarray, own: np.ndarray) -> int:
        """Slot to free for a new item of the classes `own` (k,); held (capacity, k), score (capacity,)."""
        counts = np.bincount(np.append(held, own) + 1)[1:]  # by node; index 0 counts the padding
        stored = np.bincount(held.ravel() + 1, minlength=len(counts) + 1)[1:] > 0  # a new class may have no item yet
        if self._level_quota:
            level = np.array([label.level for label in self.tree.labels[: len(counts)]])
            totals = np.where(np.bincount(level, weights=stored) > 0, np.bincount(level, weights=counts), 0)
            stored &= level == totals.argmax()
        counts = np.where(stored, counts, 0)
        largest = self._rng.choice(np.flatnonzero(counts == counts.max()))
        members = np.flatnonzero((held == largest).any(1))
        return int(members[score[members].argmin()])

    def take(self, n: int) -> dict[str, Tensor]:
        """Draw a batch to train on, and mark its items as used."""
        slots = self.draw(n)
        self.columns["used"][torch.from_numpy(slots)] = True
        self.steps += 1
        return self.read(slots)

    def look(self, seen: dict[str, Tensor], decay: float) -> None:
        """Update the scores, and store the new columns (size, ...) of all items, among them `loss`."""
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
    """Inserts each batch and trains on the memory only; scores all stored items every `period` steps.

    A step uses as many images as ER's stream and replay batches together. With the default period CLIB costs up to
    twice ER. The class of an item is its given label; its loss is the cross-entropy at that level. Deviations: one step
    per batch instead of up to three per sample, and no adaptive learning rate, since all methods share fixed rates.
    """

    settings: ClibSettings
    memory: Scored

    def make_memory(self) -> Scored:
        return Scored(self.setup.buffer, self.rng, self.settings.quota == "level")

    def learn(self, batch: Batch, taxonomy: Taxonomy) -> dict[str, float]:
        self.follow(taxonomy)
        self.memory.insert(x=batch.x, y=batch.y)
        chosen = self.chosen(batch)
        loss = self.loss([chosen], taxonomy)
        self.net.step(loss)
        period = self.settings.period or math.ceil(self.memory.size / (3 * len(chosen.y)))
        if self.memory.size and self.memory.steps >= period:
            self.look(taxonomy)
        return {"loss": loss.item()}

    def chosen(self, batch: Batch) -> Batch:
        """The training batch: from the memory, or the stream if the buffer size is 0."""
        items = self.memory.take(len(batch.y) + self.setup.replay_batch)
        return Batch(items["x"], items["y"]) if self.memory.size else batch

    def look(self, taxonomy: Taxonomy) -> None:
        """Score the whole memory, without augmentation."""
        chunks = np.array_split(np.arange(self.memory.size), math.ceil(self.memory.size / CHUNK))
        seen = []
        for items in map(self.memory.read, chunks):
            p = {level: q.cpu() for level, q in self.predict(items["x"]).items()}  # to where the memory is
            seen.append(self.seen(p, items["y"], taxonomy))
        self.memory.look({name: torch.cat([part[name] for part in seen]) for name in seen[0]}, self.settings.decay)

    def seen(self, p: dict[int, Tensor], y: Tensor, taxonomy: Taxonomy) -> dict[str, Tensor]:
        """New columns of stored items, from their probabilities (n, classes) per level."""
        return {"loss": given_nll(p, y, taxonomy)}
