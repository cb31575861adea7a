"""How true the service's probabilities are, before and after calibration, on a stream that it predicts and then learns.

    python benchmarks/calibration.py [--samples 3000] [--backbone efficientnet_lite0] [--method halo] [--out FILE]

Letter shapes at 64 px in micro-batches of 32, in ten groups of classes that come in turn, each image named at a random
rank. Printed is the expected calibration error: answers in ten bins by their probability, the difference between
probability and share of right ones in each, averaged over the answers. Classes never met before are left out.
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

from dhocl.classifier import Classifier
from dhocl.config import RunConfig
from dhocl.knowledge import Oracle
from dhocl.metrics import calibration_error
from dhocl.run import load_dataset, make_plan
from dhocl.service.beliefs import believe
from dhocl.service.model import Model
from dhocl.stream import Stream
from dhocl.taxonomy import UNKNOWN, Label

Answers = dict[str, list[tuple[float, bool]]]  # rank -> probability of the answer, and whether it was right


def error(answers: list[tuple[float, bool]]) -> float:
    return calibration_error(*torch.tensor(answers).t(), bins=10)


def note(model: Model, x: torch.Tensor, labels: list[Label], raw: Answers, calibrated: Answers) -> None:
    """What the model says of these images before it learns them."""
    tree, view = model.taxonomy, model.view()
    p = model.classifier.probabilities(list(x.permute(0, 2, 3, 1).numpy()))
    plain = believe(p, view.paths, dict.fromkeys(view.betas, 1.0), 1.0)
    sharp = believe(p, view.paths, view.betas, view.path_beta)
    for row, label in enumerate(labels):
        if label not in tree:
            continue
        truth = tree.paths[tree.id(label)].tolist()
        for said, answers in ((plain, raw), (sharp, calibrated)):
            best = said.paths[said.posterior[row].argmax()].tolist()
            for place, level in enumerate(tree.levels):
                if truth[place] != UNKNOWN:
                    top = said.ranks[level][row].max(0)
                    answers[model.ranks[level]].append((float(top.values), int(top.indices) == truth[place]))
                if truth[place] != UNKNOWN and best[place] != UNKNOWN:
                    p_node = said.marginal(row, place, best[place])
                    answers[f"path, {model.ranks[level]}"].append((p_node, best[place] == truth[place]))


def main(
    samples: int = 3000,
    backbone: str = "efficientnet_lite0",
    method: str = "halo",
    out: Annotated[Path | None, typer.Option(help="Also write the numbers as JSON.")] = None,
) -> None:
    config = RunConfig(method, samples=samples, test_samples=220, image_size=64)
    dataset = load_dataset(config)
    model = Model(
        Classifier(
            dataset.levels,
            source=Oracle(dataset.tree),
            method=method,
            backbone=backbone,
            image_size=64,
            flip=dataset.flip,
        )
    )
    raw: Answers = defaultdict(list)
    calibrated: Answers = defaultdict(list)
    batches = Stream(dataset, make_plan(config, dataset).table, 32).batches()
    for x, labels in track(batches, "learning", total=-(-samples // 32)):
        if len(model.taxonomy):
            note(model, x, labels, raw, calibrated)
        names = [(label.name, dataset.levels[label.level]) for label in labels]
        model.learn(list(x.permute(0, 2, 3, 1).numpy()), names)
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
    view = model.view()
    print("β at the end:", {model.ranks[level]: round(beta, 2) for level, beta in view.betas.items()}, end=" ")
    print("paths:", round(view.path_beta, 2))
    if out:
        out.write_text(json.dumps({"method": method, "backbone": backbone, "ranks": report}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
