"""Class pairs for the alignment of prototypes: each class with its ancestors, and negatives of these."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from dhocl.core.rng import Rng
from dhocl.core.taxonomy import UNKNOWN, Taxonomy


class Pairs(NamedTuple):
    """Classes of a level with a known ancestor at a coarser level, and indices to sample negatives for them.

    Classes are sorted by ancestor, so the negatives of a class are one cyclic range and a uniform draw is one addition.
    Classes without a negative, since all have the same ancestor, are left out. Groups are concatenated.
    """

    descendant: Tensor  # (n,) columns, sorted by ancestor
    ancestor: Tensor  # (n,) columns
    start: Tensor  # (n,) start of the group of each
    size: Tensor  # (n,) size of that group
    end: Tensor  # (n,) end of the block of the same ancestor, from `start`
    room: Tensor  # (n,) number of negatives

    @classmethod
    def of(cls, ancestors: Tensor, siblings: bool = False) -> Pairs:
        """One group: ancestors (C,) with -1 for unknown. With `siblings`, these are negatives too."""
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
        """(m,) a random negative for each picked pair."""
        room = self.room[picked]
        offset = (torch.from_numpy(rng.random(len(room))) * room).long()
        return self.descendant[self.start[picked] + (self.end[picked] + offset) % self.size[picked]]


def all_pairs(taxonomy: Taxonomy, siblings: bool = False) -> Pairs:
    """Pairs of every two levels. Columns index the classes of all levels, the coarsest first."""
    first = dict(zip(taxonomy.levels, accumulate(taxonomy.widths.values(), initial=0), strict=False))
    groups, start = [Pairs.of(torch.tensor([UNKNOWN]))], 0
    for fine in taxonomy.levels:
        for coarse in taxonomy.levels[: taxonomy.levels.index(fine)]:
            group = Pairs.of(taxonomy.ancestors(fine, coarse), siblings)
            descendant, ancestor = group.descendant + first[fine], group.ancestor + first[coarse]
            groups.append(group._replace(descendant=descendant, ancestor=ancestor, start=group.start + start))
            start += len(descendant)
    return Pairs(*map(torch.cat, zip(*groups, strict=True)))
