"""Restricted answers, against sums over all paths, one by one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dhocl import Classifier, InputError, Taxonomy
from dhocl.classifier import restriction
from dhocl.classifier.files import predict_files
from dhocl.classifier.prediction import name_predictions
from dhocl.classifier.restriction import Allowed, restrict
from dhocl.core.decode import Beliefs, believe, known_paths, merge_synonyms, restricted
from dhocl.core.taxonomy import UNKNOWN, Label
from tests.helpers.albums import draw

LEVELS = ("family", "genus", "species")


@st.composite
def forests(draw: st.DrawFn) -> Taxonomy:
    """Trees with gaps: classes without a parent, links that skip a level, inner nodes without children, synonyms."""
    tree = Taxonomy()
    count = draw(st.integers(2, 9))
    for number in range(count):
        tree.add(Label(f"c{number}", draw(st.integers(0, 2))))
    for child in range(count):
        coarser = [node for node in range(count) if tree.labels[node].level < tree.labels[child].level]
        if coarser and draw(st.booleans()):
            tree.link(child, draw(st.sampled_from(coarser)))
    same = [(a, b) for a in range(count) for b in range(a) if tree.labels[a].level == tree.labels[b].level]
    if same and draw(st.booleans()):
        tree.merge(*draw(st.sampled_from(same)))
    return tree


def beliefs_of(tree: Taxonomy, seed: int, rows: int = 3) -> Beliefs:
    generator = torch.Generator().manual_seed(seed)
    draws = {level: torch.rand(rows, width, generator=generator) for level, width in tree.widths.items()}
    p = {level: p / p.sum(1, keepdim=True) for level, p in draws.items()}
    return believe(merge_synonyms(p, tree), tree)


@given(tree=forests(), seed=st.integers(0, 99), data=st.data())
def test_probabilities_are_those_of_the_paths_inside(tree: Taxonomy, seed: int, data: st.DataObject) -> None:
    allowed = data.draw(st.sets(st.integers(0, len(tree) - 1), min_size=1))
    before = beliefs_of(tree, seed)
    inside = Allowed(frozenset(allowed)).inside(tree)
    leaves = [node for node in range(len(tree)) if tree.accepted(node) == node and not tree.children(node)]
    real = {tree.accepted(node) for node in allowed}
    assert inside.tolist() == [bool(real & set(tree.lineage(leaf))) for leaf in leaves], "by hand, leaf by leaf"
    after = restricted(before, inside)
    for row in range(3):
        weights = {leaf: float(before.posterior[row, n]) for n, leaf in enumerate(leaves) if inside[n]}
        expected = [weight / sum(weights.values()) for weight in weights.values()]
        assert after.posterior[row].tolist() == pytest.approx(expected, abs=1e-5)
        for place, level in enumerate(tree.levels):
            on_paths = {tree.column(n) for leaf in weights for n in tree.lineage(leaf) if tree.labels[n].level == level}
            total = sum(float(before.levels[level][row, column]) for column in on_paths)
            for column, p in enumerate(after.levels[level][row].tolist()):
                own = float(before.levels[level][row, column]) / total if column in on_paths else 0
                assert p == pytest.approx(own, abs=1e-5)
                node = int(tree.nodes(level)[column])
                through = sum(weight for leaf, weight in weights.items() if node in tree.lineage(leaf))
                assert after.marginal(row, place, column) == pytest.approx(through / sum(weights.values()), abs=1e-5)
    for found in name_predictions(after, tree, LEVELS, top=9):
        named = {guess.name for guesses in [found.levels.values(), *found.alternatives.values()] for guess in guesses}
        possible = {tree.labels[n].name for n, leaf in enumerate(leaves) if inside[n] for n in tree.lineage(leaf)}
        assert named <= possible, "nothing from outside is named"


@given(tree=forests(), seed=st.integers(0, 99))
def test_everything_allowed_changes_nothing(tree: Taxonomy, seed: int) -> None:
    before = beliefs_of(tree, seed)
    assert restrict(tree, LEVELS).inside(tree).all()
    assert restricted(before, torch.ones(len(known_paths(tree)), dtype=torch.bool)) is before


def test_a_path_without_any_probability_is_still_possible() -> None:
    beliefs = Beliefs({0: torch.tensor([[1.0, 0.0, 0.0]])}, torch.tensor([[1.0, 0, 0]]), torch.tensor([[0], [1], [2]]))
    found = restricted(beliefs, torch.tensor([False, True, True]))
    assert found.posterior.tolist() == [[0.5, 0.5]]
    assert found.levels[0].tolist() == [[0, 0.5, 0.5]]


@pytest.fixture
def crows() -> Taxonomy:
    """Corvidae: Corvus with two species, Pica without; Paridae: Parus major; Corvus is also a constellation."""
    tree = Taxonomy()
    corvidae, paridae = tree.add(Label("Corvidae", 0)), tree.add(Label("Paridae", 0))
    corvus, pica, parus = (tree.add(Label(name, 1)) for name in ("Corvus", "Pica", "Parus"))
    for child, parent in [(corvus, corvidae), (pica, corvidae), (parus, paridae)]:
        tree.link(child, parent)
    for name, parent in [("Corvus corax", corvus), ("Corvus corone", corvus), ("Parus major", parus)]:
        tree.link(tree.add(Label(name, 2)), parent)
    return tree


def ends(tree: Taxonomy, within: str | None = None, among: object = None) -> set[str]:
    """The last name of each path inside."""
    inside = restrict(tree, LEVELS, within, among).inside(tree)  # type: ignore[arg-type]
    found = set()
    for path in known_paths(tree)[inside].tolist():
        place = max(place for place, column in enumerate(path) if column != UNKNOWN)
        found.add(tree.labels[int(tree.nodes(tree.levels[place])[path[place]])].name)
    return found


def test_a_clade(crows: Taxonomy) -> None:
    assert ends(crows, "Corvidae") == {"Corvus corax", "Corvus corone", "Pica"}
    assert ends(crows, "corvus_CORAX") == {"Corvus corax"}, "in any case, with underscores"
    crows.add(Label("Corvus", 2))
    with pytest.raises(InputError, match=r"`within` Corvus is a genus and a species: write genus:Corvus"):
        ends(crows, "Corvus")
    assert ends(crows, "Genus:Corvus") == {"Corvus corax", "Corvus corone"}
    with pytest.raises(InputError, match=r"`within` Corvidea: no such class; did you mean Corvidae\?"):
        ends(crows, "Corvidea")
    with pytest.raises(InputError, match=r"no known path is inside `within` Paridae and `among`"):
        ends(crows, "Paridae", ["Corvus corax"])


LISTS = {
    "names": "# of the park\nCorvus corax\n\ngenus:Parus\n",
    "headed": "\ufeffname\nCorvus corax\nParus major\n",
    "ranks": "Species;Genus\nCorvus corax;Corvus\n;Parus\n",
    "dwc": "taxonID\tscientificName\ttaxonRank\n1\tCorvus corax Linnaeus, 1758\tspecies\n2\tParus Linnaeus\tgenus\n",
    "quoted": '"scientificName","taxonRank"\n"Corvus corax","species"\n"Parus major","species"\n',
    "unranked": "scientificName\nCorvus corax\nParus major\n",
    # A checklist names higher taxa, too. These count by what is listed below them.
    "higher": "scientificName,taxonRank,family\nCorvidae,family,\nCorvus corax,species,Corvidae\nParidae,family,\n",
}


@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_many_kinds(kind: str, crows: Taxonomy, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(LISTS[kind], encoding="utf-8")
    assert ends(crows, among=tmp_path / "list.csv") == {"Corvus corax", "Parus major"}


def test_the_end_of_a_path_counts_for_what_may_lie_below_it(crows: Taxonomy, tmp_path: Path) -> None:
    """Pica pica is unknown, and no species of Pica is known: an image of Pica may show it. Corvus has other species."""
    (tmp_path / "list.csv").write_text("genus,species\nPica,Pica pica\nCorvus,Corvus frugilegus\nParus,Parus major\n")
    assert ends(crows, among=tmp_path / "list.csv") == {"Pica", "Parus major"}


def test_unknown_names_are_reported_once(crows: Taxonomy, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "list.txt"
    file.write_text("Corvus corrax\nDodo\nMoa\nKea\nPica\n")
    with caplog.at_level(logging.WARNING):
        assert ends(crows, among=file) == {"Pica"}
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{file}: 4 of 5 names are not known to the model: 'Corvus corrax' (is it 'Corvus corax'?), 'Dodo', 'Moa', ..."
    )
    file.write_text("Dodo\n")
    with pytest.raises(InputError, match=r"list.txt: 1 of 1 names are not known to the model: 'Dodo': give names"):
        ends(crows, among=file)
    file.write_text("# nothing\n")
    with pytest.raises(InputError, match="has no names"):
        ends(crows, among=file)
    with pytest.raises(InputError, match="no such file"):
        ends(crows, among=tmp_path / "gone.txt")


def test_a_classifier_predicts_inside(tmp_path: Path) -> None:
    classifier = Classifier(["kind", "species"], method="acil", backbone="tiny", image_size=32)
    paths = draw(tmp_path, ["robin", "crow", "cod", "carp"])
    names = ("robin", "crow", "cod", "carp")
    classifier.learn(paths, [(name, "species") for name in names])
    classifier.learn(paths[:1], [("bird", "kind")])
    classifier.learn(paths[3:], [("fish", "kind")])
    for name, kind in zip(names, ("bird", "bird", "fish", "fish"), strict=True):
        classifier.link((name, "species"), (kind, "kind"))
    found = classifier.predict(paths, within="fish", top=4)
    assert all(each.path["kind"] == "fish" for each in found)
    assert all(each.levels["kind"].probability == pytest.approx(1) for each in found)
    for each in found:
        assert {each.path["species"], *(guess.name for guess in each.alternatives["species"])} == {"cod", "carp"}
    assert [each.path["species"] for each in classifier.predict(paths, among=["crow"])] == ["crow"] * 4
    again = [each.prediction for each in predict_files(classifier, paths, within="fish", top=4)]
    assert again == found


def test_a_name_is_compared_with_a_bounded_number_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, compared = Taxonomy(), []
    for number in range(2 * restriction.COMPARED):
        tree.add(Label(f"Corvus {number}", 2))
    monkeypatch.setattr(restriction, "nearest", lambda name, others, least: compared.extend(others))
    with pytest.raises(InputError, match="no such class"):
        restrict(tree, LEVELS, within="Corvus corax")
    assert len(compared) == restriction.COMPARED
