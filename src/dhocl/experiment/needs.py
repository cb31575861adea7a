"""Memory that a run needs, estimated before it starts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from dhocl.core.room import check_room
from dhocl.experiment.config import RunConfig
from dhocl.model import Model
from dhocl.nn.backbones import Backbone


def check_memory(config: RunConfig, model: Model, samples: int) -> None:
    """InputError if the images that the method stores, or those of a training step, do not fit in memory.

    Args:
        config: of the run.
        model: before its first batch.
        samples: length of the stream.
    """
    side, needs = model.config.image_size, model.learner.needs(config.batch, samples)
    stored = needs.stored * 3 * side**2
    what = f"the {needs.stored:,} images of {side} px that {config.method} stores"
    check_room(stored, what, "choose fewer `samples` or a smaller `image_size`, or another `method`")
    if needs.trained:
        trained = needs.trained * activation_bytes(model.backbone, side)
        what = f"the {needs.trained:,} images of {side} px that {config.method} trains on in a step"
        check_room(trained, what, "lower `batch`, `replay_batch` or `image_size`", model.device)


def activation_bytes(f: Backbone, side: int) -> int:
    """Bytes that a forward pass keeps of each image for the backward pass."""
    pixels = f.meter.pixels
    one, two = (_kept(f, torch.zeros(count, 3, side, side, dtype=torch.uint8)) for count in (1, 2))
    f.meter.pixels = pixels  # it is not part of the run
    return two - one  # without the weights


def _kept(f: Backbone, x: Tensor) -> int:
    found: dict[int, int] = {}  # storage -> bytes

    def pack(values: Tensor) -> Tensor:
        storage = values.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return values

    with torch.enable_grad(), saved_tensors_hooks(pack, lambda values: values):
        kept = f.features(x)  # alive until all is counted: freed memory would be used again
    del kept
    return sum(found.values())
