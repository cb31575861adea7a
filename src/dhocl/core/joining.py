"""Join two trees."""

from __future__ import annotations

from typing import NamedTuple

from dhocl.core.taxonomy import UNKNOWN, Label, Taxonomy


class Contradiction(NamedTuple):
    child: Label
    kept: Label  # its parent
    other: Label  # its parent in the other tree, on the same level


def join(base: Taxonomy, more: Taxonomy) -> tuple[Taxonomy, list[Contradiction]]:
    """`base` with the classes, names and links of `more`. Of two parents the finer one is used, else that of `base`.

    Classes with the same name and level are one. So are two of `base`, if they are names of one class in `more`.

    >>> a, b = Taxonomy(), Taxonomy()
    >>> a.link(a.add(Label("robin", 1)), a.add(Label("bird", 0)))
    >>> b.link(b.add(Label("robin", 1)), b.add(Label("fish", 0)))
    >>> b.link(b.add(Label("cod", 1)), b.id(Label("fish", 0)))
    >>> joined, contradictions = join(a, b)
    >>> [label.name for label in joined], [(kept.name, other.name) for _, kept, other in contradictions]
    (['robin', 'bird', 'fish', 'cod'], [('bird', 'fish')])
    """
    joined, contradictions = base.copy(), []
    for label in more:
        joined.add(label)
    for name, label in more.other_names():
        joined.merge(joined.add(name), joined.id(label))
    for label in more:
        if (stated := more.parent(more.id(label))) == UNKNOWN:
            continue
        node, parent = joined.id(label), joined.id(more.labels[stated])
        present = joined.parent(node)
        if present == UNKNOWN or joined.labels[present].level < joined.labels[parent].level:
            joined.link(node, parent)
        elif present != parent and joined.labels[present].level == joined.labels[parent].level:
            contradictions.append(Contradiction(label, joined.labels[present], joined.labels[parent]))
    return joined, contradictions
