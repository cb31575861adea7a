"""Folders of runs whose numbers are known, and the pages that are written about them."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import torch

from dhocl.core.taxonomy import Label, Taxonomy
from dhocl.experiment.config import RunConfig
from dhocl.experiment.evaluate import Scores, summarise
from dhocl.experiment.record import Record

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
