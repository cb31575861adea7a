"""Content of the responses of the service, as plain values."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dhocl.core.taxonomy import UNKNOWN, Event
from dhocl.service.journal import Entry
from dhocl.service.served import Snapshot


def tree(snapshot: Snapshot) -> dict[str, Any]:
    """The accepted classes, without synonyms."""
    taxonomy = snapshot.taxonomy
    added = {event.node: number for number, event in enumerate(taxonomy.events, 1) if event.kind == "add"}
    nodes = [
        {
            "id": node,
            "name": label.name,
            "rank": snapshot.ranks[label.level],
            "parent": _or_none(taxonomy.parent(node)),
            "since": added[node],
        }
        for node, label in enumerate(taxonomy.labels)
        if taxonomy.accepted(node) == node
    ]
    return {"ranks": snapshot.ranks, "version": taxonomy.version, "nodes": nodes}


def tree_events(snapshot: Snapshot, since: int) -> dict[str, Any]:
    taxonomy = snapshot.taxonomy
    changes = enumerate(taxonomy.events[since:], since + 1)
    return {"version": taxonomy.version, "events": [_event(number, event, snapshot.ranks) for number, event in changes]}


def _event(number: int, event: Event, ranks: list[str]) -> dict[str, Any]:
    content: dict[str, Any] = {"number": number, "kind": event.kind, "node": event.node, "time": event.time}
    if event.label is not None:
        content |= {"name": event.label.name, "rank": ranks[event.label.level]}
    if event.kind == "link":
        content["parent"] = event.parent
    if event.kind == "merge":
        content["into"] = event.into
    return content


def metrics(snapshot: Snapshot) -> dict[str, Any]:
    """Of the model alone."""
    taxonomy = snapshot.taxonomy
    classes = dict.fromkeys(snapshot.ranks, 0) | {snapshot.ranks[level]: n for level, n in taxonomy.sizes.items()}
    return {
        "learned": snapshot.learned,
        "refused": snapshot.refused,
        "deleted": snapshot.deleted,
        "relabelled": snapshot.relabelled,
        "ranks": snapshot.progress,
        "history": snapshot.history,
        "classes": classes,
    }


def confusions(snapshot: Snapshot, most: int) -> dict[str, list[dict[str, Any]]]:
    """By rank the pairs of classes that are confused, most frequent first, by their present names."""
    taxonomy = snapshot.taxonomy
    found = {}
    for rank, counts in snapshot.confusions.items():
        present: Counter[tuple[int, int]] = Counter()
        for (true, predicted), count in counts.items():
            present[taxonomy.accepted(true), taxonomy.accepted(predicted)] += count
        apart = [pair for pair in present.most_common() if len(set(pair[0])) == 2]  # merged classes are not confused
        found[rank] = [
            {"true": taxonomy.labels[true].name, "predicted": taxonomy.labels[predicted].name, "count": count}
            for (true, predicted), count in apart[:most]
        ]
    return found


def observation(entry: Entry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "name": entry.content["name"],
        "rank": entry.content["rank"],
        "time": entry.time,
        "state": "learned" if entry.state == "done" else entry.state,
        "predicted": (entry.outcome or {}).get("predicted"),
        "thumbnail": f"/observations/{entry.number}/thumbnail",
        "observer": entry.content.get("observer"),
        "was": entry.content.get("was"),
    }


def correction(entry: Entry) -> dict[str, Any]:
    label = {name: entry.content[name] for name in ("name", "rank") if name in entry.content}
    return {"number": entry.number, "of": entry.target, "kind": entry.content["kind"], "state": entry.state} | label


def _or_none(node: int) -> int | None:
    return None if node == UNKNOWN else node
