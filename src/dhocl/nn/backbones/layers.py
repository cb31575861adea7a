"""Convolution and batch normalisation of the built-in backbones, with all CPU-specific convolution code.

Time relative to pad, conv2d, batch_norm and relu6, EfficientNet-Lite0, 48 images, one thread of an AMD EPYC: training
0.87 and prediction at rest 0.77 at 64 px; 0.60 and 0.64 at 32 px.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear, pad, relu6, unfold

FEW_PIXELS = 64  # pixels of a map up to which a 1x1 convolution is faster as a matrix product
FEW_PAIRS = 81  # input times output pixels up to which a depthwise convolution trains faster pair by pair


class SameConv(nn.Conv2d):
    """Square convolution with TensorFlow's SAME padding: ceil(size / stride) outputs, an odd zero goes last.

    With stride 2 and an even size this differs from PyTorch's symmetric padding: the sampling grid is shifted by one
    pixel, and weights trained with one padding lose accuracy with the other.

    >>> SameConv(3, 8, 3, stride=2)(torch.zeros(1, 3, 33, 20)).shape
    torch.Size([1, 8, 17, 10])
    """

    def forward(self, x: Tensor) -> Tensor:
        return self.convolve(x, self.weight, self.bias)

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """This convolution with other weights: (B, inputs, h, w) -> (B, outputs, ceil(h / s), ceil(w / s))."""
        (k, _), (s, _), (h, w) = self.kernel_size, self.stride, x.shape[2:]
        if k == s == self.groups == 1 and h * w <= FEW_PIXELS:
            return linear(x.permute(0, 2, 3, 1), weight.flatten(1), bias).permute(0, 3, 1, 2)
        down, across = (max((-(-size // s) - 1) * s + k - size, 0) for size in (h, w))  # zeros in total
        if down % 2 or across % 2:  # pad the kernel in front instead of the image behind: avoids a copy of the image
            weight = pad(weight, (across % 2, 0, down % 2, 0))
        padding = ((down + 1) // 2, (across + 1) // 2)
        depthwise = self.groups == self.in_channels == self.out_channels
        trains = weight.requires_grad and torch.is_grad_enabled()
        if depthwise and trains and h * w * -(-h // s) * -(-w // s) <= FEW_PAIRS:
            return _depthwise_by_pairs(x, weight, bias, s, padding)
        return conv2d(x, weight, bias, s, padding, groups=self.groups)


def _depthwise_by_pairs(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: tuple[int, int]
) -> Tensor:
    """conv2d(x, weight, bias, stride, padding, groups=C) as products of input pixels and factors of output pixels.

    Uses all pairs of the n pixels of a map (B, C, h, w) and its o outputs. On 2x2 pixels, forward and backward take a
    quarter of the time of conv2d, whose kernel gradient is slow on small maps.
    """
    b, c, h, w = x.shape
    one_hot = torch.eye(h * w, dtype=x.dtype, device=x.device).view(-1, 1, h, w)  # an image for each pixel
    taps = unfold(one_hot, weight.shape[2:], padding=padding, stride=stride)  # (n, k*k, o), 1: tap is on pixel
    factors = torch.einsum("nto,ct->noc", taps, weight.flatten(1))  # (n, o, C)
    pixels = x.permute(0, 2, 3, 1).flatten(1, 2)  # (B, n, C)
    y = (pixels.unsqueeze(2) * factors).sum(1)  # (B, o, C)
    y = y if bias is None else y + bias
    return y.view(b, -(-h // stride), -(-w // stride), c).permute(0, 3, 1, 2)


class ConvNorm(nn.Module):
    """Convolution, batch normalisation and optional ReLU6. At rest, one convolution by batch-norm folding."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, relu6: bool = False
    ) -> None:
        super().__init__()
        self.conv = SameConv(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3)
        self.relu6 = relu6
        self._folded: tuple[Tensor, Tensor] | None = None  # weight and bias, between `rest` and `wake`

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv.convolve(x, *self._folded) if self._folded else self.norm(self.conv(x))
        return relu6(y, inplace=True) if self.relu6 else y

    def folded_weights(self) -> tuple[Tensor, Tensor]:
        """Batch-norm folding: weight and bias of the one convolution that equals both layers with fixed statistics."""
        mean, var = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert var is not None
        scale = self.norm.weight * torch.rsqrt(var + self.norm.eps)  # (outputs,)
        return self.conv.weight * scale.view(-1, 1, 1, 1), self.norm.bias - mean * scale

    @property
    def rests(self) -> bool:
        return self._folded is not None

    @torch.no_grad()
    def rest(self) -> None:
        """Fold the batch normalisation into the convolution, until `wake`. Meanwhile weight changes have no effect."""
        self._folded = self.folded_weights()

    def wake(self) -> None:
        self._folded = None
