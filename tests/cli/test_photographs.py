"""learn, predict, evaluate: what people with photographs do."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from dhocl import Classifier
from dhocl.classifier.learning import learn_album
from dhocl.cli.progress import progress
from tests.helpers.albums import KINDS, TINY, draw, labelled
from tests.helpers.small_runs import command, dhocl, flags
from tests.helpers.waiting import until


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return labelled(tmp_path_factory.mktemp("data") / "photos", 96)


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by the command, in a process of its own."""
    folder = tmp_path_factory.mktemp("models") / "birds"
    done = dhocl("learn", str(folder), "--data", str(data), *TINY)
    assert done.returncode == 0, done.stderr
    assert "learned 96 images; amber, levels kind > species, 6 classes" in done.stdout
    return folder


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "new"
    draw(folder, list(KINDS), seed=7)
    return folder


def test_a_folder_is_predicted_as_text(model: Path, new: Path) -> None:
    done = dhocl("predict", str(model), str(new), "--confidence", "0.5")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    for line, (species, kind) in zip(lines, KINDS.items(), strict=True):
        path, _, told = line.partition(": ")
        assert Path(path).is_file()
        assert [part.rsplit(" ", 1)[0] for part in told.split(" > ")] == [kind, species]


def test_a_list_of_what_to_label_next_can_be_filled_in_and_learned(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw(tmp_path / "pool", 3 * list(KINDS), seed=9)
    (tmp_path / "pool" / "zz.png").write_text("no image")
    out = tmp_path / "list.csv"
    code, printed, errors = command(
        capsys, monkeypatch, "suggest", str(model), str(tmp_path / "pool"), "--count", "5", "-o", str(out)
    )
    assert (code, printed) == (0, f"Wrote {out}: 5 of 13 images\n")
    assert "skipped" in errors
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    paths = sorted((tmp_path / "pool").glob("*.png"))[:-1]
    expected = Classifier.load(model).suggest(paths, 5)
    assert [row["path"] for row in rows] == [str(paths[found.row]) for found in expected]
    assert [row["level"] for row in rows] == [found.level for found in expected]
    assert [float(row["score"]) for row in rows] == pytest.approx([found.score for found in expected], abs=1e-3)
    assert rows[0]["predicted"] == repr(expected[0].prediction)
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(row | {"label": "robin", "level": "species"} for row in rows)
    options = {"levels": ["kind", "species"], "backbone": "tiny", "image_size": 32}
    assert list(learn_album(tmp_path / "m", out, options))[-1].learned == 5
    code, printed, _ = command(capsys, monkeypatch, "suggest", str(model), str(paths[0]), "--count", "3")
    assert (code, printed.count("\n"), printed.startswith(f"{paths[0]}: species of ")) == (0, 1, True)
    code, _, errors = command(capsys, monkeypatch, "suggest", str(model), str(tmp_path / "pool" / "zz.png"))
    assert (code, "none of the 1 images can be read" in errors) == (2, True)
    code, _, errors = command(capsys, monkeypatch, "suggest", str(model), str(paths[0]), "-o", "list.txt")
    assert (code, "give the name of a .csv file" in errors) == (2, True)


def test_results_go_to_a_table_or_to_json_in_the_order_of_the_files(
    model: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (new / "note.txt").write_text("no image")
    for name in ("out.csv", "out.json", "out.jsonl"):
        code, printed, _ = command(
            capsys, monkeypatch, "predict", str(model), f"{new}/*.png", "-o", str(tmp_path / name), "--top", "2"
        )
        assert code == 0
        assert printed == f"Wrote {tmp_path / name}: 4 images\n"
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    entries = json.loads((tmp_path / "out.json").read_text())
    assert entries == [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = Classifier.load(model).predict(sorted(new.glob("*.png")), top=2)
    for row, entry, found in zip(rows, entries, expected, strict=True):
        assert row["path"] == entry["image"]
        assert {level: row[level] for level in found.path} == found.path
        assert {node["rank"]: node["name"] for node in entry["path"]} == found.path
        for level, guess in found.levels.items():
            assert float(row[f"{level}_probability"]) == pytest.approx(guess.probability, abs=2e-4)
            assert row[f"{level}_2"] == found.alternatives[level][0].name
            assert entry["alternatives"][level][0]["name"] == found.alternatives[level][0].name
        answer = list(found.sure(0.8).items())[-1]
        assert (row["rank"], row["answer"]) == (answer[0], answer[1].name)
        assert (entry["answer"]["rank"], entry["answer"]["name"]) == (answer[0], answer[1].name)


def test_confidence_decides_how_deep_the_answer_is(
    model: Path, new: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, printed, _ = command(capsys, monkeypatch, "predict", str(model), str(new), "--confidence", "1", "--top", "2")
    for line, kind in zip(printed.splitlines(), KINDS.values(), strict=True):
        assert f"kind unsure ({kind} " in line or f"{kind} 1.00; species unsure" in line


def test_only_classes_that_may_occur(
    model: Path,
    new: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = ["predict", str(model), str(new), "--confidence", "0"]
    _, printed, _ = command(capsys, monkeypatch, *ask, "--within", "fish")
    assert all(": fish 1.00 > " in line for line in printed.splitlines())
    (tmp_path / "list.csv").write_text("scientificName,taxonRank\ncrow,species\ndodo,species\n")
    among = ["--among", str(tmp_path / "list.csv")]
    _, printed, _ = command(capsys, monkeypatch, *ask, *among)
    assert all(line.endswith(": bird 1.00 > crow 1.00") for line in printed.splitlines())
    assert caplog.text.count("1 of 2 names are not known to the model: 'dodo'") == 1
    code, _, errors = command(capsys, monkeypatch, *ask, *among, "--within", "fish")
    assert code == 2
    assert "no known path is inside --within fish and --among" in errors


def test_images_that_can_not_be_read_are_listed_and_skipped(
    model: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    table = tmp_path / "photos.csv"
    table.write_text(f"No;File\n1;{sorted(new.glob('*.png'))[0]}\n2;broken.jpg\n3;gone.jpg\n")
    code, _, errors = command(capsys, monkeypatch, "predict", str(model), str(table), "-o", str(tmp_path / "out.csv"))
    assert code == 0
    assert "broken.jpg is damaged" in errors
    assert "gone.jpg is missing" in errors
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [bool(row["problem"]) for row in rows] == [False, True, True]
    assert rows[0]["species"] == "robin"
    assert rows[1]["species"] == ""
    code, _, errors = command(capsys, monkeypatch, "predict", str(model), str(tmp_path / "broken.jpg"))
    assert code == 2
    assert "none of the 1 images can be read" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jpg"], "there is no file or folder nowhere.jpg"),
        (["*.none"], "no image has a name like *.none"),
        ([".", "-o", "out.xlsx"], "--out out.xlsx: the name must end in .csv, .json or .jsonl"),
        ([".", "-o", "nowhere/out.csv"], "there is no folder nowhere"),
        ([".", "--top", "0"], "--top 0: at least 1"),
    ],
)
def test_mistakes_get_one_line(
    arguments: list[str],
    message: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw(tmp_path, ["robin"])
    monkeypatch.chdir(tmp_path)
    code, _, errors = command(capsys, monkeypatch, "predict", str(model), *arguments)
    assert code == 2
    assert message in errors
    assert len(errors.strip().splitlines()) == 1


def test_the_commands_say_what_is_no_model(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (["predict", str(tmp_path), str(data)], ["evaluate", str(tmp_path), "--data", str(data)]):
        code, _, errors = command(capsys, monkeypatch, *arguments)
        assert code == 2
        assert "holds no model" in errors


def test_repeating_learns_only_what_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = labelled(tmp_path / "photos", 24), str(tmp_path / "m")
    (data / "images" / "0-0005.png").write_bytes(b"broken")
    code, printed, errors = command(capsys, monkeypatch, "learn", model, "--data", str(data), *TINY)
    assert code == 0
    assert "learned 23 images, skipped 1 that can not be read" in printed
    assert "0-0005.png is damaged" in errors
    draw(data / "images", ["robin"], seed=5)
    with (data / "labels.csv").open("a") as file:
        file.write("images/5-0000.png,robin,species\n")
    _, printed, _ = command(capsys, monkeypatch, "learn", model, "--data", str(data))
    assert "learned 1 image, skipped 1 that can not be read, 23 were learned before" in printed
    Image.new("RGB", (40, 40), "red").save(data / "images" / "0-0005.png")  # mended
    _, printed, _ = command(capsys, monkeypatch, "learn", model, "--data", str(data))
    assert "learned 1 image, 24 were learned before" in printed
    code, _, errors = command(capsys, monkeypatch, "learn", model, "--data", str(data), "--method", "acil")
    assert code == 2
    assert f"the model in {model} was created with --method amber: leave the option out" in errors


def test_a_killed_command_goes_on_where_it_was(tmp_path: Path) -> None:
    data = labelled(tmp_path / "photos", 480)
    arguments = ["learn", str(tmp_path / "m"), "--data", str(data), *TINY, "--checkpoint-every", "32"]
    start = [sys.executable, "-c", "from dhocl.cli import main; main()", *arguments]
    with subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: any((tmp_path / "m").glob("checkpoints/*.safetensors")))
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    before = len(Classifier.load(tmp_path / "m").learned)
    assert 0 < before < 480
    done = dhocl(*arguments)
    assert f"{before} were learned before" in done.stdout or f"{before + 32} were learned before" in done.stdout
    for _ in learn_album(tmp_path / "whole", data, {"backbone": "tiny", "image_size": 32}):
        pass
    images = sorted((data / "images").glob("*.png"))[:20]
    halves, whole = Classifier.load(tmp_path / "m"), Classifier.load(tmp_path / "whole")
    assert len(halves.learned) == 480
    assert halves.predict(images) == whole.predict(images), "as if it had never been interrupted"


def test_an_evaluation_is_a_page_and_a_file(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "test.csv"
    images = sorted((data / "images").glob("*.png"))[:8]
    names = ["robin", "crow", "cod", "<b>carp</b>", "cod", "crow", "cod", "carp"]  # the fifth is a robin
    rows = [f"{path},{name},species,test" for path, name in zip(images, names, strict=True)]
    wrong.write_text("\n".join(["path,label,level,split", *rows, f"{images[0]},cod,species,train"]))
    page = tmp_path / "page.html"
    code, printed, _ = command(capsys, monkeypatch, "evaluate", str(model), "--data", str(wrong), "--out", str(page))
    assert code == 0
    result = json.loads(page.with_suffix(".json").read_text())
    ranks = {rank["level"]: rank for rank in result["ranks"]}
    assert result["images"] == 8
    assert (ranks["species"]["images"], ranks["species"]["unknown"]) == (7, 1)
    assert ranks["species"]["accuracy"] == pytest.approx(100 * 6 / 7)
    assert ranks["kind"]["accuracy"] == pytest.approx(100 * 6 / 7)
    assert result["mistakes"][0]["true"] == {"kind": "fish", "species": "cod"}
    assert result["mistakes"][0]["predicted"] == {"kind": "bird", "species": "robin"}
    assert result["mistakes"][0]["image"] == str(images[4])
    code, _, errors = command(
        capsys, monkeypatch, "evaluate", str(model), "--data", str(wrong), "--out", str(tmp_path / "page.json")
    )
    assert code == 2
    assert "give the name of a .html file" in errors
    html = page.read_text()
    assert html.count("data:image/jpeg;base64") == 1
    assert str(images[4]) in html
    assert "<b>carp</b>" not in html
    assert "85.7" in printed
    assert "labels of classes that were never learned: 1" in printed


def test_version_and_everything_that_can_be_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, printed, _ = command(capsys, monkeypatch, "--version")
    assert printed == "dhocl 0.1.0\n"
    _, printed, _ = command(capsys, monkeypatch, "list")
    assert all(name in printed for name in ("amber", "glyphs", "efficientnet_lite0", "groups"))


MEASURED = """
import atexit, resource, sys
from dhocl.cli import main
atexit.register(lambda: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
main()
"""


def test_the_memory_of_predict_does_not_grow_with_the_number_of_images(model: Path, tmp_path: Path) -> None:
    (path,) = draw(tmp_path, ["robin"])

    def peak(images: int) -> int:
        """In kilobytes."""
        (tmp_path / "list.csv").write_text("path\n" + f"{path.name}\n" * images)
        words = ["predict", str(model), str(tmp_path / "list.csv"), "-o", str(tmp_path / "out.csv")]
        done = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=True)
        assert len((tmp_path / "out.csv").read_text().splitlines()) == 1 + images
        return int(done.stdout.splitlines()[-1])

    few, many = peak(600), peak(3_600)
    assert many - few < 3_000, f"{few} and {many} kB: a kilobyte for each image"


def test_a_run_ends_with_the_commands_that_use_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = str(tmp_path / "run")
    few = flags(method="acil", samples=64, test_samples=16, groups=1)
    _, printed, _ = command(capsys, monkeypatch, "run", *few, "--out", run)
    words = dict(line.split(": ", 1) for line in printed.splitlines()[-3:])
    assert words["Serve"] == f"dhocl serve --model {run}"
    assert words["Predict"] == f"dhocl predict {run} PHOTOS"
    photos = [str(path) for path in draw(tmp_path / "new", ["robin", "cod"])]
    arguments = words["Predict"].removeprefix("dhocl ").replace("PHOTOS", " ".join(photos)).split()
    code, printed, _ = command(capsys, monkeypatch, *arguments)
    assert code == 0
    assert len(printed.splitlines()) == 2


def test_without_a_terminal_progress_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dhocl.cli.progress.PAUSE", 0.0)
    with progress("learning", 100) as show:
        show(0)
        show(50)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("learning: 50/100, ")
    assert line.endswith(" s left")
