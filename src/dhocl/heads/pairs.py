"""Which classes the alignment of prototypes compares: each with its ancestors, and with strangers to these."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from dhocl.rng import Rng
from dhocl.taxonomy import UNKNOWN, Taxonomy


class Pairs(NamedTuple):
    """Classes of a level with a known ancestor at a coarser one, and what is needed to draw strangers for them.

    Sorted by ancestor, everything outside a class's block is one cyclic run, so a uniform draw is one addition. Classes
    that have no stranger, since all have the same ancestor, are left out. Several such groups may follow one another.
    """

    descendant: Tensor  # (n,) columns, sorted by ancestor
    ancestor: Tensor  # (n,) columns
    start: Tensor  # (n,) where the group of each starts
    size: Tensor  # (n,) how many are in it
    end: Tensor  # (n,) where the block of each ends, counted from there
    room: Tensor  # (n,) how many of the group are outside of it

    @classmethod
    def of(cls, ancestors: Tensor, siblings: bool = False) -> Pairs:
        """One group: ancestors (C,) with -1 for unknown. With `siblings`, these are strangers too."""
        anchored = (ancestors != UNKNOWN).nonzero()[:, 0]
        descendant = anchored[ancestors[anchored].argsort(stable=True)]
        ancestor = ancestors[descendant]
        own = descendant if siblings else ancestor
        _, block, sizes = torch.unique_consecutive(own, return_inverse=True, return_counts=True)
        if len(sizes) < 2:
            return cls(*[descendant[:0]] * len(cls._fields))
        size = torch.full_like(descendant, len(descendant))
        return cls(descendant, ancestor, torch.zeros_like(size), size, sizes.cumsum(0)[block], size - sizes[block])

    def strangers(self, picked: Tensor, rng: Rng) -> Tensor:
        """(m,) for each of the picked ones a random stranger of its group."""
        room = self.room[picked]
        offset = (torch.from_numpy(rng.random(len(room))) * room).long()
        return self.descendant[self.start[picked] + (self.end[picked] + offset) % self.size[picked]]


def all_pairs(taxonomy: Taxonomy, siblings: bool = False) -> Pairs:
    """Of every two levels. Columns are counted through all levels, the coarsest first."""
    first = dict(zip(taxonomy.levels, accumulate(taxonomy.widths.values(), initial=0), strict=False))
    groups, start = [Pairs.of(torch.tensor([UNKNOWN]))], 0
    for fine in taxonomy.levels:
        for coarse in taxonomy.levels[: taxonomy.levels.index(fine)]:
            group = Pairs.of(taxonomy.ancestors(fine, coarse), siblings)
            descendant, ancestor = group.descendant + first[fine], group.ancestor + first[coarse]
            groups.append(group._replace(descendant=descendant, ancestor=ancestor, start=group.start + start))
            start += len(descendant)
    return Pairs(*map(torch.cat, zip(*groups, strict=True)))
