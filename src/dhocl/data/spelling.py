"""Questions about labels that look like mistakes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from dhocl.core.taxonomy import Label

ALIKE = 0.9  # ratio of `SequenceMatcher` from which on two names may be the same; 1 if they are equal

END = 3  # letters


def questions(labels: Mapping[Label, int], known: Iterable[Label], levels: Sequence[str]) -> Iterator[str]:
    """A question for each new label that is known at another level, or nearly equal to a known or more frequent one.

    Args:
        labels: number of images of each label.
        known: classes of the model and of its tree.
        levels: names of the levels.

    >>> known = [Label("Corvus corax", 1), Label("Corvidae", 0)]
    >>> new = {Label("Corvus_corrax", 1): 2, Label("Corvidae", 1): 1}
    >>> for question in questions(new, known, ("family", "species")):
    ...     print(question)
    'Corvus_corrax' (species, images: 2) is new: is it 'Corvus corax'?
    'Corvidae' (species, images: 1) is new: 'Corvidae' is known as family
    """
    there = set(known)
    at: defaultdict[str, set[int]] = defaultdict(set)  # name in lower case -> levels where it is known
    alike: defaultdict[tuple[int, str], list[Label]] = defaultdict(list)  # level and end of a name -> labels
    for label in {*there, *labels}:
        at[key(label.name)] |= {label.level} if label in there else set()
        for end in ends(label.name):
            alike[label.level, end].append(label)
    counts = Counter(labels) + Counter(dict.fromkeys(there, 1_000_000_000))
    for label, count in labels.items():
        if label in there:
            continue
        start = f"{label.name!r} ({levels[label.level]}, images: {count}) is new"
        alike_here = {other for end in ends(label.name) for other in alike[label.level, end]}
        others = sorted(other.name for other in alike_here if _before(other, label, counts))
        if (near := nearest(label.name, others)) is not None:
            yield f"{start}: is it {near!r}?"
        elif elsewhere := at[key(label.name)] - {label.level}:
            yield f"{start}: {label.name!r} is known as {levels[min(elsewhere)]}"


def _before(other: Label, label: Label, counts: Counter[Label]) -> bool:
    """Whether the other name is the more frequent one."""
    return (-counts[other], other) < (-counts[label], label)


def nearest(name: str, others: Iterable[str], least: float = ALIKE) -> str | None:
    """The most similar name, if it is similar enough."""
    matcher = SequenceMatcher(b=key(name))
    best, found = least, None
    for other in others:
        if abs(len(other) - len(name)) > 2:
            continue
        matcher.set_seq1(key(other))
        if matcher.real_quick_ratio() >= best and matcher.quick_ratio() >= best and (ratio := matcher.ratio()) >= best:
            best, found = ratio, other
    return found


def ends(name: str) -> tuple[str, str]:
    """Beginning and end, marked as such. A mistake leaves one of them intact, so that few names are compared."""
    written = key(name)
    return f"{written[:END]}...", f"...{written[-END:]}"


def key(name: str) -> str:
    """Equal for names that differ in case, spaces or underscores only."""
    return " ".join(name.replace("_", " ").lower().split())
