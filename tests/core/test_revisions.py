"""What a source may say beside links of new classes, and what the curator makes of it."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.knowledge import Chain, Corrupted, Curator, Statement, Synonym

FAMILY, PARUS, CYANISTES = Label("Paridae", 0), Label("Parus", 1), Label("Cyanistes", 1)
OLD, NEW, GREAT = Label("Parus caeruleus", 2), Label("Cyanistes caeruleus", 2), Label("Parus major", 2)


class Says:
    """Answers a class's questions with what it was told to say, one after the other."""

    def __init__(self, answers: dict[Label, list[list[Statement]]]) -> None:
        self.answers = answers

    def query(self, label: Label, known: Collection[Label]) -> list[Statement]:
        answers = self.answers.get(label)
        return answers.pop(0) if answers else []


def curated(answers: dict[Label, list[list[Statement]]], *batches: list[Label], delay: int = 0) -> Curator:
    curator = Curator(Says(answers), delay, retry=True)
    for batch in batches:
        curator.observe(batch)
    return curator


def changes(tree: Taxonomy) -> list[tuple[str, str]]:
    """What the log says after the classes were added."""
    return [(event.kind, tree.labels[event.node].name) for event in tree.events if event.kind != "add"]


def test_a_synonym_takes_the_accepted_name_and_is_that_class_when_it_comes() -> None:
    curator = curated({OLD: [[Synonym(OLD, NEW)]]}, [OLD])
    tree = curator.taxonomy
    assert list(tree) == [NEW]
    assert curator.observe([NEW, OLD]).tolist() == [0, 0]
    assert changes(tree) == [("rename", NEW.name)]


@pytest.mark.parametrize("order", [(OLD, NEW), (NEW, OLD)])
def test_a_synonym_is_merged_into_the_accepted_class_whichever_came_first(order: tuple[Label, Label]) -> None:
    curator = curated({order[1]: [[Synonym(OLD, NEW)]]}, [order[0]], [order[1]])
    tree = curator.taxonomy
    accepted = order.index(NEW)
    assert curator.observe([OLD, NEW]).tolist() == [accepted, accepted]
    assert list(tree) == [NEW]
    assert changes(tree) == [("merge", OLD.name)]
    assert curator.asker.waiting.keys() <= {accepted}, "nobody waits for news of a synonym"


def test_a_class_that_was_only_renamed_is_asked_about_again() -> None:
    curator = curated({OLD: [[Synonym(OLD, NEW)]], NEW: [[(NEW, CYANISTES)]]}, [CYANISTES, OLD], [OLD])
    assert changes(curator.taxonomy) == [("rename", NEW.name), ("link", NEW.name)]


def test_a_class_moves_to_another_parent_but_not_to_a_coarser_one() -> None:
    answers: dict[Label, list[list[Statement]]] = {
        PARUS: [[(OLD, PARUS)]],
        CYANISTES: [[], [(OLD, CYANISTES)]],
        FAMILY: [[], [(OLD, FAMILY)]],
    }
    curator = curated(answers, [OLD, PARUS], [CYANISTES, FAMILY], [OLD])
    tree = curator.taxonomy
    assert tree.labels[tree.parent(tree.id(OLD))] == CYANISTES
    assert [event.kind for event in tree.events].count("link") == 2


def test_what_was_placed_by_hand_is_not_moved() -> None:
    curator = curated({CYANISTES: [[(OLD, CYANISTES), (GREAT, CYANISTES)]]}, [OLD, GREAT, PARUS])
    tree = curator.taxonomy
    tree.link(tree.id(OLD), tree.id(PARUS))
    curator.settle(tree.id(OLD))
    again = Curator(curator.asker.source, 0, retry=True)
    again.load_state_dict(curator.state_dict())
    again.observe([CYANISTES])
    tree = again.taxonomy
    assert [tree.labels[tree.parent(tree.id(label))] for label in (OLD, GREAT)] == [PARUS, CYANISTES]


def test_a_split_is_announced_by_links_of_new_children() -> None:
    curator = curated({PARUS: [[(GREAT, PARUS), (OLD, PARUS)]]}, [PARUS, GREAT])
    tree = curator.taxonomy
    assert list(tree) == [PARUS, GREAT, OLD]
    assert tree.children(0) == [1, 2]
    assert curator.observe([OLD]).tolist() == [2]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ((GREAT, Label("Corvus", 1)), "'Corvus' (level 1) is not in the taxonomy"),
        ((PARUS, GREAT), "breaks the level order"),
        ((PARUS, PARUS), "makes a cycle"),
        ((Label("Aves", 0), PARUS), "the new class 'Aves' (level 0) can not lie below 'Parus' (level 1)"),
        (Synonym(OLD, GREAT), "'Parus caeruleus' (level 2) is not in the taxonomy"),
        (Synonym(GREAT, PARUS), "their levels differ"),
        (Synonym(GREAT, Label("Parus major", 1)), "a class stays on its level"),
    ],
)
def test_what_can_not_be_is_refused_and_logged(caplog: pytest.LogCaptureFixture, said: Statement, why: str) -> None:
    curator = curated({GREAT: [[said, (GREAT, PARUS)]]}, [PARUS, GREAT])
    assert why in caplog.text
    assert list(curator.taxonomy) == [PARUS, GREAT]
    assert changes(curator.taxonomy) == [("link", GREAT.name)], "the rest of the answer counts"


def test_revisions_under_way_survive_a_restart() -> None:
    first = curated({OLD: [[Synonym(OLD, NEW), (OLD, CYANISTES)]]}, [CYANISTES, OLD], delay=2)
    second = Curator(Says({}), 2, retry=True)
    second.load_state_dict(first.state_dict())
    for curator in (first, second):
        curator.observe([OLD])
        curator.observe([OLD])
    assert changes(first.taxonomy) == [("rename", NEW.name), ("link", NEW.name)]
    assert second.taxonomy.dumps() == first.taxonomy.dumps()


def test_what_is_told_after_a_restart_happened_now() -> None:
    first = curated({}, [PARUS, GREAT], [PARUS], [PARUS])
    second = Curator(Says({}), retry=True)
    second.load_state_dict(first.state_dict())
    second.apply([(GREAT, PARUS)])
    assert [event.time for event in second.taxonomy.events] == [1, 1, 3]


def test_synonyms_pass_through_a_chain_and_a_source_with_errors() -> None:
    source = Corrupted(Chain(Says({OLD: [[Synonym(OLD, NEW), (OLD, PARUS)]]})), vacant=1.0)
    assert source.query(OLD, [PARUS]) == [Synonym(OLD, NEW)]


NAMES = st.builds(Label, st.sampled_from("abcd"), st.integers(0, 2))


@given(
    st.lists(
        st.tuples(NAMES, st.lists(st.one_of(st.tuples(NAMES, NAMES), st.builds(Synonym, NAMES, NAMES)), max_size=3)),
        max_size=12,
    ),
    st.integers(0, 2),
)
def test_whatever_a_source_says_the_tree_stays_one(story: list[tuple[Label, list[Statement]]], delay: int) -> None:
    curator = Curator(Says({}), delay)
    for label, answer in story:
        curator.source = Says({label: [answer]})
        (node,) = curator.observe([label]).tolist()
        tree = curator.taxonomy
        assert tree.accepted(node) == node == tree.id(label)
        for child in map(tree.id, tree):
            levels = [tree.labels[above].level for above in tree.lineage(child)]
            assert levels == sorted(set(levels), reverse=True)
        assert Taxonomy.loads(tree.dumps()).paths.tolist() == tree.paths.tolist()
