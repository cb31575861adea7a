"""Content of the responses of the service, as plain values."""

from __future__ import annotations

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


def metrics(snapshot: Snapshot, accepted: int, queued: int, per_second: float) -> dict[str, Any]:
    taxonomy = snapshot.taxonomy
    classes = dict.fromkeys(snapshot.ranks, 0)
    for node, label in enumerate(taxonomy.labels):
        classes[snapshot.ranks[label.level]] += taxonomy.accepted(node) == node
    return {
        "accepted": accepted,
        "learned": snapshot.learned,
        "refused": snapshot.refused,
        "queued": queued,
        "per_second": round(per_second, 2),
        "ranks": snapshot.progress,
        "history": snapshot.history,
        "classes": classes,
    }


def prometheus(numbers: dict[str, Any]) -> str:
    """The metrics in the text format of Prometheus."""
    lines = []

    def series(name: str, kind: str, about: str, values: dict[str, float | None]) -> None:
        lines.extend([f"# HELP dhocl_{name} {about}", f"# TYPE dhocl_{name} {kind}"])
        lines.extend(f"dhocl_{name}{label} {value}" for label, value in values.items() if value is not None)

    def by_rank(values: dict[str, float | None]) -> dict[str, float | None]:
        return {f'{{rank="{_escaped(rank)}"}}': value for rank, value in values.items()}

    series("accepted_total", "counter", "Observations accepted.", {"": numbers["accepted"]})
    series("learned_total", "counter", "Observations learned.", {"": numbers["learned"]})
    series("refused_total", "counter", "Observations that could not be learned.", {"": numbers["refused"]})
    series("queued", "gauge", "Entries that wait to be applied.", {"": numbers["queued"]})
    for name, kind, about, key in (
        ("seen_total", "counter", "Observations evaluated at a rank.", "seen"),
        ("correct_total", "counter", "Observations predicted correctly before they were learned.", "correct"),
        ("recent_accuracy", "gauge", "Accuracy over the last observations of a rank.", "recent"),
    ):
        series(name, kind, about, by_rank({rank: found[key] for rank, found in numbers["ranks"].items()}))
    series("classes", "gauge", "Known classes.", by_rank(numbers["classes"]))
    return "\n".join(lines) + "\n"


def observation(entry: Entry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "name": entry.content["name"],
        "rank": entry.content["rank"],
        "time": entry.time,
        "state": "learned" if entry.state == "done" else entry.state,
        "predicted": (entry.outcome or {}).get("predicted"),
        "thumbnail": f"/observations/{entry.number}/thumbnail",
    }


def _or_none(node: int) -> int | None:
    return None if node == UNKNOWN else node


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
