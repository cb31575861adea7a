"""Pretrained image models by name, from the Hugging Face hub or a folder: `pip install 'dhocl[hub]'`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from dhocl.core.errors import InputError
from dhocl.nn.backbones.base import IMAGENET_MEAN, IMAGENET_STD, Backbone, Encoded

ANY_SIZE = {"interpolate_pos_encoding": True}
TRANSFORMERS: dict[str, dict[str, bool]] = {  # type -> options by which it takes images of any size
    "vit": ANY_SIZE,  # DINO is of this type too
    "vit_mae": ANY_SIZE,
    "deit": ANY_SIZE,
    "dinov2": {},
    "dinov3_vit": {},
    "clip": ANY_SIZE,
    "siglip": ANY_SIZE,
}


class HubStages(Backbone):
    """Features: the pooled last stage. Maps: the stages, each at twice the stride of the one before, from 4 on."""

    def __init__(self, model: Any, widths: Sequence[int], mean: Sequence[float], std: Sequence[float]) -> None:
        maps = {4 << stage: width for stage, width in enumerate(widths)}
        super().__init__(widths[-1], maps, mean, std, stages=widths[-3:-1])  # the last, pooled, is the features
        self.model = model

    def encode(self, x: Tensor) -> Encoded:
        out = self.model(x, output_hidden_states=True)
        return self.encoded(out.pooler_output.flatten(1), out.hidden_states)

    def encoded(self, features: Tensor, maps: Sequence[Tensor]) -> Encoded:
        """`maps`: the input, if it is there, and the stages (B, channels, H/stride, W/stride)."""
        chosen = maps[list(self.maps).index(self.map_stride) - len(self.maps)]
        return Encoded(features, chosen, tuple(maps[-3:-1]))


class HubSwin(HubStages):
    """The same for Swin, whose model returns each stage after downsampling."""

    def encode(self, x: Tensor) -> Encoded:
        patches, size = self.model.embeddings(x, **ANY_SIZE)
        self._shift_windows(size)
        out = self.model.encoder(
            patches,
            size,
            always_partition=True,
            output_hidden_states=True,
            output_hidden_states_before_downsampling=True,
        )
        tokens = self.model.layernorm(out.last_hidden_state)  # (B, h w, dim)
        return self.encoded(tokens.mean(1), out.reshaped_hidden_states)

    def _shift_windows(self, size: tuple[int, int]) -> None:
        """Every second block shifts its windows, unless one window covers the map.

        With `always_partition` the model does not set the shift. Without it, an image whose maps are smaller than a
        window permanently shrinks the windows of the model, and the next one fails: position biases do not shrink.
        """
        window = self.model.config.window_size
        for stage in self.model.encoder.layers:
            for place, block in enumerate(stage.blocks):
                block.shift_size = window // 2 if place % 2 and min(size) > window else 0
            size = (size[0] + 1) // 2, (size[1] + 1) // 2


STAGES = {"resnet": HubStages, "convnext": HubStages, "dinov3_convnext": HubStages, "swin": HubSwin}


class HubTransformer(Backbone):
    """Features: the class token. Map: the patch tokens at their places. Both after the final layer norm.

    Layers after the class token are not used: those of DINO and MAE are untrained, and CLIP's projection matches text.
    SigLIP has no class token; its features come from its attention pooling. The stride of the map is the side of a
    patch: 14, 16 or 32 pixels. Stage: the patch tokens after three quarters of the blocks.
    """

    def __init__(self, model: Any, kind: str, mean: Sequence[float], std: Sequence[float]) -> None:
        dim = model.config.hidden_size
        super().__init__(dim, {model.config.patch_size: dim}, mean, std, stages=(dim,))
        self.model = model
        self.kind = kind

    def encode(self, x: Tensor) -> Encoded:
        h, w = (size // self.model.config.patch_size for size in x.shape[2:])
        options: dict[str, Any] = {**TRANSFORMERS[self.kind]}
        if self.kind == "vit_mae":  # it orders its patches by this noise, even without masking
            options["noise"] = torch.arange(h * w, device=x.device).expand(len(x), -1)
        out = self.model(x, output_hidden_states=True, **options)
        tokens = out.last_hidden_state  # (B, 0 or more + h w, dim)
        if self.kind == "clip":  # it applies the final norm to the first token only
            tokens = self.model.post_layernorm(tokens)
        patches = tokens[:, -h * w :].transpose(1, 2)  # (B, dim, h w)
        features = out.pooler_output if self.kind == "siglip" else tokens[:, 0]
        stage = out.hidden_states[self.model.config.num_hidden_layers * 3 // 4]  # 0 is the input of the first block
        grid = (h, w)
        return Encoded(features, patches.unflatten(2, grid), (stage[:, -h * w :].transpose(1, 2).unflatten(2, grid),))


def hub(name: str) -> Backbone:
    """The image model with this name, or in this folder."""
    try:
        from transformers import AutoModel
    except ImportError as error:
        raise InputError("hub: models need the transformers package: pip install 'dhocl[hub]'") from error
    try:
        model = AutoModel.from_pretrained(name).float()
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"hub:{name} can not be loaded: {reason}") from error
    kind = model.config.model_type
    if kind in STAGES:
        return STAGES[kind](model, _widths(model.config), *_normalisation(name)).ready()
    if kind not in TRANSFORMERS:
        known = ", ".join([*STAGES, *TRANSFORMERS])
        raise InputError(f"hub:{name} is of type {kind}; known are {known} (others: dhocl.nn.backbones.wrap)")
    return HubTransformer(_encoder(model, kind), kind, *_normalisation(name)).ready()


def _widths(config: Any) -> list[int]:
    """Channels of each stage."""
    if config.model_type == "swin":
        return [config.embed_dim << stage for stage in range(len(config.depths))]
    widths: list[int] = config.hidden_sizes
    return widths


def _encoder(model: Any, kind: str) -> Any:
    """The image encoder, without masking and without weights that features do not depend on."""
    if kind in ("clip", "siglip"):
        return model.vision_model
    if kind == "vit_mae":
        model.config.mask_ratio = 0.0
    if kind in ("vit", "deit"):
        model.pooler = None
    return model


def _normalisation(name: str) -> tuple[Sequence[float], Sequence[float]]:
    """Mean and standard deviation of the model's training images; those of ImageNet if not stated."""
    from transformers import ImageProcessingMixin

    try:
        stated, _ = ImageProcessingMixin.get_image_processor_dict(name)
    except OSError:
        stated = {}
    return stated.get("image_mean", IMAGENET_MEAN), stated.get("image_std", IMAGENET_STD)
