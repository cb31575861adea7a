"""The same replay on a linear model with Avalanche, if it is installed: pip install avalanche-lib."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from worlds import BATCH, REPLAY


class Images(torch.utils.data.Dataset[tuple[object, int]]):
    """PIL images, as torchvision transforms expect."""

    def __init__(self, x: Tensor, y: list[int]) -> None:
        from torchvision.transforms.functional import to_pil_image

        self.images = [to_pil_image(image) for image in x]
        self.targets = y

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, place: int) -> tuple[object, int]:
        return self.images[place], self.targets[place]


def stepper(x: Tensor, y: list[int], classes: int, size: int, buffer: int) -> Callable[[], None] | None:
    """A function that learns the images (n, 3, size, size) in batches, online; None without Avalanche."""
    try:
        from avalanche.benchmarks import benchmark_from_datasets
        from avalanche.benchmarks.scenarios.online import split_online_stream
        from avalanche.benchmarks.utils import as_classification_dataset
        from avalanche.training.plugins import ReplayPlugin
        from avalanche.training.storage_policy import ReservoirSamplingBuffer
        from avalanche.training.supervised import OnlineNaive
        from torchvision import transforms
    except (ImportError, RuntimeError):  # torchvision that was built for another PyTorch raises the latter
        return None
    augment = transforms.Compose(
        [
            transforms.RandomCrop(size, padding=size // 8),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.5,) * 3, (0.25,) * 3),
        ]
    )
    data = as_classification_dataset(Images(x, y), transform_groups={"train": (augment, None), "eval": (augment, None)})
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * size * size, classes))
    replay = ReplayPlugin(
        buffer, batch_size=BATCH, batch_size_mem=REPLAY, storage_policy=ReservoirSamplingBuffer(max_size=buffer)
    )
    strategy = OnlineNaive(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, fused=True),
        criterion=nn.CrossEntropyLoss(),
        train_passes=1,
        train_mb_size=BATCH,
        plugins=[replay],
        evaluator=None,
    )

    def learn() -> None:
        benchmark = benchmark_from_datasets(train=[data])
        with warnings.catch_warnings(action="ignore"):
            for experience in split_online_stream(benchmark.train_stream, experience_size=BATCH):
                strategy.train(experience)

    return learn
