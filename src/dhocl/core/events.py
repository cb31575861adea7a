"""Class labels, and the log of changes of a tree."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, overload

UNKNOWN = -1


class Label(NamedTuple):
    """A class. Level 0 is the coarsest. The pair identifies it: names alone repeat across levels of padded trees."""

    name: str
    level: int

    def __str__(self) -> str:
        return f"{self.name!r} (level {self.level})"


class Event(NamedTuple):
    """One change of the tree. `time` is the batch it happened in.

    `parent` is set for links only, `label` for what is added or renamed, `into` for merges.
    """

    time: int
    kind: Literal["add", "link", "unlink", "rename", "merge"]
    node: int
    parent: int = UNKNOWN
    label: Label | None = None
    into: int = UNKNOWN

    def to_json(self) -> str:
        line: dict[str, object] = {"time": self.time, "event": self.kind, "node": self.node}
        if self.label is not None:
            line |= {"name": self.label.name, "level": self.label.level}
        if self.kind == "link":
            line["parent"] = self.parent
        if self.kind == "merge":
            line["into"] = self.into
        return json.dumps(line, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Event:
        line = json.loads(text)
        label = Label(line["name"], line["level"]) if "name" in line else None
        parent, into = line.get("parent", UNKNOWN), line.get("into", UNKNOWN)
        return cls(line["time"], line["event"], line["node"], parent, label, into)


class EventLog(Sequence[Event]):
    """Events, stored in columns: a million objects would slow down every garbage collection."""

    def __init__(self, columns: Iterable[list[Any]] | None = None) -> None:
        self._columns: tuple[list[Any], ...] = tuple(columns or ([] for _ in Event._fields))
        self._time, self._kind, self._node, self._parent, self._label, self._into = self._columns

    def note(
        self,
        time: int,
        kind: str,
        node: int,
        parent: int = UNKNOWN,
        label: Label | None = None,
        into: int = UNKNOWN,
    ) -> None:
        self._time.append(time)
        self._kind.append(kind)
        self._node.append(node)
        self._parent.append(parent)
        self._label.append(label)
        self._into.append(into)

    def __copy__(self) -> EventLog:
        return EventLog(list(column) for column in self._columns)

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, at: int) -> Event: ...

    @overload
    def __getitem__(self, at: slice) -> list[Event]: ...

    def __getitem__(self, at: int | slice) -> Event | list[Event]:
        if isinstance(at, slice):
            return [Event(*fields) for fields in zip(*(column[at] for column in self._columns), strict=True)]
        return Event(*(column[at] for column in self._columns))

    def __iter__(self) -> Iterator[Event]:
        return map(Event._make, zip(*self._columns, strict=True))
