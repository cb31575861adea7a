"""Our convolution and batch normalisation against PyTorch's own layers."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dhocl.nn.backbones.layers import ConvNorm, SameConv
from tests.helpers.tensors import normal, precise


def same_padded(x: Tensor, kernel: int, stride: int) -> Tensor:
    """TensorFlow's SAME padding of (B, C, h, w)."""
    down, across = (max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in x.shape[2:])
    return F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))


@pytest.mark.parametrize("relu6", [False, True])
@pytest.mark.parametrize("size", [4, 12])  # a matrix product and a convolution
def test_batch_statistics_equal_those_of_separate_layers(relu6: bool, size: int) -> None:
    torch.manual_seed(0)
    layer, x = ConvNorm(6, 10, relu6=relu6), 3 * torch.randn(5, 6, size, size)
    norm = copy.deepcopy(layer.norm)
    layer.train()
    expected = norm.train()(F.conv2d(x, layer.conv.weight))
    torch.testing.assert_close(layer(x), F.relu6(expected) if relu6 else expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(layer.norm.running_var, norm.running_var)
    torch.testing.assert_close(layer.norm.running_mean, norm.running_mean)
    layer.eval()
    after = norm.eval()(F.conv2d(x, layer.conv.weight))
    torch.testing.assert_close(layer(x), F.relu6(after) if relu6 else after, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("relu6", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "groups", "height", "width"),
    [
        (1, 1, 1, 8, 8),  # a matrix product
        (1, 1, 1, 9, 8),
        (1, 2, 1, 4, 4),
        (1, 1, 6, 4, 4),
        (3, 1, 6, 2, 2),  # depthwise, by pairs of pixels
        (3, 2, 6, 2, 2),
        (5, 1, 6, 1, 1),
        (5, 1, 6, 2, 2),
        (5, 2, 6, 3, 3),
        (5, 2, 6, 4, 4),
        (5, 2, 6, 3, 4),
        (5, 4, 6, 4, 4),
        (5, 1, 6, 3, 9),  # depthwise, too many pairs
        (5, 1, 6, 7, 4),
        (5, 4, 6, 8, 8),
        (3, 1, 1, 2, 2),  # neither
        (3, 1, 2, 2, 2),
    ],
)
def test_gradients_equal_those_of_separate_layers(
    kernel: int, stride: int, groups: int, height: int, width: int, relu6: bool
) -> None:
    """In float64, against pad, conv2d, batch_norm and relu6."""
    layer = ConvNorm(6, 6, kernel, stride, groups, relu6).double().eval()
    for seed, tensor in enumerate(layer.parameters()):
        tensor.data = precise(*tensor.shape, seed=seed)
    x = precise(4, 6, height, width).to(memory_format=torch.channels_last).requires_grad_()
    ours = layer(x)

    padded = same_padded(x, kernel, stride)
    plain = layer.norm(F.conv2d(padded, layer.conv.weight, stride=stride, groups=groups))
    plain = F.relu6(plain) if relu6 else plain
    torch.testing.assert_close(ours, plain)
    inputs, cotangent = [x, *layer.parameters()], precise(*ours.shape, seed=9)
    grads = (torch.autograd.grad((y * cotangent).sum(), inputs) for y in (ours, plain))
    for got, want in zip(*grads, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("relu6", [False, True])
@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(
    ("kernel", "stride", "groups", "outputs", "size"),
    [
        (1, 1, 1, 9, 12),
        (1, 1, 1, 9, 3),
        (1, 2, 1, 9, 6),
        (1, 1, 6, 6, 6),
        (3, 1, 6, 6, 5),
        (5, 2, 6, 6, 8),
        (3, 2, 1, 9, 8),
    ],
)
def test_a_layer_at_rest_gives_the_same_until_it_wakes(
    kernel: int, stride: int, groups: int, outputs: int, size: int, memory_format: torch.memory_format, relu6: bool
) -> None:
    layer = ConvNorm(6, outputs, kernel, stride, groups, relu6).eval()
    for seed, tensor in enumerate((*layer.parameters(), layer.norm.running_mean)):
        tensor.data = normal(*tensor.shape, seed=seed)
    layer.norm.running_var = 0.5 + normal(outputs, seed=9).abs()
    x = 3 * normal(4, 6, size, size).to(memory_format=memory_format)
    with torch.no_grad():
        learning = layer(x)
        layer.rest()
        torch.testing.assert_close(layer(x), learning)
        layer.conv.weight.mul_(2)
        torch.testing.assert_close(layer(x), learning)  # folded weights stay
        layer.wake()
        assert not torch.allclose(layer(x), learning)


def test_a_depthwise_convolution_learns_without_a_bias() -> None:
    conv, x = SameConv(4, 4, 3, groups=4, bias=False), torch.ones(1, 4, 2, 2, requires_grad=True)
    conv(x).sum().backward()
    assert conv.weight.grad is not None
    torch.testing.assert_close(conv.weight.grad, torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]).expand(4, 1, 3, 3))


@pytest.mark.parametrize("groups", [1, 6])  # dense and depthwise
@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 2), (3, 2), (7, 7), (8, 8), (8, 3)])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2), (5, 2), (5, 4)])
def test_same_padding_puts_the_odd_zero_last(kernel: int, stride: int, height: int, width: int, groups: int) -> None:
    conv, x = SameConv(6, 6, kernel, stride, groups=groups), normal(2, 6, height, width)
    with torch.no_grad():
        at_rest = conv(x)
    expected = F.conv2d(same_padded(x, kernel, stride), conv.weight, conv.bias, stride, groups=groups)
    torch.testing.assert_close(conv(x), expected)
    torch.testing.assert_close(at_rest, expected)
