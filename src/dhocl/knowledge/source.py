"""Whom to ask how a new class relates to the known ones."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from dhocl.taxonomy import Label, Taxonomy

Link = tuple[Label, Label]  # child, parent


class Synonym(NamedTuple):
    """Two names of one class: it is to be called `accepted`, and merged with the class of that name if there is one."""

    name: Label
    accepted: Label


Statement = Link | Synonym


def is_final(answer: Sequence[Statement], level: int) -> bool:
    """Nothing is left to ask of a class of this level: it has a parent just above, or can have none."""
    links = [said for said in answer if not isinstance(said, Synonym)]
    return any(level == 0 or (child.level == level and parent.level == level - 1) for child, parent in links)


def to_json(said: Statement) -> list[str | int]:
    a, b = said
    return [*a, *b, *(["synonym"] if isinstance(said, Synonym) else [])]


def from_json(said: Sequence[Any]) -> Statement:
    a, b = Label(*said[:2]), Label(*said[2:4])
    return Synonym(a, b) if said[4:] else (a, b)


class KnowledgeSource(Protocol):
    """R(c) = K(c, V): the links between a class and the known vocabulary."""

    def query(self, label: Label, known: Collection[Label]) -> Sequence[Statement]:
        """Links between `label` and classes of `known`, and other names of it; empty when there is nothing to tell yet.

        A child that is not known yet is announced by its link: so a class is split.
        """
        ...


class Silent:
    """Knows nothing: every class stays unanchored until somebody links it by hand."""

    def query(self, label: Label, known: Collection[Label]) -> list[Link]:
        return []


class Oracle:
    """Answers from the true tree, about the asked class and the known ones only.

    The nearest known ancestor becomes the parent. Known descendants whose nearest known ancestor is now the asked
    class are re-parented to it, so an intermediate class that arrives late takes its place in the middle.
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
    """Several sources: the first that has an answer gives it."""

    def __init__(self, *sources: KnowledgeSource) -> None:
        self._sources = sources

    def query(self, label: Label, known: Collection[Label]) -> Sequence[Statement]:
        return next((answer for source in self._sources if (answer := source.query(label, known))), [])

    def close(self) -> None:
        """Close those of the sources that can be closed."""
        for source in self._sources:
            if close := getattr(source, "close", None):
                close()


class Corrupted:
    """Another source's answers with a share of the links missing (`vacant`) or wrong (`noise`).

    Whether a link is missing or wrong is decided once, by a hash of the seed and the link. It does not depend on when
    or how often the link is asked for. A wrong link names another known class of the parent's level. While there is
    none, the link is owed: it is left out, and is part of the answer about the first other class of that level.
    """

    def __init__(self, source: KnowledgeSource, vacant: float = 0.0, noise: float = 0.0, seed: int = 0) -> None:
        if not (vacant >= 0 and noise >= 0 and vacant + noise <= 1):
            raise ValueError(f"vacant {vacant} and noise {noise} must be shares that sum to at most 1")
        self._source = source
        self._vacant = vacant
        self._noise = noise
        self._seed = seed
        self.replaced: dict[Link, Label] = {}  # wrong parents given so far: asked again, the answer is the same
        self.owed: dict[Link, None] = {}  # to be replaced once another class of the parent's level is known

    def query(self, label: Label, known: Collection[Label]) -> list[Statement]:
        answer: list[Statement] = []
        wrong = {link: None for link in self.owed if link[1].level == label.level}  # a dict, which keeps the order
        for said in self._source.query(label, known):
            if isinstance(said, Synonym) or (fate := self._draw(*said)) >= self._vacant + self._noise:
                answer.append(said)
            elif said in self.replaced:
                answer.append((said[0], self.replaced[said]))
            elif fate >= self._vacant:
                wrong[said] = None
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
        self.owed = {(Label(c, i), Label(p, j)): None for c, i, p, j in state.get("owed", [])}  # older ones have none

    def _draw(self, child: Label, parent: Label) -> float:
        """A number in [0, 1) that belongs to the link."""
        text = repr((self._seed, *child, *parent)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest()) / 2**56
