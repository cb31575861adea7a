"""Learn birds from photographs, and name others as precisely as the model is sure of.

python examples/birds.py --data DIR [--out birds.html]

DIR holds the archive of CUB-200-2011 (`dhocl download cub200 --data DIR`). Of six families, four species each are
learned from their training photographs; every third is named by its family alone. Then their test photographs are
named. The page has some of these, drawn at random: two of each species.
"""

from __future__ import annotations

import base64
import html
import sys
from io import BytesIO
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from PIL import Image

from dhocl import Classifier, Guess, Prediction
from dhocl.core.errors import InputError
from dhocl.data import Selection, check
from dhocl.data.dataset import Table
from dhocl.data.files import Files
from dhocl.knowledge import Oracle

FAMILIES = ("Corvidae", "Trochilidae", "Alcedinidae", "Picidae", "Cardinalidae", "Laridae")
SPECIES = 4  # of each family
SHOWN = 2  # photographs of each species on the page
SIZE = 96  # pixels
CONFIDENCE = 0.8  # a rank that is less probable is not named
VERDICTS = {
    "right": f"sure of the species ({100 * CONFIDENCE:.0f} % or more), and right",
    "coarse": "sure of the family alone, and right",
    "wrong": "sure of something, and wrong",
    "none": "not sure of the family",
}
STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 1rem; }
figure { margin: 0; font-size: .85rem; border-top: .35rem solid; padding-top: .35rem; }
img { width: 100%; display: block; }
ul { padding: 0; }
li { list-style: none; border-left: .8rem solid transparent; padding-left: .5rem; margin: .15rem 0; }
.right { border-color: #15976f; }
.coarse { border-color: #d9a400; }
.wrong { border-color: #d64560; }
.none { border-color: #999; }
"""


class Named(NamedTuple):
    """A photograph, what it shows and what was predicted."""

    picture: np.ndarray
    true: dict[str, str]  # level -> name
    prediction: Prediction

    @property
    def verdict(self) -> str:
        """A key of VERDICTS, about the ranks that are sure."""
        sure = self.prediction.sure(CONFIDENCE)
        if any(guess.name != self.true[level] for level, guess in sure.items()):
            return "wrong"
        return "right" if "species" in sure else "coarse" if sure else "none"


def main(
    data: Annotated[Path, typer.Option(help="Folder with CUB-200-2011.")],
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("birds.html"),
    backbone: Annotated[str, typer.Option(help="See `dhocl list backbones`.")] = "efficientnet_lite0",
) -> None:
    source = check("cub200", Selection(data=data, image_size=SIZE))
    tree = source.tree
    lineage = {
        leaf: {source.levels[tree.labels[node].level]: tree.labels[node].name for node in tree.lineage(leaf)}
        for leaf in tree.nodes(2).tolist()
    }
    chosen = [[leaf for leaf in lineage if lineage[leaf]["family"] == family][:SPECIES] for family in FAMILIES]
    leaves = [leaf for family in chosen for leaf in family]

    pictures, shown = take(source.train, leaves)
    levels = ["family" if row % 3 == 2 else "species" for row in range(len(shown))]
    print(f"learning {len(shown)} photographs of {len(leaves)} species, every third named by its family alone")
    classifier = Classifier(
        source.levels, source=Oracle(tree), backbone=backbone, image_size=SIZE, settings={"side": 2, "mirror": False}
    )  # these settings take more time, and find more species
    with typer.progressbar(range(0, len(shown), 32)) as starts:
        for start in starts:
            some = slice(start, start + 32)
            labels = [(lineage[leaf][level], level) for leaf, level in zip(shown[some], levels[some], strict=True)]
            classifier.learn(pictures[some], labels)

    pictures, shown = take(source.test, leaves)
    print(f"naming {len(shown)} others")
    result = classifier.evaluate(pictures, [(lineage[leaf]["species"], "species") for leaf in shown])
    found = [
        Named(picture, lineage[leaf], prediction)
        for picture, leaf, prediction in zip(pictures, shown, classifier.predict(pictures), strict=True)
    ]
    lines = {rank.level: f"best guess of the {rank.level} is right: {rank.accuracy:.1f} %" for rank in result.ranks}
    lines |= {verdict: f"{what}: {share(found, verdict):.1f} %" for verdict, what in VERDICTS.items()}
    print(*lines.values(), sep="\n")
    sheet = [named for leaf in leaves for named in [n for n in found if n.true == lineage[leaf]][:SHOWN]]
    out.write_text(page(lines, sheet), encoding="utf-8")
    print(f"Page: {out}")


def take(table: Table, leaves: list[int]) -> tuple[np.ndarray, list[int]]:
    """Photographs of some species in a random order, and what each shows."""
    assert not isinstance(table.images, Files)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(np.isin(table.nodes, leaves)))
    return table.images(rows), table.nodes[rows].tolist()


def share(found: list[Named], verdict: str) -> float:
    return 100 * sum(named.verdict == verdict for named in found) / len(found)


def told(prediction: Prediction) -> str:
    """The ranks that are sure, then the first that is not: Corvidae 91 %; species unsure (Fish Crow 52 %)."""
    sure = prediction.sure(CONFIDENCE)
    parts = [" > ".join(percent(guess) for guess in sure.values())] if sure else []
    for level, guess in prediction.on_path.items():
        if level not in sure:
            doubt = f"new {level}?" if level == prediction.new else f"{level} unsure"
            return "; ".join([*parts, f"{doubt} ({percent(guess)})"])
    return parts[0]


def percent(guess: Guess) -> str:
    return f"{guess.name} {100 * guess.probability:.0f} %"


def page(lines: dict[str, str], sheet: list[Named]) -> str:
    figures = []
    for named in sheet:
        file = BytesIO()
        Image.fromarray(named.picture).save(file, "JPEG", quality=85)
        text = (
            html.escape(told(named.prediction).replace(" %", "\xa0%")),
            html.escape(f"{named.true['family']} > {named.true['species']}"),
        )
        uri = f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
        figures.append(
            f'<figure class="{named.verdict}"><img src="{uri}" alt="">'
            f"<figcaption><b>{text[0]}</b><br>true: {text[1]}</figcaption></figure>"
        )
    facts = "".join(f'<li class="{kind}">{html.escape(line)}</li>' for kind, line in lines.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Birds</title><style>{STYLE}</style>"
        f"<h1>Birds</h1><ul>{facts}</ul><main>{''.join(figures)}</main></html>"
    )


if __name__ == "__main__":
    try:
        typer.run(main)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
