"""Stored examples of a class, those first that look most like an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal

import torch
from torch import Tensor

from dhocl.core.taxonomy import Label
from dhocl.service.features import Features
from dhocl.service.journal import Entry, Journal
from dhocl.service.journal_format import PENDING
from dhocl.service.served import Snapshot

SCANNED = 2000  # newest observations that are searched for the class
CANDIDATES = 64  # newest ones of the class that are compared with the image
CACHED = 2048  # features kept


class Examples:
    """Its methods are called in one thread at a time.

    Args:
        journal: has the images.
        snapshot: returns the newest one.
        size: side of the images in pixels.
    """

    def __init__(self, journal: Journal, snapshot: Callable[[], Snapshot], size: int) -> None:
        self._journal = journal
        self._snapshot = snapshot
        self._features = Features(lambda number: journal.pixels(number, number).get(number), snapshot, size)

    def like(self, pixels: bytes, label: Label) -> tuple[Literal["similarity", "time"], list[Entry]]:
        """Observations of the class, and how they are sorted: those that look most like an image first, or the newest.

        The features of a network that is trained do not stay, so that they can not be compared.
        """
        newest, phi = self._of_class(label), self._features.of(pixels)
        if phi is None:
            return "time", newest
        numbers = [entry.number for entry in newest]
        while self._features.advance(numbers):
            pass
        found = self._nearest(phi, newest)
        held = self._features.held
        for number in list(islice(held, max(0, len(held) - CACHED))):
            del held[number]
        return "similarity", found

    def _of_class(self, label: Label) -> list[Entry]:
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

    def _nearest(self, phi: Tensor, candidates: Sequence[Entry]) -> list[Entry]:
        """The candidates, most similar first: by the distance of frozen features."""
        held = self._features.held
        here = [entry for entry in candidates if entry.number in held]
        if not here:
            return []
        stored = torch.stack([held[entry.number] for entry in here])  # (n, D)
        distances = (stored - phi).square().sum(1)
        return [here[place] for place in distances.argsort(stable=True).tolist()]
