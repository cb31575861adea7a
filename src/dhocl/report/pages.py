"""Write the results of a sweep as Markdown for the documentation."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from matplotlib.figure import Figure

from dhocl.core.errors import InputError
from dhocl.core.files import write_atomically
from dhocl.experiment.recipes import Scale
from dhocl.experiment.sweep import Call, SweepFolder
from dhocl.report.claim_forest import claim_forest
from dhocl.report.claim_text import key_number, paragraph, tally
from dhocl.report.claims import CLAIMS
from dhocl.report.evidence import Results, Summaries
from dhocl.report.exhibits import with_legend
from dhocl.report.section import Section, section, sweep_command
from dhocl.report.sweep import file_name
from dhocl.report.tables import as_csv, as_markdown
from dhocl.report.traces import claims_csv, runs_csv
from dhocl.report.verdicts import ClaimResult, judge

SMOKE = "Scale smoke: a random network and 440 pictures. The numbers mean nothing; they only show that everything runs."
COMPARED = ("main", "best")  # recipes whose figure of AAUC and cost is in the summary


class Image(NamedTuple):
    title: str
    file: str  # relative to the pages
    caption: str


class Study(NamedTuple):
    part: Section
    images: list[Image]


class Judged(NamedTuple):
    """A claim with its figure; None without a difference to show."""

    result: ClaimResult
    figure: str | None

    @property
    def page(self) -> str:
        """The recipe whose page has the claim: the one with the most comparisons. Empty if there are no runs."""
        return next(iter(self.result.recipes), "")

    @property
    def link(self) -> str:
        name = self.result.claim.name
        return f"[{name}]({self.page}.md#{name.lower().replace(' ', '-')})" if self.page else name


def write_pages(folder: Path, pages: Path, track: Callable[[list[str]], Iterable[str]] = iter) -> Path:
    """Write index.md, a page for each recipe, figures/, tables/, runs.csv and claims.csv.

    The same runs give the same bytes. Other files in `pages` are left alone.

    Args:
        folder: of the sweep.
        pages: folder to write to.
        track: iterates over the names of the recipes and may show progress.

    Returns:
        The path of index.md.
    """
    sweep = SweepFolder(folder)
    if not sweep.recipes:
        raise InputError(f"{folder} has no sweep: make one with `dhocl sweep RECIPE --out {folder}`")
    if pages.exists() and not pages.is_dir():
        raise InputError(f"can not write pages to {pages}, which is a file: give the name of a folder")
    studies = []
    for name in track(sweep.recipes):
        part = section(sweep, name)
        studies.append(Study(part, _images(part, pages)))
    sections = [study.part for study in studies]
    claims = [_judged(judge(claim, summaries(sections)), pages) for claim in CLAIMS]
    for study in studies:
        _write(pages / f"{study.part.name}.md", _study(study, claims, pages))
    _write(pages / "runs.csv", runs_csv(sections))
    _write(pages / "claims.csv", claims_csv([claim.result for claim in claims]))
    _write(pages / "index.md", _index(studies, claims))
    return pages / "index.md"


def summaries(sections: Sequence[Section]) -> Summaries:
    return {
        part.name: Results(
            part.scale,
            {
                panel: {
                    row: {run.key: run.summary | {"steps": run.curve[-1]["step"]} for run in runs}
                    for row, runs in rows.items()
                }
                for panel, rows in part.runs.items()
            },
        )
        for part in sections
    }


def _images(part: Section, pages: Path) -> list[Image]:
    found = []
    for picture in part.pictures:
        file = f"figures/{file_name(f'{part.name}-{picture.name}')}.svg"
        write_atomically(pages / file, svg(with_legend(picture), file))
        found.append(Image(picture.shown.title, file, picture.shown.caption))
    return found


def _judged(result: ClaimResult, pages: Path) -> Judged:
    figure = claim_forest(result)
    if figure is None:
        return Judged(result, None)
    file = f"figures/{file_name(result.claim.name)}.svg"
    write_atomically(pages / file, svg(figure, file))
    return Judged(result, file)


def svg(figure: Figure, name: str) -> bytes:
    """On white, so that it is legible on light and dark pages. Without a date, and with ids that depend on `name`."""
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(content, format="svg", dpi=150, facecolor="white", metadata={"Date": None})
    return content.getvalue()


def _study(study: Study, claims: Sequence[Judged], pages: Path) -> str:
    part = study.part
    tables = []
    for table in part.tables:
        file = f"tables/{file_name(f'{part.name}-{table.title}')}.csv"
        _write(pages / file, as_csv(table))
        tables.append((as_markdown(table), file))
    return _template("pages_study.md").render(
        part=part,
        warning=SMOKE if part.scale is Scale.smoke else "",
        claims=[claim for claim in claims if claim.page == part.name],
        elsewhere=[claim for claim in claims if part.name in claim.result.recipes[1:]],
        paragraph=paragraph,
        tables=tables,
        images=study.images,
    )


def _index(studies: Sequence[Study], claims: Sequence[Judged]) -> str:
    sections = [study.part for study in studies]
    runs = {
        run.name: run for part in sections for rows in part.runs.values() for found in rows.values() for run in found
    }
    fronts = [image for study in studies if study.part.name in COMPARED for image in study.images]
    return _template("pages_index.md").render(
        sections=sections,
        warning=SMOKE if any(part.scale is Scale.smoke for part in sections) else "",
        scales=list(dict.fromkeys(part.scale.value for part in sections)),
        datasets=list(dict.fromkeys(run.config.dataset for run in runs.values())),
        seeds=sorted({seed for part in sections for seed in part.seeds}),
        done=len(runs),
        planned=len({entry.run for part in sections for entry in part.entries}),
        commands=_commands(sections),
        folder=sections[0].folder,
        claims=claims,
        tally=tally,
        key_number=key_number,
        front=next((image for image in fronts if image.file.endswith("-AAUC-cost.svg")), None),
    )


def _commands(sections: Sequence[Section]) -> list[str]:
    """One command for all recipes that were asked for in the same way."""
    same: dict[tuple[Scale, Call, str], list[str]] = {}
    for part in sections:
        for call in part.calls:
            same.setdefault((part.scale, call, part.folder), []).append(part.name)
    return [sweep_command(names, *asked) for asked, names in same.items()]


def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("dhocl", "report"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name)


def _write(path: Path, text: str) -> None:
    write_atomically(path, text.encode())
