"""Restricted answers: only classes of a clade, or of a list of what may occur."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dhocl.core.decode import known_paths
from dhocl.core.errors import InputError
from dhocl.core.taxonomy import UNKNOWN, Taxonomy
from dhocl.data.checklist import Listed, parse_name, read_checklist
from dhocl.data.spelling import ends, key, nearest

logger = logging.getLogger(__name__)

SHOWN = 3  # unknown names in a message
COMPARED = 1000  # known names; a request must not take seconds, however many there are
ALIKE = 0.8  # ratio of `SequenceMatcher` from which on a name is suggested for an unknown one


class Allowed(NamedTuple):
    """Classes that may be predicted. Nodes never change, so this holds for later versions of the tree, too."""

    through: frozenset[int]  # nodes: all paths through them
    ends: frozenset[int] = frozenset()  # nodes: paths that end there

    def inside(self, taxonomy: Taxonomy) -> Tensor:
        """(paths,) which of the known paths are allowed."""
        paths = known_paths(taxonomy)
        known = paths != UNKNOWN
        inside = torch.zeros(len(paths), dtype=torch.bool)
        for place, level in enumerate(taxonomy.levels):
            is_end = ~known[:, place + 1 :].any(1)
            inside |= torch.isin(paths[:, place], _columns(self.through, level, taxonomy))
            inside |= torch.isin(paths[:, place], _columns(self.ends, level, taxonomy)) & is_end
        return inside


class Restriction(NamedTuple):
    """What `within` and `among` allow; a path must be inside of each."""

    parts: tuple[Allowed, ...] = ()  # none: everything is allowed
    unknown: tuple[str, ...] = ()  # names of the list that the model does not know
    asked: str = ""  # for messages

    def inside(self, taxonomy: Taxonomy) -> Tensor:
        """(paths,) which of the known paths are inside. InputError if none is."""
        inside = torch.ones(len(known_paths(taxonomy)), dtype=torch.bool)
        for part in self.parts:
            inside &= part.inside(taxonomy)
        if self.parts and not inside.any():
            raise InputError(f"no known path is inside {self.asked}: leave one of them out")
        return inside


def restrict(
    taxonomy: Taxonomy,
    levels: Sequence[str],
    within: str | None = None,
    among: str | Path | Iterable[str] | None = None,
) -> Restriction:
    """What may be predicted.

    Args:
        taxonomy: the known tree.
        levels: names of its levels.
        within: a class, as `Corvidae` or `family:Corvidae`.
        among: a file for `read_checklist`, or names.
    """
    parts: list[Allowed] = []
    unknown: tuple[str, ...] = ()
    asked: list[str] = []
    if within is not None:
        parts.append(Allowed(frozenset({_clade(within, taxonomy, levels)})))
        asked.append(f"`within` {within}")
    if among is not None:
        file = among if isinstance(among, (str, Path)) else None
        names = [] if isinstance(among, (str, Path)) else [parse_name(name, levels) for name in among]
        listed = names if file is None else read_checklist(Path(file), levels)
        allowed, unknown = allow(listed, taxonomy)
        asked.append("`among`" if file is None else f"`among` {file}")
        if not (allowed.through or allowed.ends):
            raise InputError(f"{asked[-1]}: {_unknown(unknown, len(listed), taxonomy)}: give names that it knows")
        if unknown and file is not None:
            logger.warning("%s: %s", file, _unknown(unknown, len(listed), taxonomy))
        parts.append(allowed)
    return Restriction(tuple(parts), unknown, " and ".join(asked))


def allow(listed: Sequence[Listed], taxonomy: Taxonomy) -> tuple[Allowed, tuple[str, ...]]:
    """The classes of a list, and its names that are unknown.

    A class counts with all below it, unless the list also names something below it. A class that is only an ancestor
    of listed names counts where it is the end of a path: what lies below it is not known yet.
    """
    through: set[int] = set()
    above: set[int] = set()
    unknown: dict[str, None] = {}
    for name, level, ancestors in listed:
        found = _nodes(name, level, taxonomy)
        through.update(found)
        for node in found:
            above.update(taxonomy.lineage(node)[1:])
        for label in ancestors:
            above.update(_nodes(label.name, label.level, taxonomy))
        if not found:
            unknown[name] = None
    return Allowed(frozenset(through - above), frozenset(above)), tuple(unknown)


def _clade(text: str, taxonomy: Taxonomy, levels: Sequence[str]) -> int:
    name, level, _ = parse_name(text, levels)
    found = sorted(_nodes(name, level, taxonomy))
    if len(found) > 1:
        ranks = [levels[taxonomy.labels[node].level] for node in found]
        raise InputError(f"`within` {text} is a {' and a '.join(ranks)}: write {ranks[0]}:{name}")
    if not found:
        near = _similar(name, taxonomy)
        raise InputError(f"`within` {text}: no such class" + (f"; did you mean {near}?" if near else ""))
    return found[0]


def _nodes(name: str, level: int | None, taxonomy: Taxonomy) -> set[int]:
    """The classes of this name, in any case, with spaces or underscores."""
    nodes = taxonomy.derived("nodes by name", lambda: _by_name(taxonomy)).get(key(name), ())
    return {taxonomy.accepted(node) for node in nodes if level in (None, taxonomy.labels[node].level)}


def _similar(name: str, taxonomy: Taxonomy) -> str | None:
    """The most similar known name, if it is similar enough and begins or ends alike."""
    own = set(ends(name))
    alike = (label.name for label in taxonomy if not own.isdisjoint(ends(label.name)))
    return nearest(name, islice(alike, COMPARED), ALIKE)


def _by_name(taxonomy: Taxonomy) -> dict[str, list[int]]:
    found = defaultdict(list)
    for node, label in enumerate(taxonomy.labels):
        found[key(label.name)].append(node)
    return dict(found)


def _columns(nodes: Iterable[int], level: int, taxonomy: Taxonomy) -> Tensor:
    """Of those that are at a level."""
    known = [taxonomy.accepted(node) for node in nodes]
    columns = [taxonomy.column(node) for node in known if taxonomy.labels[node].level == level]
    return torch.tensor(columns, dtype=torch.long)


def _unknown(names: Sequence[str], total: int, taxonomy: Taxonomy) -> str:
    """One line about the names that the model does not know."""
    shown = []
    for name in names[:SHOWN]:
        near = _similar(name, taxonomy)
        shown.append(f"{name!r} (is it {near!r}?)" if near else repr(name))
    more = ", ..." if len(names) > SHOWN else ""
    return f"{len(names)} of {total} names are not known to the model: {', '.join(shown)}{more}"
