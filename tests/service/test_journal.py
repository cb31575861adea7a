from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dhocl.core.errors import InputError
from dhocl.service import journal as module
from dhocl.service.corrections import erase
from dhocl.service.images import Decoded
from dhocl.service.journal import Journal, Outcome, Post

ROOM = 12
IMAGE = Decoded(b"1", b"2")


class Sequence(RuleBasedStateMachine):
    """Compared with a list: whatever happens, what was accepted is there, in order, under numbers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(module, "IMAGES", 3), patch.object(module, "ROWS", 6)]
        for each in self.patches:
            each.start()
        self.folder = Path(tempfile.mkdtemp())
        self.copies = 0
        self.journal = Journal(self.folder / "0")
        self.entries: list[tuple[str, dict[str, str], bytes | None]] = []
        self.targets: dict[int, int] = {}  # correction -> observation
        self.erased: set[int] = set()
        self.applied = 0
        self.covered = 0

    @rule(
        names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5),
        times=st.integers(1, 3),
    )
    def observe(self, names: list[str], times: int) -> None:
        contents = [{"name": name, "rank": "kind"} for name in names]
        images = [f"{len(self.entries)} {place}".encode() for place in range(len(names))]
        self._append("observation", contents, images, times)

    @rule(name=st.text(st.characters(exclude_categories=["Cs"])))
    def revise(self, name: str) -> None:
        self._append("revision", [{"to": name}], [], times=1)

    @precondition(lambda self: len(self.entries) - self.applied < ROOM)
    @rule(back=st.integers(0, 9), kind=st.sampled_from(["delete", "relabel"]))
    def correct(self, back: int, kind: str) -> None:
        stored = [n for n in range(1, len(self.entries) + 1) if self.journal.thumbnail(n)]
        if stored:
            content, target = {"kind": kind, "name": "b", "rank": "kind"}, stored[-1 - back % len(stored)]
            number = len(self.entries) + 1
            assert self.journal.append([Post("correction", [content], targets=[target])], room=ROOM) == [[number]]
            self.entries.append(("correction", content, None))
            self.targets[number] = target

    @rule()
    def erase(self) -> None:
        """Both checkpoints cover everything up to here."""
        deleted = {target for n, target in self.targets.items() if self._is_deletion(n) and n <= self.covered}
        erase(self.journal, self.covered)
        self.erased |= deleted

    def _is_deletion(self, number: int) -> bool:
        return self.entries[number - 1][1]["kind"] == "delete"

    def _append(self, kind: str, contents: list[dict[str, str]], images: list[bytes], times: int) -> None:
        post = Post(kind, contents, [Decoded(image, b"small " + image) for image in images])
        first, room = len(self.entries) + 1, ROOM - (len(self.entries) - self.applied)
        fitting = [place for place in range(times) if (place + 1) * len(contents) <= room]
        expected = [list(range(first + n, first + n + len(contents))) for n in range(0, 99, len(contents))]
        found = self.journal.append([post] * times, room=ROOM)
        assert found == [expected[place] if place in fitting else None for place in range(times)]
        for _ in fitting:
            self.entries.extend((kind, c, image) for c, image in zip(contents, images or [None], strict=True))

    @rule(count=st.integers(1, 5))
    def apply(self, count: int) -> None:
        numbers = [entry.number for entry in self.journal.after(self.applied, count)]
        self.journal.settle(self.applied, [Outcome(number, "done", {"right": {}}) for number in numbers])
        self.applied += len(numbers)

    @rule()
    def cover(self) -> None:
        self.covered = self.applied
        self.journal.prune(self.covered)

    @rule()
    def crash(self) -> None:
        """What is on disk at this moment is all that the next one finds."""
        self.copies += 1
        for end in ("", "-wal"):
            file = self.folder / f"{self.copies - 1}{end}"
            if file.exists():
                shutil.copy(file, self.folder / f"{self.copies}{end}")
        self.journal.close()
        self.journal = Journal(self.folder / str(self.copies))

    @invariant()
    def nothing_is_lost(self) -> None:
        found = self.journal.after(self.applied, 100)
        assert [(e.kind, e.content) for e in found] == [(k, c) for k, c, _ in self.entries[self.applied :]]
        assert all(entry.state == "queued" for entry in found)
        assert self.journal.queued == len(found)
        assert self.journal.observations == sum(kind == "observation" for kind, _, _ in self.entries)
        assert self.journal.last == len(self.entries)
        assert self.journal.whole(self.covered)

    @invariant()
    def images_are_there_as_long_as_they_are_needed(self) -> None:
        newest = [n for n, (kind, _, _) in enumerate(self.entries, 1) if kind == "observation"][-3:]
        needed = {target for n, target in self.targets.items() if n > self.covered}
        for number, (_, _, image) in enumerate(self.entries, 1):
            if number in self.erased:
                assert self.journal.thumbnail(number) is None
            elif number > self.covered or number in newest or number in needed:
                assert self.journal.pixels(number, number) == ({} if image is None else {number: image})
                assert self.journal.thumbnail(number) == (None if image is None else b"small " + image)

    @invariant()
    def it_does_not_grow_for_ever(self) -> None:
        self.journal.prune(self.covered)
        kept = [n for n in range(1, len(self.entries) + 1) if self.journal.entry(n)]
        needed = {target for n, target in self.targets.items() if n > self.covered}
        extra = len(needed) + sum(target in needed for target in self.targets.values())
        assert needed <= set(kept)
        assert len(kept) <= max(6, len(self.entries) - self.covered) + extra
        images = [n for n in range(1, len(self.entries) + 1) if self.journal.thumbnail(n)]
        assert len(images) <= max(3, len(self.entries) - self.covered) + len(needed)
        assert self.journal.recent(99) == [
            entry
            for entry in map(self.journal.entry, range(len(self.entries), 0, -1))
            if entry and entry.kind == "observation" and entry.number not in self._deleted()
        ]

    def _deleted(self) -> set[int]:
        return {target for n, target in self.targets.items() if n <= self.applied and self._is_deletion(n)}

    def teardown(self) -> None:
        self.journal.close()
        shutil.rmtree(self.folder)
        for each in self.patches:
            each.stop()


Sequence.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestSequence = Sequence.TestCase


def test_a_batch_is_accepted_whole_or_not_at_all(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    with pytest.raises(TypeError):
        journal.append([Post("observation", [{"name": "a"}, {"name": object()}], [IMAGE, IMAGE])])
    assert journal.after(0, 10) == []
    assert journal.append([Post("observation", [{"name": "a", "rank": "kind"}], [IMAGE])]) == [[1]]
    assert journal.observations == 1


def test_a_journal_that_lacks_something_is_found_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.append([Post("observation", [{"name": "a", "rank": "kind"}] * 3, [IMAGE] * 3)])
    assert journal.whole(0)
    assert not journal.whole(4), "a model that knows more than was ever accepted"
    with sqlite3.connect(tmp_path / "j") as other:
        other.execute("DELETE FROM images WHERE number = 2")
    assert journal.whole(2)
    assert not journal.whole(1)


def test_what_is_no_journal_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(InputError, match="can not be used as a journal"):
        Journal(tmp_path / "j")
    with sqlite3.connect(tmp_path / "k") as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="another version"):
        Journal(tmp_path / "k")
