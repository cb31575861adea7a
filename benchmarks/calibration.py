"""Expected calibration error of a model's probabilities before and after calibration, on a stream.

    python benchmarks/calibration.py [--samples 3000] [--backbone efficientnet_lite0] [--method halo] [--out FILE]

`glyphs` at 64 px in micro-batches of 32, in ten groups of classes one after the other, each image labelled at a random
rank. The expected calibration error has ten bins of predictions by probability: the difference between probability and
accuracy of each bin, averaged over predictions. Images of classes that were never seen before are left out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.progress import track

from dhocl.core.decode import believe, merge_synonyms
from dhocl.core.taxonomy import UNKNOWN, Label
from dhocl.experiment.config import RunConfig
from dhocl.experiment.metrics import calibration_error
from dhocl.experiment.run import load_dataset, make_plan
from dhocl.model import Model, ModelConfig
from dhocl.stream import Stream

Answers = dict[str, list[tuple[float, bool]]]  # rank -> probability of the answer, and whether it was right


def error(answers: list[tuple[float, bool]]) -> float:
    return calibration_error(*torch.tensor(answers).t(), bins=10)


def note(model: Model, x: torch.Tensor, labels: list[Label], raw: Answers, calibrated: Answers) -> None:
    """Predictions of these images before they are learned."""
    tree, names = model.taxonomy, model.config.levels
    plain = believe(merge_synonyms(model.learner.predict(x), tree), tree)
    sharp = model.beliefs(x)
    for row, label in enumerate(labels):
        if label not in tree:
            continue
        truth = tree.paths[tree.id(label)].tolist()
        for said, answers in ((plain, raw), (sharp, calibrated)):
            best = said.paths[said.posterior[row].argmax()].tolist()
            for place, level in enumerate(tree.levels):
                if truth[place] != UNKNOWN:
                    top = said.levels[level][row].max(0)
                    answers[names[level]].append((float(top.values), int(top.indices) == truth[place]))
                if truth[place] != UNKNOWN and best[place] != UNKNOWN:
                    p_node = said.marginal(row, place, best[place])
                    answers[f"path, {names[level]}"].append((p_node, best[place] == truth[place]))


def main(
    samples: int = 3000,
    backbone: str = "efficientnet_lite0",
    method: str = "halo",
    out: Annotated[Path | None, typer.Option(help="Also write the numbers as JSON.")] = None,
) -> None:
    config = RunConfig(method, samples=samples, test_samples=220, image_size=64)
    dataset = load_dataset(config)
    made_of = ModelConfig(dataset.levels, method=method, backbone=backbone, image_size=64, flip=dataset.flip)
    model = Model(made_of, tree=dataset.tree)
    raw: Answers = defaultdict(list)
    calibrated: Answers = defaultdict(list)
    batches = Stream(dataset, make_plan(config, dataset).table, 32).batches()
    for x, labels in track(batches, "learning", total=-(-samples // 32)):
        if len(model.taxonomy):
            note(model, x, labels, raw, calibrated)
        model.observe(x, labels)
    report = {
        rank: {
            "answers": len(raw[rank]),
            "right": round(float(np.mean([right for _, right in raw[rank]])), 3),
            "ece_before": round(error(raw[rank]), 3),
            "ece_after": round(error(calibrated[rank]), 3),
        }
        for rank in sorted(raw)
    }
    print("| rank | answers | right | ECE before | ECE after |\n|---|---:|---:|---:|---:|")
    for rank, row in report.items():
        print(f"| {rank} | {row['answers']} | {row['right']} | {row['ece_before']} | {row['ece_after']} |")
    if out:
        out.write_text(json.dumps({"method": method, "backbone": backbone, "ranks": report}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
