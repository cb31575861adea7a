from __future__ import annotations

import json
import math
import shlex
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from typer.testing import CliRunner

from dhocl import cli
from dhocl.cli import display
from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Event, Label, Taxonomy
from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import POPULATIONS, Scores, populations, summarise
from dhocl.experiment.record import Record
from dhocl.report import write_report
from dhocl.report.command import command
from dhocl.report.compare import CURVES, compare
from dhocl.report.exhibits import moments, structure
from dhocl.report.figures import scaled
from dhocl.report.reading import read
from dhocl.report.single import single
from dhocl.report.svg import Panel
from dhocl.report.tree import angles, branches, draw, enlarged, links, walk
from tests.helpers.trees import apply, balanced_tree, changes

HOSTILE, EMOJI = "</script><b>x", "🦜 & 'co'"
VOID = {"meta", "input", "link", "br", "img"}


class Page(HTMLParser):
    """Elements in order, each with its own and its descendants' text; ends must match their beginnings."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(self.source)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self._open.append(self.elements[-1])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, _, text in self._open:
            text.append(data)

    def texts(self, tag: str) -> list[str]:
        return [" ".join("".join(text).split()) for name, _, text in self.elements if name == tag]

    def at(self, id: str) -> str:
        (text,) = ["".join(text) for _, attributes, text in self.elements if attributes.get("id") == id]
        return text

    @property
    def tables(self) -> list[list[list[str]]]:
        """Rows of cells; a star marks what is bold."""
        tables: list[list[list[str]]] = []
        for tag, _, text in self.elements:
            if tag == "table":
                tables.append([])
            elif tag == "tr":
                tables[-1].append([])
            elif tag in ("th", "td"):
                tables[-1][-1].append(" ".join("".join(text).split()))
            elif tag == "b" and tables and "".join(text) == tables[-1][-1][-1]:
                tables[-1][-1][-1] = "*" + "".join(text)
        return tables

    @property
    def figures(self) -> set[str]:
        return {a["aria-label"] or "" for _, a, _ in self.elements if a.get("class") == "plot"}


def grown() -> Taxonomy:
    """Three levels, a change of parent, a lost link and a class that stays outside."""
    tree = Taxonomy()
    tree.time = 1
    top, other = tree.add(Label("animal", 0)), tree.add(Label(HOSTILE, 0))
    bird, parrot = tree.add(Label("bird", 1)), tree.add(Label(EMOJI, 2))
    tree.time = 3
    tree.link(parrot, other)
    tree.link(bird, top)
    tree.time = 4
    tree.link(parrot, bird)
    tree.link(tree.add(Label("owl", 2)), bird)
    tree.add(Label("stray", 2))
    tree.link(tree.add(Label("yeti", 2)), other)
    tree.link(lost := tree.add(Label("lost", 1)), other)
    tree.unlink(lost)
    return tree


def scores(step: int, tree: Taxonomy, gain: float = 0.0, **more: Any) -> Scores:
    levels = {str(h): 80 - 10 * h - step + gain for h in tree.levels}
    judged: Scores = {
        "level_accuracy": levels,
        "level_ece": dict.fromkeys(levels, 5.5),
        "ms": 0.9 + step / 10 - gain / 100,
        "ms_mistakes": 2.0,
        "accuracy": sum(levels.values()) / len(levels),
        "fine_accuracy": levels["2"],
        "path_consistency": 61.0,
        "h_f1": 71.5,
    }
    judged["path"] = judged | {"accuracy": judged["accuracy"] + 1, "path_consistency": 97.0}
    everyone = judged | {"accuracy": judged["accuracy"] - 20}
    rest = {
        "classes": {str(h): w for h, w in tree.widths.items()},
        "unanchored": 1,
        "learner": {},
        "structure": {},
    }
    return {"step": step, "samples": 32 * step} | judged | {"open": everyone} | rest | more


HALO = {
    "learner": {f"{s}_{head}.{h}": 0.5 for s in ("alpha", "tau") for head in ("linear", "analytic") for h in range(3)},
    "structure": {"prototypes.1": None, "prototypes.2": 0.25},
}


AMBER = {"learner": {"waiting": 9.0, "completed": 0.4, "found_again": 0.8, "beta.0": 3.0}}


def make_run(
    folder: Path, config: RunConfig, gain: float = 0.0, end: bool = True, halo: bool = False, **more: Any
) -> Path:
    record, tree = Record(folder), grown()
    record.start(config, "0123", ("kingdom", "class", "species"))
    curve = [scores(step, tree, gain, **(HALO if halo else more)) for step in (2, 4, 6)]
    record.write_curve(curve)
    record.write_taxonomy(tree)
    if end:
        speed = {
            "samples_per_second": 1234.5,
            "cost_vs_er": 1.25,
            "state_mb": 43.21,
            "seconds_training": 10.0,
            "seconds_evaluating": 2.0,
            "structure": {},
        }
        record.finish(summarise(curve) | speed, {"prototypes.2": torch.rand(4, 4)} if halo else {})
    return folder


@pytest.fixture(scope="module")
def halo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(
        tmp_path_factory.mktemp("halo") / "run", RunConfig(method="halo", dataset="folder", data="a b"), halo=True
    )


@pytest.fixture(scope="module")
def halo(halo_run: Path) -> Page:
    return Page(write_report([halo_run], halo_run / "new folder" / "page.html"))


def test_nothing_is_loaded_from_anywhere(halo: Page) -> None:
    assert "http:" not in halo.source
    assert "https:" not in halo.source
    for tag, attributes, _ in halo.elements:
        assert tag not in ("link", "iframe", "img")
        assert not attributes.get("src")
        assert (attributes.get("href") or "#").startswith(("#", "data:image/png"))


def test_ids_are_unique_and_references_resolve(halo: Page) -> None:
    ids = [a["id"] for _, a, _ in halo.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes, _ in halo.elements:
        href, clip = attributes.get("href") or "", attributes.get("clip-path") or ""
        assert not href.startswith("#") or href[1:] in ids
        assert not clip or clip.removeprefix("url(#").removesuffix(")") in ids


def test_a_name_is_never_markup(halo: Page) -> None:
    assert HOSTILE not in halo.source
    assert "<b>x" not in halo.source
    assert f"{HOSTILE} (kingdom)" in halo.texts("title")
    assert f"{EMOJI} (species)" in halo.texts("title")
    assert any(HOSTILE in text for text in halo.texts("figcaption"))
    assert f"{HOSTILE} 1 below" in halo.texts("summary")
    assert EMOJI in halo.texts("li")


def test_the_events_in_the_page_give_the_same_tree(halo: Page) -> None:
    events = json.loads(halo.at("events"))["events"]
    tree = Taxonomy.replay(Event.from_json(json.dumps(event)) for event in events)
    assert tree.dumps() == grown().dumps()


def test_the_numbers_are_the_summary(halo: Page, halo_run: Path) -> None:
    summary = Record(halo_run).summary()
    shown = [float(attributes["value"] or "nan") for tag, attributes, _ in halo.elements if tag == "data"]
    names = [prefix + name for name in ("AAUC", "FAUC", "MS", "FFAcc", "FAAcc") for prefix in ("", "path.")]
    assert shown == [summary[name] for name in names]
    assert halo.texts("data")[:2] == ["66.0", "67.0"]
    assert "1,234 samples/s" in halo.texts("dd")
    assert "43.2 MB" in halo.texts("dd")


def test_each_population_has_its_numbers_and_a_sentence(halo: Page, tmp_path: Path) -> None:
    assert list(populations(torch.tensor([0]), torch.tensor([0]), grown())) == list(POPULATIONS)
    (shown,) = [table for table in halo.tables if table[0][:3] == ["test images", "predicted", "AAUC"]]
    assert [row[:3] for row in shown[1:]] == [
        ["streamed", "level by level", "66.0"],
        ["streamed", "consistent paths", "67.0"],
        ["open", "level by level", "46.0"],
        ["open", "consistent paths", "67.0"],
    ]
    assert shown[1][shown[0].index("h_f1")] == "71.5"
    runs = [make_run(tmp_path / name, RunConfig(method=name)) for name in ("er", "acil")]
    for page in (halo, Page(write_report(runs, tmp_path / "compare.html"))):
        for sentence in POPULATIONS.values():
            assert any(sentence in text for text in page.texts("p"))


def test_open_curves_are_those_of_all_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, list[Panel]] = {}
    for module in ("figures", "compare"):
        monkeypatch.setattr(f"dhocl.report.{module}.plot", lambda name, panels: drawn.setdefault(name, panels))
    records = [
        Record(make_run(tmp_path / name, RunConfig(method=name), gain)) for name, gain in (("er", 0), ("acil", 5))
    ]
    curves = [
        [[line["accuracy"] for line in r.curve()], [line["open"]["accuracy"] for line in r.curve()]] for r in records
    ]
    single(records[0])
    compare(records)
    assert [line.y for line in drawn["populations"][0].lines] == curves[0]
    assert [line.y for line in drawn["open-accuracy"][0].lines] == [own[1] for own in curves]


@pytest.mark.parametrize(("decode", "prefixes"), [("level", ["", "path."]), ("path", ["path.", ""])])
def test_the_table_after_a_run_has_both_populations(halo_run: Path, decode: str, prefixes: list[str]) -> None:
    record = Record(halo_run)
    table = display.result_table(record, RunConfig(decode=decode))
    keys = [population + prefix for population in ("", "open.") for prefix in prefixes]
    first, aauc, *_ = ([*column.cells] for column in table.columns)
    ways = [{"": "by level", "path.": "by path"}[prefix] for prefix in prefixes]
    assert first == [f"{population}, {way}" for population in ("streamed", "open") for way in ways]
    assert aauc == [f"{record.summary()[key + 'AAUC']:.1f}" for key in keys]
    assert len(set(aauc)) > 2
    assert all(sentence in str(table.caption) for sentence in POPULATIONS.values())


def test_a_run_that_was_evaluated_on_other_images_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", RunConfig())
    curve = [{name: value for name, value in line.items() if name != "open"} for line in Record(run).curve()]
    Record(run).write_curve(curve)
    with pytest.raises(InputError, match="run it again"):
        write_report([run], tmp_path / "page.html")


def test_every_figure_that_has_data_is_there(halo: Page, tmp_path: Path) -> None:
    common = {
        "Accuracy of each level",
        "Mistake severity",
        "Accuracy of both populations",
        "Calibration error of each level",
    }
    special = {
        "PredLA: weights of the two heads",
        "PredLA: temperatures of the two heads",
        "Prototype distances and tree distances",
        "Distances between classes, level “species”",
    }
    assert halo.figures == common | special
    assert any("correlation is 0.25" in text for text in halo.texts("figcaption"))
    plain = write_report([make_run(tmp_path / "plain", RunConfig(method="acil"))], tmp_path / "plain.html")
    assert Page(plain).figures == common
    run = make_run(tmp_path / "amber", RunConfig(), **AMBER)
    page = Page(write_report([run], tmp_path / "amber.html"))
    assert page.figures == common | {"AMBER: labels completed downward", "AMBER: reliability of each level"}


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", RunConfig(), end=False, halo=True)
    page = Page(write_report([run], tmp_path / "page.html"))
    assert any("not finished" in text and "192 samples" in text for text in page.texts("p"))
    assert page.texts("data")[0] == "66.0"
    assert not any("samples/s" in text for text in page.texts("dd"))


def test_a_run_before_its_first_evaluation(tmp_path: Path) -> None:
    Record(tmp_path / "run").start(RunConfig(), "0123", ("a", "b"))
    page = Page(write_report([tmp_path / "run"], tmp_path / "page.html"))
    assert page.at("command") == "dhocl run"
    assert page.figures == set()


def test_what_can_not_be_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the folder of a run"):
        write_report([tmp_path], tmp_path / "page.html")
    with pytest.raises(InputError, match="is a folder"):
        write_report([tmp_path], tmp_path)
    with pytest.raises(InputError, match="at least one"):
        write_report([], tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(),
        RunConfig("er", "folder", "it's a $HOME", image_size=64, holdout=True, overlap=0.5, decode="path", seed=7),
        RunConfig(scenario="iblurry", groups=5),
        RunConfig(
            method="halo",
            delay=math.inf,
            vacant=0.1,
            noise=1e-05,
            split_level=1,
            settings={"hpr": False, "lambda": 0.5},
        ),
    ],
)
def test_the_command_makes_the_same_config(config: RunConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[RunConfig] = []
    monkeypatch.setattr(display, "watch", lambda _progress, config, *_: made.append(config))
    monkeypatch.setattr("dhocl.report.write_report", lambda _runs, page: page)
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(command(config))
    assert program == "dhocl"
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    assert made == [config]


def test_comparison(tmp_path: Path) -> None:
    gains = {("halo", 0): 4.0, ("halo", 1): 6.0, ("acil", 0): 1.0, ("acil", 1): 11.0}
    runs = [make_run(tmp_path / f"{m}{s}", RunConfig(method=m, seed=s), gain) for (m, s), gain in gains.items()]
    runs.append(make_run(tmp_path / "er", RunConfig(method="er"), gain=50.0, end=False))
    page = Page(write_report(runs, tmp_path / "page.html"))
    groups, _, _, decoded, seeds, gaps, plain = page.tables
    assert groups == [["method", "seeds"], ["halo", "0, 1"], ["acil", "0, 1"], ["er", "0"]]
    assert gaps[0][0] == "minus the best"
    assert gaps[1][:2] == ["halo, 2 seeds", "-1.00 ± 50.82 (2)"], "gains 4 - 1 and 6 - 11; t(1) = 12.7062"
    assert gaps[2][:2] == ["acil, 2 seeds", "best"]
    assert plain == [
        ["run", "AAUC", "FAUC", "MS ↓", "FFAcc", "FAAcc", "open.AAUC"],
        ["halo, seed 0", "70.0", "60.0", "1.26", "58.0", "68.0", "50.0"],
        ["halo, seed 1", "72.0", "62.0", "1.24", "60.0", "70.0", "52.0"],
        ["acil, seed 0", "67.0", "57.0", "1.29", "55.0", "65.0", "47.0"],
        ["acil, seed 1", "77.0", "67.0", "1.19", "65.0", "75.0", "57.0"],
        ["er, seed 0unfinished", "116.0", "106.0", "0.80", "104.0", "114.0", "96.0"],
    ]
    assert seeds[1:] == [
        ["halo, 2 seeds", "71.0 ± 1.4", "61.0 ± 1.4", "1.25 ± 0.01", "59.0 ± 1.4", "69.0 ± 1.4", "51.0 ± 1.4"],
        ["acil, 2 seeds", "72.0 ± 7.1", "62.0 ± 7.1", "1.24 ± 0.07", "60.0 ± 7.1", "70.0 ± 7.1", "52.0 ± 7.1"],
    ]
    assert decoded[1][1] == "71.0"
    assert page.texts("h1") == ["Glyphs: 5 runs compared"]
    assert not page.texts("a"), "no run has a report"
    assert page.figures == {title for title, _ in CURVES.values()}
    assert "tree" not in {attributes.get("id") for _, attributes, _ in page.elements}


def test_a_comparison_leads_to_its_runs_and_names_settings_that_differ(tmp_path: Path) -> None:
    configs = {
        "a b/0": RunConfig(buffer=50),
        "a b/1": RunConfig(buffer=50, seed=1),
        "c": RunConfig(settings={"tau": 2}),
    }
    runs = [make_run(tmp_path / name, config) for name, config in configs.items()]
    for run in runs[:2]:
        (run / "report.html").write_text("a page")
    page = Page(write_report(runs, tmp_path / "there" / "compare.html"))
    assert page.tables[0] == [["buffer", "tau", "seeds"], ["50", "–", "0, 1"], ["1000", "2", "0"]]
    hrefs = [attributes["href"] for tag, attributes, _ in page.elements if tag == "a"]
    assert set(hrefs) == {"../a%20b/0/report.html", "../a%20b/1/report.html"}


def test_what_an_ecologist_asks_comes_first(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", RunConfig(dataset="folder", data="photos/garden birds"))
    pair = {"true": "owl", "predicted": EMOJI, "images": 7}
    example = {"true": ["animal", "owl"], "predicted": ["animal", HOSTILE], "probability": 0.914, "jpeg": "AAAA"}
    images = {"0": 1300, "1": 90, "2": 50}
    confused_most = {"0": [], "1": [], "2": [pair] * 20}
    right = {"0": 1170, "1": 45, "2": 5}
    kept = {"images": images, "right": right, "confusions": confused_most, "examples": [example]}
    Record(folder).write_mistakes(kept)
    page = Page(write_report([folder], tmp_path / "page.html"))
    assert page.texts("h1") == ["garden birds"]
    assert page.texts("h2")[:5] == [
        "How often it is right",
        "Which classes are confused",
        "Mistakes",
        "Over the stream",
        "The tree of classes",
    ]
    ranks, confused, *_ = page.tables
    assert [row[:4] for row in ranks[1:]] == [
        ["kingdom", "2", "1,300", "90.0"],
        ["class", "2", "90", "50.0"],
        ["species", "4", "50", "10.0"],
    ]
    assert confused == [["species", "taken for", "images"], *([["owl", EMOJI, "7"]] * 8)]
    (mistake,) = [text for text in page.texts("figcaption") if "taken for" in text]
    assert mistake == f"animal › owltaken for animal · {HOSTILE}, 91 %"
    assert [a["src"] for tag, a, _ in page.elements if tag == "img"] == ["data:image/jpeg;base64,AAAA"]
    assert page.texts("h2").index("The method: amber") > page.texts("h2").index("The tree of classes")


def test_a_run_without_kept_mistakes_has_a_page(tmp_path: Path) -> None:
    page = Page(write_report([make_run(tmp_path / "run", RunConfig())], tmp_path / "page.html"))
    assert page.tables[0][0] == ["rank", "classes known", "right, %", ""]
    assert "Mistakes" not in page.texts("h2")


def test_a_small_tree_has_larger_letters() -> None:
    assert [enlarged(balanced_tree(1, leaves)) for leaves in (4, 60, 500)] == [2.2, 1.0, 1.0]
    assert 1 < enlarged(balanced_tree(3, 10)) < 2


def test_prototypes_are_compared_with_the_tree_of_their_time(finished: Record) -> None:
    run = read(finished)
    kept = moments(run)
    assert {mark: scores["step"] for mark, scores in kept.items()} == {10: 4, 50: 12, None: 25}
    pictures = list(structure("glyphs", {"a": [run], "b": [run]}, {"a": finished, "b": finished}))
    widths = [scores["classes"]["2"] for scores in kept.values()]
    assert [p.shown.title for p in pictures] == [
        f"{row}, {n} character classes: glyphs" for n in widths for row in "ab"
    ]
    assert len({p.name for p in pictures}) == 6
    for scores, picture in zip(kept.values(), pictures[::2], strict=True):
        assert f"Correlation with the tree {scores['structure']['prototypes.2']:.2f}." in picture.shown.caption
    truth, learned = (pictures[0].figure.axes[place].images[0].get_array() for place in (0, 1))
    then = Taxonomy.replay(event for event in run.taxonomy.events if event.time <= 4)
    for shown, matrix in ((truth, then.distances(2)), (learned, finished.matrices(10)["prototypes.2"])):
        assert shown.shape == (widths[0], widths[0])
        assert sorted(shown.flatten()) == pytest.approx(sorted(scaled(matrix).flatten().tolist()))


def test_labels_name_what_differs(tmp_path: Path) -> None:
    configs = [RunConfig(settings={"doubt": False}), RunConfig(buffer=50), RunConfig(buffer=50)]
    records = [Record(make_run(tmp_path / f"r{place}", config)) for place, config in enumerate(configs)]
    tables = compare(records)["tables"]
    assert [line.name for line in tables[0].runs.lines] == [
        "amber, buffer 1000, doubt False",
        "amber, buffer 50 (r1)",
        "amber, buffer 50 (r2)",
    ]
    assert tables[0].seeds.lines == []  # the same seed twice tells nothing about seeds
    assert not any(cell.best for line in tables[0].runs.lines for cell in line.cells)  # each has one seed


@settings(max_examples=40, deadline=None)
@given(changes())
def test_any_tree_can_be_drawn(history: list[tuple[str, int, int]]) -> None:
    tree = apply(history)
    ranks = [f"rank {level}" for level in range(5)]
    nodes, lines = draw(tree, ranks), links(tree)
    assert [node.name for node in nodes] == [label.name for label in tree.labels]
    assert [n for n, node in enumerate(nodes) if node.loose] == tree.unanchored
    accepted = [node for node in range(len(tree)) if tree.accepted(node) == node]
    assert sorted(walk(tree)) == accepted
    assert all(nodes[node][:2] == nodes[tree.accepted(node)][:2] for node in range(len(tree)))
    last = {(line.child, line.parent) for line in lines if line.last}
    assert last == {(node, tree.parent(node)) for node in accepted if tree.parent(node) >= 0}
    assert sum(1 + branch.below for branch in branches(tree, ranks)) == len(accepted)


def test_a_drawing_has_rings_and_no_names_in_a_crowd() -> None:
    few, many = balanced_tree(3, 4), balanced_tree(10, 100)
    nodes = draw(few, ["a", "b"])
    radii = {node.place: round(math.hypot(node.x, node.y)) for node in nodes}
    assert all(abs(math.hypot(node.x, node.y) - radii[node.place]) < 1 for node in nodes)
    assert all(node.label for node in nodes)
    gaps = [b - a for a, b in pairwise(sorted(angles(few)[3:]))]
    assert gaps == pytest.approx([2 * math.pi / 12] * 11)
    assert [bool(node.label) for node in draw(many, ["a", "b"])] == [True] * 10 + [False] * 1000


def test_runs_in_folders_of_the_same_name_each_have_a_row(tmp_path: Path) -> None:
    records = [Record(make_run(tmp_path / place / "run", RunConfig())) for place in "ab"]
    assert [line.name for line in compare(records)["tables"][0].runs.lines] == ["amber (run)", "amber (run) 2"]
