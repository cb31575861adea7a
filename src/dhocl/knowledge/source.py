"""Knowledge sources: they answer how a new class relates to the known ones."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from dhocl.core.taxonomy import Label, Taxonomy

Link = tuple[Label, Label]  # child, parent


class Synonym(NamedTuple):
    """Two names of one class. It is renamed to `accepted`, or merged into the class of that name if there is one."""

    name: Label
    accepted: Label


Statement = Link | Synonym


def is_final(answer: Sequence[Statement], level: int) -> bool:
    """Whether a class of this level needs no further query: it has a parent one level above, or is of level 0."""
    links = [statement for statement in answer if not isinstance(statement, Synonym)]
    return any(level == 0 or (child.level == level and parent.level == level - 1) for child, parent in links)


def to_json(statement: Statement) -> list[str | int]:
    a, b = statement
    return [*a, *b, *(["synonym"] if isinstance(statement, Synonym) else [])]


def from_json(fields: Sequence[Any]) -> Statement:
    a, b = Label(*fields[:2]), Label(*fields[2:4])
    return Synonym(a, b) if fields[4:] else (a, b)


class KnowledgeSource(Protocol):
    """Answers queries about classes: R(c) = K(c, V) of the paper, with class c and known classes V.

    A source that may take seconds to answer sets `slow = True` in its class; it is then queried from a thread.
    """

    def query(self, label: Label, known: Collection[Label]) -> Sequence[Statement]:
        """Query a class.

        Args:
            label: the class.
            known: all classes of the tree.

        Returns:
            Links (child, parent) between `label` and classes of `known`, and synonyms of `label`; empty if nothing is
            known yet. A child that is not in `known` is added to the tree, which splits its parent.
        """
        ...


def is_slow(source: KnowledgeSource) -> bool:
    """Whether a query may take seconds, so that a learner must not wait for it."""
    return bool(getattr(source, "slow", False))


class Silent:
    """A source without answers. Every class stays unanchored until it is linked by hand."""

    def query(self, label: Label, known: Collection[Label]) -> list[Link]:
        return []


class Oracle:
    """Answers from a given tree.

    The nearest known ancestor becomes the parent. Known descendants whose nearest known ancestor is now the queried
    class are re-parented to it, so an intermediate class may arrive late.

    Example:
        >>> true = Taxonomy()
        >>> bird, thrush, robin = Label("bird", 0), Label("thrush", 1), Label("robin", 2)
        >>> true.link(true.add(thrush), true.add(bird))
        >>> true.link(true.add(robin), true.id(thrush))
        >>> Oracle(true).query(robin, [bird])
        [(Label(name='robin', level=2), Label(name='bird', level=0))]
        >>> [(child.name, parent.name) for child, parent in Oracle(true).query(thrush, [bird, robin])]
        [('thrush', 'bird'), ('robin', 'thrush')]
    """

    def __init__(self, tree: Taxonomy) -> None:
        self._tree = tree

    def query(self, label: Label, known: Collection[Label]) -> list[Link]:
        tree = self._tree
        if label not in tree:
            return []
        node = tree.id(label)
        links: list[Link] = []
        for ancestor in tree.lineage(node)[1:]:
            if tree.labels[ancestor] in known:
                links.append((label, tree.labels[ancestor]))
                break
        stack = tree.children(node)[::-1]
        while stack:
            below = stack.pop()
            if tree.labels[below] in known:
                links.append((tree.labels[below], label))
            else:
                stack.extend(tree.children(below)[::-1])
        return links


class Chain:
    """Several sources. The first answer that is not empty is used."""

    def __init__(self, *sources: KnowledgeSource) -> None:
        self._sources = sources
        self.slow = any(map(is_slow, sources))

    def query(self, label: Label, known: Collection[Label]) -> Sequence[Statement]:
        return next((answer for source in self._sources if (answer := source.query(label, known))), [])

    def close(self) -> None:
        """Close the sources that can be closed."""
        for source in self._sources:
            if close := getattr(source, "close", None):
                close()


class Corrupted:
    """Answers of another source, with some links removed or wrong.

    Args:
        source: the source whose answers are corrupted.
        vacant: fraction of links that are removed.
        noise: fraction of links whose parent is wrong.
        seed: of the random choice.

    A hash of the seed and the link decides whether a link is removed or wrong, so it does not depend on when or how
    often it is queried. The wrong parent is another known class of the parent's level. While there is none, the link is
    postponed until the first other class of that level is queried.
    """

    def __init__(self, source: KnowledgeSource, vacant: float = 0.0, noise: float = 0.0, seed: int = 0) -> None:
        if not (vacant >= 0 and noise >= 0 and vacant + noise <= 1):
            raise ValueError(f"vacant {vacant} and noise {noise} must be shares that sum to at most 1")
        self._source = source
        self._vacant = vacant
        self._noise = noise
        self._seed = seed
        self.replaced: dict[Link, Label] = {}  # wrong parents so far, so that a repeated query gets the same answer
        self.owed: dict[Link, None] = {}  # postponed links

    def query(self, label: Label, known: Collection[Label]) -> list[Statement]:
        answer: list[Statement] = []
        wrong = {link: None for link in self.owed if link[1].level == label.level}  # a dict keeps the order
        for statement in self._source.query(label, known):
            if isinstance(statement, Synonym) or (draw := self._draw(*statement)) >= self._vacant + self._noise:
                answer.append(statement)
            elif statement in self.replaced:
                answer.append((statement[0], self.replaced[statement]))
            elif draw >= self._vacant:
                wrong[statement] = None
        for child, parent in wrong:
            if others := [other for other in known if other.level == parent.level and other != parent]:
                self.replaced[child, parent] = min(others, key=lambda other: self._draw(child, other))
                self.owed.pop((child, parent), None)
                answer.append((child, self.replaced[child, parent]))
            else:
                self.owed[child, parent] = None
        return answer

    def state_dict(self) -> dict[str, Any]:
        return {
            "replaced": [[*child, *parent, *wrong] for (child, parent), wrong in self.replaced.items()],
            "owed": [[*child, *parent] for child, parent in self.owed],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.replaced = {(Label(c, i), Label(p, j)): Label(w, k) for c, i, p, j, w, k in state["replaced"]}
        self.owed = {(Label(c, i), Label(p, j)): None for c, i, p, j in state.get("owed", [])}

    def _draw(self, child: Label, parent: Label) -> float:
        """A number in [0, 1), determined by seed and link."""
        text = repr((self._seed, *child, *parent)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest()) / 2**56
