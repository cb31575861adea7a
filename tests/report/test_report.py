"""The page of a run: it shows the numbers and the tree of its files, and loads nothing from elsewhere."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from dhocl import cli
from dhocl.cli import display
from dhocl.core.errors import InputError
from dhocl.core.taxonomy import Event, Taxonomy
from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import POPULATIONS, populations
from dhocl.experiment.record import Record
from dhocl.report import write_report
from dhocl.report.command import command
from dhocl.report.compare import compare
from dhocl.report.exhibits import moments, structure
from dhocl.report.figures import scaled
from dhocl.report.reading import read
from dhocl.report.single import single
from dhocl.report.svg import Panel
from tests.helpers.run_pages import AMBER, EMOJI, HOSTILE, Page, grown, make_run


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
