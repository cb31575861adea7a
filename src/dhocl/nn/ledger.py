"""Which samples were learned, known by their content, so that one of them can be taken back. It is in main memory.

A sample has no number of its own: the same image with the same label is the same sample. The newest samples are
remembered; to forget an older one is refused.

>>> ledger = Ledger()
>>> x = torch.arange(6, dtype=torch.uint8).view(2, 3, 1, 1)
>>> ledger.add(content_keys(x), torch.tensor([4, 5]))
>>> ledger.find(content_keys(x[1:]), torch.tensor([5]))
[1]
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

REMEMBERED = 10_000  # newest samples that can be forgotten
VALUES = 500_000  # most targets that are remembered with them: 9 MB
ROUNDING = 1e-4  # by which features of unit length may differ and be those of the same image


def content_keys(x: Tensor) -> Tensor:
    """(b, ...) images or vectors -> (b,) int64, the first 8 bytes of a hash of each."""
    rows = x.contiguous().numpy()
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows]
    return torch.tensor([int.from_bytes(digest, "little", signed=True) for digest in digests], dtype=torch.long)


class Ledger:
    """Keys and labels of the newest samples, oldest first."""

    training_only = True

    def __init__(self) -> None:
        self.keys = torch.zeros(0, dtype=torch.long)  # (n,)
        self.nodes = torch.zeros(0, dtype=torch.long)  # (n,) labels as learned

    def add(self, keys: Tensor, nodes: Tensor) -> None:
        self.keys = torch.cat([self.keys, keys.cpu()])[-REMEMBERED:].clone()
        self.nodes = torch.cat([self.nodes, nodes.cpu()])[-REMEMBERED:].clone()

    def absorb(self, other: Ledger, nodes: Tensor) -> None:
        """Remember the samples of another, too, as if they had come before; its nodes have become `nodes` (n,)."""
        mine = self.keys, self.nodes
        self.keys, self.nodes = other.keys, nodes[other.nodes]
        Ledger.add(self, *mine)

    def find(self, keys: Tensor, nodes: Tensor, known: Tensor | None = None) -> list[int | None]:
        """Place of the newest sample of each key (b,) and label (b,), no place twice; None where there is none.

        Args:
            keys: (b,)
            nodes: (b,)
            known: (n,) the labels to compare with, if not those as learned.
        """
        known, taken, found = self.nodes if known is None else known, set[int](), list[int | None]()
        for key, node in zip(keys.tolist(), nodes.tolist(), strict=True):
            same = ((self.keys == key) & (known == node)).nonzero()[:, 0].flip(0).tolist()
            place = next((place for place in same if place not in taken), None)
            found.append(place)
            taken |= {place} if place is not None else set()
        return found

    def count(self, key: int, node: int) -> int:
        return int(((self.keys == key) & (self.nodes == node)).sum())

    def remove(self, places: list[int]) -> None:
        kept = without(len(self.keys), places)
        self.keys, self.nodes = self.keys[kept], self.nodes[kept]

    def state_dict(self) -> dict[str, Any]:
        return {"keys": self.keys, "nodes": self.nodes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.keys, self.nodes = state["keys"].clone(), state["nodes"].clone()


class TargetLedger(Ledger):
    """With the targets that each sample was learned with, where they can not be computed again.

    Targets that are not 0 are stored one by one, with level, column and the serial number of their sample. If they are
    too many, the oldest samples are no longer remembered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.added = 0  # samples so far
        self.serials = torch.zeros(0, dtype=torch.long)  # (n,)
        self.owners = torch.zeros(0, dtype=torch.long)  # (v,) serial numbers, ascending
        self.levels = torch.zeros(0, dtype=torch.int16)  # (v,)
        self.columns = torch.zeros(0, dtype=torch.int32)  # (v,)
        self.values = torch.zeros(0)  # (v,)

    def add(self, keys: Tensor, nodes: Tensor, targets: dict[int, Tensor] | None = None) -> None:
        """targets: (b, C) per level."""
        serials = self.added + torch.arange(len(keys))
        self.added += len(keys)
        super().add(keys, nodes)
        self.serials = torch.cat([self.serials, serials])[-REMEMBERED:]
        on_cpu = {level: q.cpu() for level, q in (targets or {}).items()}
        found = [(level, q != 0, q) for level, q in on_cpu.items()]
        if found:
            rows, columns = torch.cat([some.nonzero() for _, some, _ in found]).t()
            levels = torch.cat([torch.full((int(some.sum()),), level) for level, some, _ in found])
            order = rows.argsort(stable=True)
            self.owners = torch.cat([self.owners, serials[rows[order]]])
            self.levels = torch.cat([self.levels, levels[order].to(torch.int16)])
            self.columns = torch.cat([self.columns, columns[order].to(torch.int32)])
            self.values = torch.cat([self.values, torch.cat([q[some] for _, some, q in found])[order]])
        self._trim()

    def absorb(self, other: Ledger, nodes: Tensor, columns: dict[int, Tensor] | None = None) -> None:
        """columns: (C,) per level, what the classes of `other` have become."""
        assert isinstance(other, TargetLedger)
        super().absorb(other, nodes)
        self.serials = torch.cat([other.serials, self.serials + other.added])[-REMEMBERED:]
        self.owners = torch.cat([other.owners, self.owners + other.added])
        moved = other.columns.clone()
        for level, become in (columns or {}).items():
            here = other.levels == level
            moved[here] = become[other.columns[here].long()].to(torch.int32)
        self.columns = torch.cat([moved, self.columns])
        self.levels = torch.cat([other.levels, self.levels])
        self.values = torch.cat([other.values, self.values])
        self.added += other.added
        self._trim()

    def _trim(self) -> None:
        """Drop targets of samples that are no longer remembered, and the oldest samples if targets are too many."""
        if len(self.owners) and self.owners[0] < self.serials[0]:
            self._keep_targets(self.owners >= self.serials[0])
        if len(self.owners) > VALUES:
            self.remove((self.serials <= self.owners[-VALUES - 1]).nonzero()[:, 0].tolist())

    def targets(self, place: int) -> dict[int, tuple[Tensor, Tensor]]:
        """Columns (k,) and values (k,) per level of a sample."""
        own = self.owners == self.serials[place]
        found = {}
        for level in torch.unique(self.levels[own]).tolist():
            here = own & (self.levels == level)
            found[level] = self.columns[here].long(), self.values[here]
        return found

    def remove(self, places: list[int]) -> None:
        self._keep_targets(~torch.isin(self.owners, self.serials[places]))
        self.serials = self.serials[without(len(self.serials), places)]
        super().remove(places)

    def _keep_targets(self, kept: Tensor) -> None:
        """A mask or places of the stored targets."""
        for name in ("owners", "levels", "columns", "values"):
            setattr(self, name, getattr(self, name)[kept])

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update({name: v.clone() if isinstance(v, Tensor) else v for name, v in state.items()})


def without(n: int, places: list[int]) -> Tensor:
    """(n,) mask of all but these places."""
    kept = torch.ones(n, dtype=torch.bool)
    kept[places] = False
    return kept
