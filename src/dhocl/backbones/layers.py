"""Convolutions of our own backbones: TensorFlow's padding, batch normalisation merged into the weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn.functional import conv2d, linear, pad, relu6

# Parts of oneDNN that have no public name. A convolution that clips its outputs while it has them at hand: the same
# numbers in 8 % less; a matrix product that does so; a matrix in the order in which that product reads it.
_ONEDNN = torch.ops.mkldnn if torch.backends.mkldnn.is_available() else None  # type: ignore[no-untyped-call]
FUSED, PRODUCT, PACKED = (
    getattr(_ONEDNN, name, None) for name in ("_convolution_pointwise", "_linear_pointwise", "_reorder_linear_weight")
)

FEW = 64  # positions of a map up to which a kernel of one pixel is faster as a matrix product


class SmallDepthwise(torch.autograd.Function):
    """A depthwise convolution on a map smaller than its kernel.

    oneDNN takes 4 to 30 ms for such a kernel's gradient, where all else of the layer takes half a millisecond.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.steps = stride, padding  # type: ignore[attr-defined]
        return conv2d(x, weight, bias, stride, padding, groups=len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        s, p = ctx.steps  # type: ignore[attr-defined]
        wanted = [True, False, False]
        of_x: Tensor = torch.ops.aten.convolution_backward(
            gradient, x, weight, None, [s, s], [p, p], [1, 1], False, [0, 0], len(weight), wanted
        )[0]
        of_bias = gradient.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None  # type: ignore[attr-defined]
        return of_x, kernel_gradient(x, gradient, weight.shape[2], s, p), of_bias, None, None


def kernel_gradient(x: Tensor, gradient: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
    """Of a depthwise kernel, (C, 1, k, k), from x (B, C, h, w) and the gradient of the outputs (B, C, h', w').

    Tap by tap, over those outputs for which the tap lies on the image and not on its border.
    """
    down, across = (
        [_under(tap, inputs, outputs, stride, padding) for tap in range(kernel)]
        for inputs, outputs in zip(x.shape[2:], gradient.shape[2:], strict=True)
    )
    x, gradient = x.permute(0, 2, 3, 1), gradient.permute(0, 2, 3, 1)  # as they lie in memory
    taps = x.new_empty(kernel, kernel, x.shape[3])
    for i, (rows, to_rows) in enumerate(down):
        for j, (columns, to_columns) in enumerate(across):
            taps[i, j] = (x[:, rows, columns] * gradient[:, to_rows, to_columns]).sum((0, 1, 2))
    return taps.permute(2, 0, 1).unsqueeze(1)


def _under(tap: int, inputs: int, outputs: int, stride: int, padding: int) -> tuple[slice, slice]:
    """Pixels of a row on which a tap of the kernel comes to lie, and the outputs for which it does.

    >>> _under(0, inputs=4, outputs=2, stride=2, padding=1)
    (slice(1, 2, 2), slice(1, 2, None))
    """
    off = tap - padding
    first = max(0, -(off // stride))
    last = max(first, min(outputs, (inputs - 1 - off) // stride + 1))
    return slice(first * stride + off, max(0, last * stride + off - stride + 1), stride), slice(first, last)


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
        return self.convolve(x, self.weight, self.bias, self.relu6)

    def fixed(self, weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
        """The same convolution with other numbers, which will not change: what can be prepared is."""
        pointwise = self.kernel_size[0] == self.stride[0] == self.groups == 1
        plain = weight.device.type != "cpu" or weight.dtype != torch.float32
        if not pointwise or plain or PRODUCT is None or PACKED is None:
            return partial(self.convolve, weight=weight, bias=bias, clip=self.relu6)
        multiply, matrix = PRODUCT, PACKED(weight.flatten(1).contiguous())
        then = ("hardtanh", [0.0, 6.0], "") if self.relu6 else ("none", [], "")

        def product(x: Tensor) -> Tensor:
            pixels = x.permute(0, 2, 3, 1)  # (B, h, w, C), as they lie in memory
            y: Tensor = multiply(pixels.flatten(0, 2), matrix, bias, *then)
            return y.view(*pixels.shape[:3], -1).permute(0, 3, 1, 2)

        return product

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None, clip: bool) -> Tensor:
        """The same convolution with other numbers; `clip` by a ReLU6."""
        k, s, padding = self.kernel_size[0], self.stride[0], 0
        on_cpu, at_rest = x.device.type == "cpu", not torch.is_grad_enabled()
        if k == s == self.groups == 1 and x.shape[2] * x.shape[3] <= FEW and on_cpu:
            pixels = x.permute(0, 2, 3, 1)  # (B, h, w, C), as they lie in memory
            # Of two dimensions, since of four the product is a view, which to clip in place takes copies.
            y = linear(pixels.flatten(0, 2), weight.flatten(1), bias)
            y = relu6(y, inplace=True) if clip else y
            return y.view(*pixels.shape[:3], -1).permute(0, 3, 1, 2)
        depthwise = self.groups == self.in_channels == self.out_channels
        small = depthwise and x.requires_grad and min(x.shape[2:]) < k and on_cpu
        down, across = (_same_padding(size, k, s) for size in x.shape[2:])
        if down == across == k - 1:
            padding = k // 2
        elif k % 2 and down == across == k - 2 and self.groups > 1 and (at_rest or small):
            # As many zeros on each side, and a zero of the kernel on the first of them: no copy of the image.
            weight, padding = pad(weight, (1, 0, 1, 0)), (k - 1) // 2
        else:
            sides = (across // 2, across - across // 2, down // 2, down - down // 2)
            x = ZeroBorder.apply(x, *sides)  # type: ignore[no-untyped-call]
        if clip and at_rest and FUSED and on_cpu:
            clipped: Tensor = FUSED(
                x, weight, bias, [padding] * 2, [s] * 2, [1, 1], self.groups, "hardtanh", [0.0, 6.0], ""
            )
            return clipped
        if small:
            y = SmallDepthwise.apply(x, weight, bias, s, padding)  # type: ignore[no-untyped-call]
        else:
            y = conv2d(x, weight, bias, s, padding, groups=self.groups)
        return relu6(y, inplace=True) if clip else y


class ConvNorm(nn.Module):
    """Convolution and batch normalisation, with fixed statistics computed as one convolution; a ReLU6 may follow.

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
        self._fixed: Callable[[Tensor], Tensor] | None = None  # both layers in one, while they are known not to change

    def merged(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the one convolution that equals both layers."""
        mean, var = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert var is not None
        scale = self.norm.weight * torch.rsqrt(var + self.norm.eps)  # (O,)
        return self.conv.weight * scale.view(-1, 1, 1, 1), self.norm.bias - mean * scale

    def forward(self, x: Tensor) -> Tensor:
        if self.norm.training:  # by the statistics of the batch, which are known only after the convolution
            y = self.norm(self.conv.convolve(x, self.conv.weight, None, clip=False))
            return relu6(y, inplace=True) if self.conv.relu6 else y
        return self._fixed(x) if self._fixed else self.conv.convolve(x, *self.merged(), clip=self.conv.relu6)

    @torch.no_grad()
    def rest(self) -> None:
        """From now on weights and statistics will not change: merge them once."""
        self._fixed = self.conv.fixed(*self.merged())

    def wake(self) -> None:
        self._fixed = None


def _same_padding(size: int, kernel: int, stride: int) -> int:
    """Zeros to add along one side of an image, before and after together."""
    outputs = -(-size // stride)
    return max((outputs - 1) * stride + kernel - size, 0)
