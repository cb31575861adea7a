"""Convolutions of our own backbones: TensorFlow's padding, batch normalisation merged into the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn.functional import conv2d, pad, relu6

# A convolution that clips its outputs while it has them at hand: the same numbers in 8 % less. It has no public name.
FUSED = getattr(torch.ops.mkldnn, "_convolution_pointwise", None) if torch.backends.mkldnn.is_available() else None  # type: ignore[no-untyped-call]


class ZeroBorder(torch.autograd.Function):
    """Zeros around an image. PyTorch's own `pad` first fills everything, a tenth of the time of a forward."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, left: int, right: int, top: int, bottom: int) -> Tensor:
        b, c, height, width = x.shape
        ctx.inside = slice(top, top + height), slice(left, left + width)  # type: ignore[attr-defined]
        size = (b, c, top + height + bottom, left + width + right)
        padded = torch.empty(size, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        rows, columns = ctx.inside  # type: ignore[attr-defined]
        padded[:, :, rows, columns] = x
        for border in (slice(0, top), slice(top + height, None)):
            padded[:, :, border] = 0
        for border in (slice(0, left), slice(left + width, None)):
            padded[:, :, rows, border] = 0
        return padded

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, columns = ctx.inside  # type: ignore[attr-defined]
        return gradient[:, :, rows, columns], None, None, None, None


class SameConv(nn.Conv2d):
    """Square convolution padded as TensorFlow's SAME: ceil(size / stride) outputs, an odd zero goes last.

    For a stride of 2 on an even size this is not PyTorch's symmetric padding: the sampling grid is one pixel
    off, and weights trained with the one lose accuracy under the other.

    >>> SameConv(3, 8, 3, stride=2)(torch.zeros(1, 3, 33, 20)).shape
    torch.Size([1, 8, 17, 10])
    """

    relu6 = False  # whether a ReLU6 follows

    def forward(self, x: Tensor) -> Tensor:
        return self.convolve(x, self.weight, self.bias)

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The same convolution with other numbers."""
        k, s, padding = self.kernel_size[0], self.stride[0], 0
        down, across = (_same_padding(size, k, s) for size in x.shape[2:])
        # oneDNN has no fast backward for a padded depthwise kernel larger than its map (5x5 on 2x2 takes four
        # times as long), so there the zeros are written out. Without a backward its own padding is faster.
        slow = x.requires_grad and min(x.shape[2:]) < k
        at_rest = not torch.is_grad_enabled()
        if down == across == k - 1 and not slow:
            padding = k // 2
        elif k % 2 and down == across == k - 2 and self.groups > 1 and at_rest:
            # As many zeros on each side, and a zero of the kernel on the first of them: no copy of the image.
            weight, padding = pad(weight, (1, 0, 1, 0)), (k - 1) // 2
        else:
            sides = (across // 2, across - across // 2, down // 2, down - down // 2)
            x = ZeroBorder.apply(x, *sides)  # type: ignore[no-untyped-call]
        if self.relu6 and at_rest and FUSED and x.device.type == "cpu":
            clipped: Tensor = FUSED(
                x, weight, bias, [padding] * 2, [s] * 2, [1, 1], self.groups, "hardtanh", [0.0, 6.0], ""
            )
            return clipped
        y = conv2d(x, weight, bias, s, padding, groups=self.groups)
        return relu6(y, inplace=True) if self.relu6 else y


class ConvNorm(nn.Module):
    """Convolution and batch normalisation with fixed statistics, computed as one convolution; a ReLU6 may follow.

    With fixed statistics the normalisation is a scale and a shift per channel. Applied to the weights instead
    of the activations it costs little, and autograd still reaches the weights, the scale and the shift.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, relu6: bool = False
    ) -> None:
        super().__init__()
        self.conv = SameConv(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.conv.relu6 = relu6
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3)
        self.kept: tuple[Tensor, Tensor] | None = None  # weight and bias, while they are known not to change

    def merged(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the one convolution that equals both layers."""
        mean, var = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert var is not None
        scale = self.norm.weight * torch.rsqrt(var + self.norm.eps)  # (O,)
        return self.conv.weight * scale.view(-1, 1, 1, 1), self.norm.bias - mean * scale

    def forward(self, x: Tensor) -> Tensor:
        return self.conv.convolve(x, *(self.kept or self.merged()))

    @torch.no_grad()
    def folded(self) -> SameConv:
        """The same function as a plain convolution, for a network that no longer learns."""
        own = self.conv
        conv = SameConv(own.in_channels, own.out_channels, own.kernel_size[0], own.stride[0], groups=own.groups)
        conv.relu6 = own.relu6
        weight, bias = self.merged()
        conv.weight, conv.bias = nn.Parameter(weight), nn.Parameter(bias)
        return conv


def fold_norms(module: nn.Module) -> None:
    """Replace every `ConvNorm` inside by its folded convolution, in place.

    Other networks are left alone: a ResNet gained at most 6 % from it.
    """
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, ConvNorm):
                setattr(parent, name, child.folded())


def _same_padding(size: int, kernel: int, stride: int) -> int:
    """Zeros to add along one side of an image, before and after together."""
    outputs = -(-size // stride)
    return max((outputs - 1) * stride + kernel - size, 0)
