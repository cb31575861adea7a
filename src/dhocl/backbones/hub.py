"""Pretrained image models by name, from the Hugging Face hub or a folder: `pip install 'dhocl[hub]'`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from dhocl.backbones.base import IMAGENET_MEAN, IMAGENET_STD, Backbone
from dhocl.errors import InputError

ANY_SIZE = {"interpolate_pos_encoding": True}
TRANSFORMERS: dict[str, dict[str, bool]] = {  # what each must be told to take images of any size
    "vit": ANY_SIZE,  # DINO is of this type too
    "vit_mae": ANY_SIZE,
    "deit": ANY_SIZE,
    "dinov2": {},
    "clip": ANY_SIZE,
}


class HubResNet(Backbone):
    """Features: the pooled last stage. Map: stage 3, at stride 16, or the last."""

    def __init__(self, model: Any, mean: Sequence[float], std: Sequence[float]) -> None:
        widths = model.config.hidden_sizes
        super().__init__(widths[-1], widths[-2], mean, std, last_dim=widths[-1])
        self.model = model

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out = self.model(x, output_hidden_states=True)
        fmap = out.hidden_states[-1 if self.last_map else -2]  # (B, map_dim, H/16, W/16), or of H/32, W/32
        return out.pooler_output.flatten(1), fmap


class HubTransformer(Backbone):
    """Features: the class token. Map: the patch tokens at their places. Both after the final layer norm.

    The class token is taken before any further layer: DINO and MAE have none that was trained, and CLIP's
    projection serves to match text. A patch is 14, 16 or 32 pixels wide, and that is the stride of the map.
    """

    def __init__(self, model: Any, kind: str, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(model.config.hidden_size, model.config.hidden_size, mean, std)
        self.model = model
        self.kind = kind

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h, w = (size // self.model.config.patch_size for size in x.shape[2:])
        options: dict[str, Any] = {**TRANSFORMERS[self.kind]}
        if self.kind == "vit_mae":  # shuffles its patches by this noise, even if it hides none
            options["noise"] = torch.arange(h * w, device=x.device).expand(len(x), -1)
        tokens = self.model(x, **options).last_hidden_state  # (B, 1 or more + h w, dim)
        if self.kind == "clip":  # leaves the final norm of all tokens but the first to us
            tokens = self.model.post_layernorm(tokens)
        patches = tokens[:, -h * w :].transpose(1, 2)  # (B, dim, h w)
        return tokens[:, 0], patches.unflatten(2, (h, w))


def hub(name: str) -> Backbone:
    """The image model of that name, or in that folder."""
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
    if kind == "resnet":
        return HubResNet(model, *_normalisation(name)).ready()
    if kind not in TRANSFORMERS:
        known = ", ".join(["resnet", *TRANSFORMERS])
        raise InputError(f"hub:{name} is of type {kind}; known are {known} (others: dhocl.backbones.wrap)")
    return HubTransformer(_encoder(model, kind), kind, *_normalisation(name)).ready()


def _encoder(model: Any, kind: str) -> Any:
    """The part that sees the whole image, without weights that no feature depends on."""
    if kind == "clip":
        return model.vision_model
    if kind == "vit_mae":
        model.config.mask_ratio = 0.0
    if kind in ("vit", "deit"):
        model.pooler = None
    return model


def _normalisation(name: str) -> tuple[Sequence[float], Sequence[float]]:
    """Mean and standard deviation the model was trained with; ImageNet's if it does not say."""
    from transformers import ImageProcessingMixin

    try:
        said, _ = ImageProcessingMixin.get_image_processor_dict(name)
    except OSError:
        said = {}
    return said.get("image_mean", IMAGENET_MEAN), said.get("image_std", IMAGENET_STD)
