"""Asking a knowledge source: again until it answers, and its answers go through the journal."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dhocl import Label
from dhocl.core.taxonomy import Taxonomy
from dhocl.knowledge import Synonym
from dhocl.service.asking import AskingThread
from tests.helpers.engines import observe, work_off
from tests.helpers.serving import examples, leave, opened

pytestmark = pytest.mark.usefixtures("short_memory")


class Slow:
    """Answers the second time it is asked about a class."""

    def __init__(self) -> None:
        self.asked: list[Label] = []

    def query(self, label: Label, known: Any) -> list[Any]:
        self.asked.append(label)
        if label.level == 0 or self.asked.count(label) < 2:
            return []
        return [(label, Label("bird" if label.name in ("robin", "crow") else "fish", 0))]


def test_a_source_is_asked_until_it_answers_and_heard_through_the_journal(tmp_path: Path) -> None:
    service = opened(tmp_path / "m")
    source = Slow()
    asker = AskingThread(source, lambda: service.engine.snapshot.taxonomy, service._answered)
    observe(service, examples(30))
    work_off(service)
    asker.poll(0.0)
    assert sorted(set(source.asked)) == sorted(service.engine.snapshot.taxonomy)
    assert service.journal.queued == 0
    asker.poll(0.9)
    assert len(source.asked) == 6, "not yet due"
    asker.poll(1.0)
    assert service.journal.queued == 4
    work_off(service)
    tree = service.engine.snapshot.taxonomy
    assert {tree.labels[tree.parent(tree.id(Label(n, 1)))].name for n in ("robin", "crow")} == {"bird"}
    asked = len(source.asked)
    asker.poll(2.0)
    assert all(label.level == 0 for label in source.asked[asked:]), "who has an answer is left alone"
    leave(service)
    again = opened(tmp_path / "m")
    work_off(again)
    assert again.engine.snapshot.taxonomy.dumps() == tree.dumps(), "a replay hears the same"
    leave(again)


def test_a_source_that_fails_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    tree = Taxonomy()
    tree.add(Label("bird", 0))
    robin, merle = tree.add(Label("robin", 1)), tree.add(Label("merle", 1))
    heard: list[Any] = []

    class Failing:
        asked = 0

        def query(self, label: Label, known: Any) -> list[Any]:
            self.asked += label.name == "merle"
            if self.asked == 1:
                raise OSError("no network")
            return [Synonym(label, Label("robin", 1))] if label.name == "merle" else []

    asker = AskingThread(Failing(), lambda: tree, heard.append)
    with caplog.at_level(logging.CRITICAL):
        asker.poll(0.0)
    assert heard == []
    asker.poll(1.0)
    assert heard == [[Synonym(Label("merle", 1), Label("robin", 1))]]
    tree.merge(merle, robin)
    asker.poll(100.0)
    assert len(heard) == 1, "a merged class is not asked about"


def test_an_answer_that_can_not_be_stored_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    tree = Taxonomy()
    tree.add(Label("bird", 0))
    tree.add(Label("robin", 1))
    stored: list[Any] = []

    class Knows:
        def query(self, label: Label, known: Any) -> list[Any]:
            return [(label, Label("bird", 0))] if label.level else []

    def store(answer: list[Any]) -> None:
        if not caplog.records:
            raise sqlite3.OperationalError("disk is full")
        stored.append(answer)

    asking = AskingThread(Knows(), lambda: tree, store)
    asking.poll(0.0)
    assert stored == []
    asking.poll(1.0)
    assert stored == [[(Label("robin", 1), Label("bird", 0))]]
