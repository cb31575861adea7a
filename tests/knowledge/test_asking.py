from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from threading import Event, active_count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.taxonomy import Label
from dhocl.knowledge import Background, Chain, Curator, KnowledgeSource, Link, Oracle, Silent
from dhocl.knowledge.asking import Asker
from tests.helpers.trees import balanced_tree
from tests.helpers.waiting import grows_in_the_background, until

TRUE = balanced_tree(2, 2, 2)
ROOT, MIDDLE, LEAF = Label("0", 0), Label("0.0", 1), Label("0.0.0", 2)


class Later:
    """Has an answer from a certain question on; keeps what it was asked."""

    def __init__(self, links: list[Link], at: int = 0) -> None:
        self.links, self.at = links, at
        self.asked: list[Label] = []

    def query(self, label: Label, known: Collection[Label]) -> list[Link]:
        self.asked.append(label)
        return self.links if len(self.asked) > self.at else []


class Held:
    """Answers from the true tree once it is let go; keeps what it was asked."""

    def __init__(self) -> None:
        self.go, self.begun = Event(), Event()
        self.asked: list[Label] = []

    def query(self, label: Label, known: Collection[Label]) -> list[Link]:
        self.asked.append(label)
        self.begun.set()
        assert self.go.wait(60)
        return Oracle(TRUE).query(label, known)


def test_a_class_without_an_answer_is_asked_about_after_1_2_4_8_batches() -> None:
    source = Later([], at=99)
    curator = Curator(source, delay=0, retry=True)
    steps = []
    for step in range(20):
        curator.observe([LEAF])
        steps += [step] * (len(source.asked) - len(steps))
    assert steps == [0, 1, 2, 4, 8, 16]


def test_without_asking_again_a_class_is_asked_about_once() -> None:
    source = Later([], at=99)
    curator = Curator(source, delay=0)
    for _ in range(9):
        curator.observe([LEAF, ROOT])
    assert source.asked == [LEAF, ROOT]


def test_an_answer_ends_the_questions_and_is_usable_after_the_delay() -> None:
    source = Later([(LEAF, MIDDLE)], at=3)
    curator = Curator(source, delay=2, retry=True)
    parents = []
    for _ in range(9):
        curator.observe([MIDDLE, LEAF])
        parents.append(curator.taxonomy.parent(1))
    # Two in each of the first batches; what is said of the leaf is no answer about what is above the other.
    assert source.asked == [MIDDLE, LEAF, MIDDLE, LEAF, MIDDLE, MIDDLE, MIDDLE]
    assert parents == [-1, -1, -1, 0, 0, 0, 0, 0, 0]


class Upward:
    """Knows the nearest known class above a class, and nothing else."""

    def query(self, label: Label, known: Collection[Label]) -> list[Link]:
        return [(child, parent) for child, parent in Oracle(TRUE).query(label, known) if child == label]


@given(st.permutations(TRUE.labels), st.integers(0, 3), st.integers(1, 5))
def test_a_source_need_not_know_more_than_the_parent(order: list[Label], delay: int, batch: int) -> None:
    curator = Curator(Upward(), delay, retry=True)
    for start in range(0, len(order), batch):
        curator.observe(order[start : start + batch])
    for _ in range(2 * len(order) + delay):  # whoever waits is asked about before it has waited twice as long
        curator.observe([ROOT])
    tree = curator.taxonomy
    for label in TRUE:
        true = [TRUE.labels[node] for node in TRUE.lineage(TRUE.id(label))]
        assert [tree.labels[node] for node in tree.lineage(tree.id(label))] == true
    assert {tree.labels[node].level for node in curator.asker.waiting} <= {0}


def test_what_is_told_by_hand_or_merged_is_not_asked_about() -> None:
    source = Later([], at=99)
    curator = Curator(source, delay=0, retry=True)
    curator.observe([ROOT, MIDDLE, LEAF, Label("twin", 2)])
    tree = curator.taxonomy
    curator.settle(tree.id(LEAF))
    tree.merge(tree.id(Label("twin", 2)), tree.id(LEAF))
    source.asked.clear()
    curator.observe([LEAF])
    assert source.asked == [ROOT, MIDDLE]


def test_a_renamed_class_is_asked_about_by_its_new_name() -> None:
    source = Later([], at=99)
    curator = Curator(source, delay=0, retry=True)
    curator.observe([Label("robbin", 1)])
    curator.taxonomy.rename(0, Label("robin", 1))
    curator.observe([Label("robbin", 1)])
    assert source.asked == [("robbin", 1), ("robin", 1)]


def test_who_waits_for_an_answer_survives_a_restart() -> None:
    whole, first, second = (Curator(Later([(LEAF, MIDDLE)], at=at), 1, retry=True) for at in (5, 5, 1))
    for curator in (whole, whole, whole, whole, whole, first, first):
        curator.observe([MIDDLE, LEAF])
    second.load_state_dict(first.state_dict())
    for _ in range(3):
        second.observe([MIDDLE, LEAF])
    assert second.taxonomy.dumps() == whole.taxonomy.dumps()
    assert second.asker.waiting == whole.asker.waiting


class Broken:
    """Fails at every question."""

    def query(self, label: Label, known: Collection[Label]) -> list[Link]:
        raise OSError("no network")


def test_a_source_that_fails_is_logged_and_retried_or_raised(caplog: pytest.LogCaptureFixture) -> None:
    curator = Curator(Broken(), delay=0, retry=True)
    curator.observe([LEAF])
    assert "no answer about '0.0.0' (level 2): no network" in caplog.text
    assert curator.asker.waiting == {0: (1, 2)}
    with pytest.raises(OSError, match="no network"):
        Curator(Broken(), delay=0).observe([LEAF])


def test_the_pause_between_two_questions_is_bounded() -> None:
    tree = balanced_tree(1, 1)
    asker = Asker(Silent(), longest=3)
    times = []
    for now in range(20):
        if now == 0 or asker.due(tree, now):
            asker.ask(1, tree, now)
            times.append(now)
    assert times == [0, 1, 2, 4, 7, 10, 13, 16, 19]


def test_the_first_source_that_answers_is_believed() -> None:
    wrong, right = Later([(LEAF, ROOT)]), Later([(LEAF, MIDDLE)])
    assert Chain(Silent(), right, wrong).query(LEAF, [ROOT, MIDDLE]) == [(LEAF, MIDDLE)]
    assert wrong.asked == []
    assert Chain(Silent(), Silent()).query(LEAF, []) == []
    assert Chain().query(LEAF, []) == []


def test_a_slow_source_delays_the_tree_and_not_the_learner() -> None:
    held = Held()
    curator = Curator(Background(held), delay=0, retry=True)
    for _ in range(3):
        curator.observe([ROOT, MIDDLE, LEAF])  # comes back, though there is no answer
    tree = curator.taxonomy
    assert len(tree.unanchored) == 2
    held.go.set()

    def linked() -> bool:
        curator.observe([ROOT])
        return [tree.labels[node] for node in tree.lineage(tree.id(LEAF))] == [LEAF, MIDDLE, ROOT]

    until(linked)


@pytest.mark.parametrize("source", [Oracle(TRUE), Upward(), Chain(Silent(), Upward(), Oracle(TRUE))])
@pytest.mark.parametrize("order", [TRUE.labels, TRUE.labels[::-1]])
def test_any_source_can_be_asked_in_the_background(source: KnowledgeSource, order: list[Label]) -> None:
    links = {label: TRUE.parent(TRUE.id(label)) for label in TRUE if label.level}
    grows_in_the_background(source, order, {label: TRUE.labels[node] for label, node in links.items()})


def test_a_late_answer_from_a_smaller_vocabulary_does_not_undo_a_nearer_parent() -> None:
    class Script:
        def __init__(self) -> None:
            self.answers = {LEAF: [[], [], [(LEAF, ROOT)]], ROOT: [], MIDDLE: [[(MIDDLE, ROOT), (LEAF, MIDDLE)]]}

        def query(self, label: Label, known: Collection[Label]) -> list[Link]:
            return self.answers[label].pop(0) if self.answers[label] else []

    curator = Curator(Script(), delay=0, retry=True)
    for labels in ([ROOT, LEAF], [MIDDLE], [LEAF], [LEAF]):
        curator.observe(labels)
    tree = curator.taxonomy
    assert tree.parent(tree.id(LEAF)) == tree.id(MIDDLE)


def test_a_source_that_fails_has_no_answer_yet(caplog: pytest.LogCaptureFixture) -> None:
    class Fails:
        asked = 0

        def query(self, label: Label, known: Collection[Label]) -> list[Link]:
            self.asked += 1
            if self.asked == 1:
                raise RuntimeError("out of order")
            return Oracle(TRUE).query(label, known)

    background = Background(Fails())
    until(lambda: background.query(LEAF, [ROOT]) == [(LEAF, ROOT)])
    assert caplog.messages == ["no answer about '0.0.0' (level 2): out of order"]


def test_the_background_sees_the_classes_that_were_known_when_it_was_asked() -> None:
    held, known = Held(), [ROOT]
    background = Background(held)
    background.query(LEAF, known)
    known.append(MIDDLE)
    held.go.set()
    answers: list[Link] = []
    until(lambda: answers.extend(background.query(LEAF, known)) or answers)
    assert answers == [(LEAF, ROOT)]
    assert held.asked == [LEAF]


def test_a_closed_background_asks_no_more() -> None:
    threads, held = active_count(), Held()
    background = Background(held)
    for label in (LEAF, MIDDLE):
        background.query(label, [ROOT])
    assert held.begun.wait(60)
    Chain(Silent(), background).close()  # comes back, though the source hangs
    held.go.set()
    until(lambda: active_count() == threads)
    assert held.asked == [LEAF]
    assert background.query(MIDDLE, [ROOT]) == []


def test_a_source_that_hangs_does_not_keep_a_process_alive() -> None:
    program = """
import threading
from dhocl.knowledge import Background
from dhocl.core.taxonomy import Label

class Hangs:
    def query(self, label, known):
        begun.set()
        threading.Event().wait()

begun = threading.Event()
background = Background(Hangs())
print(background.query(Label("robin", 1), []))
begun.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
