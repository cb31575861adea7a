"""Stored examples of a class, those first that look most like an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import torch
from torch import Tensor

from dhocl.core.taxonomy import Label
from dhocl.service.corrections import PENDING
from dhocl.service.journal import Entry, Journal
from dhocl.service.served import Snapshot, as_array, as_tensor

SCANNED = 2000  # newest observations that are searched for the class
CANDIDATES = 64  # newest ones of the class that are compared with the image
AT_ONCE = 16  # images in a step: predictions wait for no more
CACHED = 2048  # features kept


class Examples:
    """Its methods, but for `of_class`, are called in one thread at a time.

    Args:
        journal: has the images.
        snapshot: returns the newest one.
        size: side of the images in pixels.
    """

    def __init__(self, journal: Journal, snapshot: Callable[[], Snapshot], size: int) -> None:
        self._journal = journal
        self._snapshot = snapshot
        self._size = size
        self._features: dict[int, Tensor] = {}  # by number: (D,), the same in all snapshots

    def of_class(self, label: Label) -> list[Entry]:
        """Learned observations of the class or of one below it, newest first, with their present labels."""
        snapshot = self._snapshot()
        tree, node = snapshot.taxonomy, snapshot.taxonomy.id(label)
        inside = {node, *tree.descendants(node)}
        stored = f"number IN (SELECT number FROM images) AND number NOT IN (SELECT target FROM entries WHERE {PENDING})"
        observed = self._journal.entries(
            f"WHERE kind = 'observation' AND state = 'done' AND {stored} ORDER BY number DESC LIMIT ?", SCANNED
        )
        relabelling = "target IS NOT NULL AND state = 'done' AND json_extract(content, '$.kind') = 'relabel'"
        labels = {each.target: each.content for each in self._journal.entries(f"WHERE {relabelling} ORDER BY number")}
        found = []
        for entry in observed:
            content = entry.content | labels.get(entry.number, {})
            own = Label(content["name"], snapshot.ranks.index(content["rank"]))
            if own in tree and tree.id(own) in inside:
                found.append(entry._replace(content=content | {"name": tree.labels[tree.id(own)].name}))
        return found[:CANDIDATES]

    def advance(self, numbers: Sequence[int]) -> bool:
        """Compute features of some images. Whether others are left."""
        lacking = [number for number in numbers if number not in self._features]
        found = {number: self._journal.pixels(number, number).get(number) for number in lacking[:AT_ONCE]}
        here = {number: as_array(pixels, self._size) for number, pixels in found.items() if pixels is not None}
        phi = self._snapshot().frozen_features(as_tensor(list(here.values()))) if here else None
        if phi is None:
            return False
        self._features |= dict(zip(here, phi.unbind(), strict=True))
        for number in list(islice(self._features, max(0, len(self._features) - CACHED))):
            del self._features[number]
        return len(lacking) > AT_ONCE

    def nearest(self, pixels: bytes, candidates: Sequence[Entry]) -> list[Entry] | None:
        """The candidates, most similar first: by the distance of frozen features. None if the network is trained."""
        phi = self._snapshot().frozen_features(as_tensor([as_array(pixels, self._size)]))
        if phi is None:
            return None
        here = [entry for entry in candidates if entry.number in self._features]
        if not here:
            return []
        stored = torch.stack([self._features[entry.number] for entry in here])  # (n, D)
        distances = (stored - phi).square().sum(1)
        return [here[place] for place in distances.argsort(stable=True).tolist()]
