"""Learning in bulk: images per second, compared with the bare network, and the cost of the sums.

    python benchmarks/bulk.py --data DIR [--images 2048] [--workers 1 --workers 2]

Photographs of CUB-200 at 96 px from files, each labelled at a random rank. Every engine learns the same ones, in turns;
photographs with coarse labels are looked at twice, and count twice. The bare network decodes and embeds the same files
in this process, on one thread. A worker of the cluster has one thread, too. The rest is the time to read labels, fit
and save, which does not grow with the images. The last rows are the sums of 10,000 classes.
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from PIL import Image
from rich.console import Console

from dhocl.bulk.learning import Engine, learn_in_bulk, locally
from dhocl.bulk.on_ray import ray_engine
from dhocl.bulk.work import Part, Row, Task
from dhocl.classifier.learning import opened
from dhocl.core.rng import Rng
from dhocl.core.table import TreeTable
from dhocl.data.files import read_each
from dhocl.experiment.config import RunConfig
from dhocl.experiment.run import load_dataset
from dhocl.nn.heads.bulk import BulkSums
from dhocl.nn.heads.ridge import Statistics

SIZE = 96
CLASSES, FEATURES, CHUNK = 10_000, 1712, 4096


def write_album(folder: Path, data: Path, images: int) -> None:
    """Photographs with labels at random ranks, and the tree."""
    config = RunConfig(dataset="cub200", data=data, image_size=SIZE, samples=images, test_samples=10, holdout=True)
    dataset = load_dataset(config)
    tree, rng, rows = dataset.tree, Rng(0, "ranks"), [("path", "label", "level")]
    folder.mkdir()
    for number, (image, node) in enumerate(zip(dataset.train.images, dataset.train.nodes.tolist(), strict=True)):
        label = tree.labels[rng.choice(tree.lineage(node))]
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{number}.jpg", quality=92)
        rows.append((f"{number}.jpg", label.name, dataset.levels[label.level]))
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    links = [("child", "level", "parent")]
    for node, label in enumerate(tree.labels):
        above = tree.labels[tree.parent(node)].name if tree.parent(node) >= 0 else ""
        links.append((label.name, dataset.levels[label.level], above))
    (folder / "tree.tsv").write_text("\n".join("\t".join(link) for link in links))


class Timed:
    """An engine, and the seconds that it took: to start workers, for a task of one image, and to look at all images."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.looks = 0
        self.start = 0.0
        self.seconds = 0.0

    def __call__(self, model: dict[str, Any], task: Task, rows: Sequence[Row]) -> Iterator[Part]:
        began = time.perf_counter()
        list(self._engine(model, task, rows[:1]))
        start = time.perf_counter() - began
        self.start += start
        self.seconds -= start
        began = time.perf_counter()
        for part in self._engine(model, task, rows):
            self.looks += part.rows
            self.seconds += time.perf_counter() - began
            yield part
            began = time.perf_counter()


def learned(engine: Engine, model: Path, album: Path) -> tuple[float, float, float]:
    """Looks per second, the seconds to start workers, and those of all else."""
    timed, began = Timed(engine), time.perf_counter()
    for _ in learn_in_bulk(model, album, {"image_size": SIZE}, timed):
        pass
    rest = time.perf_counter() - began - timed.seconds - 2 * timed.start
    return timed.looks / timed.seconds, timed.start, rest


def bare(album: Path, model: Path) -> float:
    """Looks per second: all images, and those with coarse labels again, decoded and embedded in this process."""
    with opened(model, album, {}) as (classifier, photos):
        features, tree = classifier.model.learner.features, classifier.taxonomy  # type: ignore[attr-defined]
        is_leaf = TreeTable.of(tree).is_leaf
        coarse = [photo for photo in photos.photos if not is_leaf[tree.id(photo.label)]]
        began = time.perf_counter()
        with classifier.model.resting():
            for some in (photos.photos, coarse):
                for _, x in read_each(some, lambda photo: photo.path, SIZE, 64, ahead=False):
                    features(x)
        return (len(photos.photos) + len(coarse)) / (time.perf_counter() - began)


def rows(data: Path, images: int, workers: list[int]) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as place:
        album = Path(place) / "album"
        write_album(album, data, images)
        local, _, rest = learned(locally, Path(place) / "local", album)
        alone = bare(album, Path(place) / "local")
        yield "the bare network", f"{alone:.1f} looks/s"
        yield "--engine local", f"{local:.1f} looks/s, {local / alone:.2f} of it; the rest {rest:.0f} s"
        for count in workers:
            with ray_engine(None, count) as engine:
                rate, start, rest = learned(engine, Path(place) / f"ray{count}", album)
            share = rate / alone / count
            others = f"start {start:.0f} s, the rest {rest:.0f} s"
            yield f"--engine ray --workers {count}", f"{rate:.1f} looks/s, {share:.2f} of it per worker; {others}"


def sums() -> Iterator[tuple[str, str]]:
    """Of a part with all classes, the largest there is."""
    levels = torch.zeros(CLASSES, dtype=torch.long)
    table = TreeTable([0], levels, torch.arange(CLASSES)[:, None])
    phi, y = torch.randn(CHUNK, FEATURES), torch.randint(CLASSES, (CHUNK,))
    began = time.perf_counter()
    part = BulkSums(FEATURES, 512)
    part.add(phi, y, torch.arange(CHUNK), table)
    added = time.perf_counter() - began
    state = part.statistics.state_dict()
    size = sum(t.nbytes for t in (state["sums"], state["counts"], *state["grams"].values()))
    yield (
        f"sums of a part, {CLASSES:,} classes",
        f"{size / 1e6:.0f} MB for each rank; {CHUNK:,} images in {added:.2f} s",
    )
    total = Statistics(FEATURES, torch.float64)
    total.join(part.statistics)
    began = time.perf_counter()
    total.join(part.statistics)
    yield "to add two of them", f"{time.perf_counter() - began:.3f} s"


def main(
    data: Annotated[Path, typer.Option(help="Folder with CUB-200.")],
    images: int = 2048,
    workers: Annotated[list[int] | None, typer.Option(help="May be repeated.")] = None,
) -> None:
    torch.set_num_threads(1)
    console = Console()
    for what, value in [*rows(data, images, workers or [1, 2]), *sums()]:
        console.print(f"{what}: {value}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
