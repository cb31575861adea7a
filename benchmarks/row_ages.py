"""Effect of the age of rows: AAUC with an age per row minus AAUC with one age for all rows, paired over seeds.

    python benchmarks/row_ages.py --data DIR [--seeds 3] [--samples 6000] [--lr-heads 3e-3] [--out runs/row_ages]

CIFAR-100 at mini scale with `er`, `halo` and `nsce`. With one age, moments of new rows start at zero and are corrected
by the step count of the oldest row, as torch.optim.AdamW does for a whole parameter. DIR holds the published archive.
Stop it at any time and call it again: finished runs are kept.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track
from torch import Tensor

from dhocl import RunConfig, run_to_end
from dhocl.experiment.recipes import BASES, Scale
from dhocl.nn import optim
from dhocl.nn.learner import TrainSettings

METHODS: dict[str, dict[str, Any]] = {"er": {}, "halo": {}, "nsce": {"every": 500}}


def adamw_with_one_age(p: Tensor, g: Tensor, m: Tensor, v: Tensor, age: Tensor, lr: float, weight_decay: float) -> None:
    """One step of AdamW, in place, arguments as in `adamw_by_row`; m and v are not bias-corrected."""
    age += 1
    steps = float(age.max())
    p.mul_(1 - lr * weight_decay)
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m / (1 - 0.9**steps), (v / (1 - 0.999**steps)).sqrt().add_(1e-8), value=-lr)


def main(
    data: Annotated[Path, typer.Option(help="Folder of the archive.")] = Path("data"),
    seeds: int = 3,
    samples: int = 6000,
    lr_heads: float = TrainSettings.lr_heads,
    out: Path = Path("runs/row_ages"),
) -> None:
    base = BASES[Scale.mini]["cifar100"] | {"samples": samples, "data": str(data.absolute())}
    numbers: dict[tuple[str, str, int], float] = {}
    cells = [(kind, method, seed) for kind in ("one", "own") for method in METHODS for seed in range(seeds)]
    by_row = optim.adamw_by_row
    for kind, method, seed in track(cells, "runs"):
        optim.adamw_by_row = by_row if kind == "own" else adamw_with_one_age  # type: ignore[assignment]
        config = RunConfig(
            method=method, dataset="cifar100", seed=seed, settings=METHODS[method] | {"lr_heads": lr_heads}
        )
        result = run_to_end(dataclasses.replace(config, **base), out / f"{kind}-{method}-{seed}")
        numbers[kind, method, seed] = result.summary["AAUC"]
    print("| method |" + "".join(f" seed {seed} |" for seed in range(seeds)) + " mean |")
    print("|---|" + "---:|" * (seeds + 1))
    for method in METHODS:
        gaps = [numbers["own", method, seed] - numbers["one", method, seed] for seed in range(seeds)]
        print(f"| `{method}` |" + "".join(f" {gap:+.2f} |" for gap in [*gaps, sum(gaps) / seeds]))


if __name__ == "__main__":
    typer.run(main)
