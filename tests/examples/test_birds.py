"""examples/birds.py on an archive like CUB-200-2011 in which each species has a colour."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np

from dhocl import Guess, Prediction
from tests.helpers.fakes import cub, pack

BIRDS = Path(__file__).parents[2] / "examples" / "birds.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BIRDS), *map(str, arguments)], capture_output=True, text=True)


def test_birds_are_named_on_a_page(tmp_path: Path) -> None:
    pack(cub(), tmp_path / "data", "CUB_200_2011", "folder")
    out = tmp_path / "birds.html"
    done = run("--data", tmp_path / "data", "--out", out, "--backbone", "tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "learning 24 photographs of 24 species" in done.stdout
    shares = [float(share) for share in re.findall(r"([\d.]+) %\n", done.stdout)]
    assert len(shares) == 6
    assert abs(sum(shares[2:]) - 100) < 0.3  # every photograph has one verdict

    page = out.read_text(encoding="utf-8").replace("\xa0", " ")
    figures = re.findall(r'<figure class="(\w+)">.*?<b>(.*?)</b><br>true: (\w+) &gt; ([\w ]+)<', page)
    assert len(figures) == len({species for *_, species in figures}) == 24
    for verdict, told, family, species in figures:
        sure = re.sub(r";? ?(new \w+\?|\w+ unsure) \(.*\)", "", told)
        names = [name.rpartition(" ")[0].rpartition(" ")[0] for name in sure.split(" &gt; ") if name]
        right = names == [family, species][: len(names)]
        assert verdict == (("none", "coarse", "right")[len(names)] if right else "wrong")


def test_what_is_sure_is_judged_and_told() -> None:
    birds = runpy.run_path(str(BIRDS))
    true = {"order": "Passeriformes", "family": "Corvidae", "species": "Fish Crow"}

    def judged(family: float, species: float, name: str = "Fish Crow", new: str | None = None) -> tuple[str, str]:
        path = {"family": Guess("Corvidae", family), "species": Guess(name, species)}
        prediction = Prediction(path, path, {}, new)
        return birds["Named"](np.zeros((2, 2, 3)), true, prediction).verdict, birds["told"](prediction)

    assert judged(0.97, 0.88) == ("right", "Corvidae 97 % > Fish Crow 88 %")
    assert judged(0.97, 0.88, "Blue Jay") == ("wrong", "Corvidae 97 % > Blue Jay 88 %")
    assert judged(0.91, 0.52) == ("coarse", "Corvidae 91 %; species unsure (Fish Crow 52 %)")
    assert judged(0.91, 0.52, "Blue Jay") == ("coarse", "Corvidae 91 %; species unsure (Blue Jay 52 %)")
    assert judged(0.91, 0.85, new="species") == ("coarse", "Corvidae 91 %; new species? (Fish Crow 85 %)")
    assert judged(0.6, 0.5) == ("none", "family unsure (Corvidae 60 %)")


def test_without_the_photographs(tmp_path: Path) -> None:
    done = run("--data", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "CUB_200_2011" in done.stderr
