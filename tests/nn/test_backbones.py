"""Backbones against independent models: published EfficientNet code, transformers, PyTorch's own layers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dhocl.core.errors import InputError
from dhocl.nn.backbones import (
    BACKBONES,
    Backbone,
    find_backbone,
    frozen,
    load,
    side_by_side,
    wrap,
)
from dhocl.nn.backbones.efficientnet import LITE0, LITE2, Variant, read_weights, weights_file


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def lite() -> Backbone:
    return load("efficientnet_lite0")


def published_model(variant: Variant) -> Any:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    name, file = variant.name.replace("_", "-"), str(weights_file(variant))
    return package.EfficientNet.from_pretrained(name, weights_path=file, image_size=None).eval()


@pytest.fixture(scope="module")
def published() -> Any:
    return published_model(LITE0)


@pytest.mark.parametrize("size", [64, 50])
def test_lite2_equals_the_published_model(size: int) -> None:
    backbone, model, pixels = load("efficientnet_lite2"), published_model(LITE2), images(2, 3, size, size)
    with torch.no_grad():
        *stages, features = backbone.pooled(pixels)
        x = (pixels.float() - 127) / 128
        expected = model.extract_features(x).mean((2, 3))
    torch.testing.assert_close(features, expected, atol=1e-4, rtol=0)
    assert [stage.shape[1] for stage in stages] == [16 * 48, 4 * 120, 352]


@pytest.mark.parametrize(("height", "width"), [(64, 64), (96, 96), (224, 224), (50, 71), (32, 32)])
def test_efficientnet_equals_the_published_model(lite: Backbone, published: Any, height: int, width: int) -> None:
    pixels = images(2, 3, height, width)
    x = (pixels.float() - 127) / 128
    with torch.no_grad():
        features, fmap = lite(pixels)
        expected = published.extract_features(x).mean((2, 3))
        x = published._swish(published._bn0(published._conv_stem(x)))
        for block in published._blocks[:11]:
            x = block(x)
    assert features.shape == (2, lite.dim)
    torch.testing.assert_close(features, expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(fmap, x, atol=1e-4, rtol=1e-4)
    assert fmap.shape == (2, lite.map_dim, -(-height // 16), -(-width // 16))


def test_efficientnet_pools_three_earlier_stages(lite: Backbone) -> None:
    """To 4 x 4, 2 x 2 and 1 x 1 cells."""
    pixels = images(2, 3, 64, 96)
    with torch.no_grad():
        *stages, features = lite.pooled(pixels)
        assert torch.equal(features, lite(pixels)[0])
        for stage, stride, side in zip(stages, (8, 16, 32), (4, 2, 1), strict=True):
            lite.use_map(stride)
            rows = [band.tensor_split(side, 3) for band in lite(pixels)[1].tensor_split(side, 2)]
            means = torch.stack([torch.stack([cell.mean((2, 3)) for cell in row], 2) for row in rows], 2)
            torch.testing.assert_close(stage, means.flatten(1))
    lite.use_map(16)
    assert [stage.shape[1] for stage in stages] == list(lite.stages) == [16 * 40, 4 * 112, 320]


def test_a_wrapped_network_has_its_features_alone() -> None:
    backbone = wrap(nn.Conv2d(3, 10, kernel_size=8, stride=8))
    (features,) = backbone.pooled(images(2, 3, 32, 32))
    assert torch.equal(features, backbone(images(2, 3, 32, 32))[0])
    assert backbone.stages == ()


@pytest.mark.parametrize(("stride", "channels"), [(8, 40), (16, 112), (32, 320)])
def test_any_map_of_efficientnet_can_be_chosen(published: Any, stride: int, channels: int) -> None:
    backbone, pixels = load("efficientnet_lite0"), images(2, 3, 64, 96)
    plain, _ = backbone(pixels)
    backbone.use_map(stride)
    assert backbone.map_dim == channels
    with torch.no_grad():
        features, fmap = backbone(pixels)
        expected = published._swish(published._bn0(published._conv_stem((pixels.float() - 127) / 128)))
        for block in published._blocks[: {8: 5, 16: 11, 32: 16}[stride]]:
            expected = block(expected)
    torch.testing.assert_close(features, plain)
    assert fmap.shape == (2, channels, 64 // stride, 96 // stride)
    torch.testing.assert_close(fmap, expected, atol=1e-4, rtol=1e-4)
    backbone.use_map(4)
    assert backbone.map_stride == 8, "the nearest there is"


@pytest.mark.parametrize("name", ["tiny", "efficientnet_lite0"])
def test_maps_are_channels_last_however_the_pixels_lie(name: str) -> None:
    backbone, pixels = load(name), images(4, 3, 64, 48)
    turned = pixels.to(memory_format=torch.channels_last)
    for x in (pixels, turned):
        assert backbone(x)[1].is_contiguous(memory_format=torch.channels_last)
    assert all(map(torch.equal, backbone(pixels), backbone(turned)))


@pytest.mark.parametrize("name", ["tiny", "efficientnet_lite0"])
def test_at_rest_it_says_the_same_and_learns_on_afterwards(name: str) -> None:
    backbone, pixels = load(name), images(4, 3, 64, 64)
    with torch.no_grad():
        before = backbone(pixels)
        with backbone.resting():
            at_rest = backbone(pixels)
    for a, b in zip(before, at_rest, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.mul_(1.1)
        assert not torch.equal(backbone(pixels)[0], before[0])


@pytest.mark.parametrize("name", ["tiny", "efficientnet_lite0"])
def test_in_parts_side_by_side_it_says_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhocl.nn.backbones.parts.PART", 8 * 64 * 64)
    backbone, pixels = load(name), images(20, 3, 64, 64)
    sizes = []
    encode = backbone.encode

    def seen(x: Tensor) -> tuple[Tensor, Tensor]:
        sizes.append((len(x), torch.get_num_threads(), torch.is_grad_enabled()))
        return encode(x)

    monkeypatch.setattr(backbone, "encode", seen)
    with torch.no_grad():
        whole = backbone(pixels)
        with side_by_side():
            parts = backbone(pixels)
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert sorted(sizes[1:]) == [(4, 1, False), (8, 1, False), (8, 1, False)]
    with side_by_side():
        backbone(pixels)  # it could learn: not in parts
    assert [size for size, *_ in sizes[4:]] == [20]


def test_side_by_side_leaves_threads_as_they_were_and_concerns_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhocl.nn.backbones.parts.PART", 32 * 32)
    backbone, pixels, before = load("tiny"), images(3, 3, 32, 32), torch.get_num_threads()
    sizes = []
    encode = backbone.encode
    monkeypatch.setattr(backbone, "encode", lambda x: (sizes.append(len(x)), encode(x))[1])
    torch.set_num_threads(3)
    try:
        with torch.no_grad(), side_by_side(), ThreadPoolExecutor(1) as other:
            backbone(pixels)
            assert sizes == [1, 1, 1]
            other.submit(torch.no_grad()(backbone.forward), pixels).result()
            assert sizes == [1, 1, 1, 3]
        with ThreadPoolExecutor(1) as later:
            assert torch.get_num_threads() == later.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)


def test_altered_or_missing_weights_are_refused(tmp_path: Path) -> None:
    altered = tmp_path / "weights.pth"
    content = bytearray(weights_file(LITE0).read_bytes())
    content[-1] ^= 1
    altered.write_bytes(content)
    with pytest.raises(InputError, match=r"weights\.pth.*sha256 differs"):
        read_weights(altered, LITE0)
    with pytest.raises(InputError, match="No such file"):
        read_weights(tmp_path / "nothing.pth", LITE0)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_keeps_its_promises(name: str) -> None:
    before = torch.random.get_rng_state()
    backbone = load(name)
    assert torch.equal(before, torch.random.get_rng_state())
    assert not backbone.training
    assert "\n" not in BACKBONES[name].summary
    pixels = images(3, 3, 32, 48)
    features, fmap = backbone(pixels)
    assert features.shape == (3, backbone.dim)
    assert fmap.shape == (3, backbone.map_dim, 2, 3)
    assert features.std(0).mean() > 0, "different images, same features"
    for same, other in zip(load(name)(pixels.float()), (features, fmap), strict=True):
        torch.testing.assert_close(same, other)
    assert not {"mean", "std"} & backbone.state_dict().keys()
    learned = torch.autograd.grad(features.sum() + fmap.sum(), list(backbone.parameters()))
    assert all(g.isfinite().all() for g in learned)


def test_training_never_touches_batch_statistics() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.Dropout(0.5))
    backbone = wrap(net)
    parent = nn.ModuleList([backbone]).train()
    assert parent[0].training
    assert net[2].training
    assert not net[1].training
    assert net[1].weight.requires_grad
    backbone(images(8, 3, 16, 16))
    assert net[1].num_batches_tracked == 0
    backbone.batch_statistics = True
    backbone.train()(images(8, 3, 16, 16))
    backbone.eval()(images(8, 3, 16, 16))
    assert net[1].num_batches_tracked == 1, "unless they are asked for"


@pytest.mark.parametrize("name", BACKBONES)
def test_frozen_copy_equals_the_original_and_stays(name: str) -> None:
    backbone, pixels = load(name), images(4, 3, 64, 64)
    _drift(backbone, pixels)  # so that no statistic or gradient is at its start
    twin = frozen(backbone)
    before = twin(pixels)
    for got, want in zip(before, backbone.eval()(pixels), strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    assert not any(p.requires_grad or p.grad is not None for p in twin.parameters())
    _drift(backbone, pixels)
    assert not twin.train().training
    assert not torch.equal(backbone.eval()(pixels)[0], before[0])
    for got, want in zip(twin(pixels), before, strict=True):
        assert torch.equal(got, want)


def test_frozen_keeps_foreign_layers() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.Dropout(0.5))
    backbone, pixels = wrap(net), images(2, 3, 16, 16)
    twin = frozen(backbone)
    assert torch.equal(twin.train()(pixels)[1], backbone(pixels)[1])


def _drift(backbone: Backbone, pixels: Tensor) -> None:
    optimizer = torch.optim.SGD(backbone.train().parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        features, fmap = backbone(pixels)
        (features.square().mean() + fmap.square().mean()).backward()
        optimizer.step()


def test_wrap_normalises_and_averages() -> None:
    backbone = wrap(nn.Identity(), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    pixels = images(2, 3, 8, 8)
    features, fmap = backbone(pixels)
    mean, std = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1), torch.tensor([0.5, 0.6, 0.7]).view(3, 1, 1)
    torch.testing.assert_close(fmap, (pixels / 255 - mean) / std)
    torch.testing.assert_close(features, fmap.mean((2, 3)))
    assert (backbone.dim, backbone.map_dim) == (3, 3)


def test_wrap_refuses_what_is_no_map() -> None:
    with pytest.raises(InputError, match=r"\(B, C, h, w\), got \(1, 12288\)"):
        wrap(nn.Flatten())


def test_pixels_of_a_wrong_shape_are_named() -> None:
    with pytest.raises(ValueError, match=r"\(2, 32, 32, 3\)"):
        load("tiny")(images(2, 32, 32, 3))


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(
        InputError, match="no backbone 'resnet18': choose one of efficientnet_lite0, efficientnet_lite2, tiny, hub:NAME"
    ):
        load("resnet18")


# -- a network of one's own -------------------------------------------------------------------------------------------


def plain() -> nn.Module:
    """A network of somebody else's."""
    return nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.ReLU())


def flat() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def nothing() -> str:
    return "a network"


@pytest.mark.parametrize("given", [plain, f"{__name__}:plain"])
def test_a_function_is_a_backbone_with_weights_from_a_fixed_seed(given: Any) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, pixels = load(given), load(given), images(2, 3, 32, 32)
    assert torch.equal(torch.get_rng_state(), before)
    assert (first.dim, first(pixels)[1].shape) == (6, (2, 6, 8, 8))
    assert torch.equal(first(pixels)[0], second(pixels)[0])
    assert find_backbone(given).summary == "A network of somebody else's."


def test_a_network_is_a_backbone_itself() -> None:
    network = plain()
    assert load(network).module is network
    wrapped = wrap(network, mean=(0.5, 0.5, 0.5))
    assert load(wrapped) is wrapped


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (flat, r"must return a feature map \(B, C, h, w\), got \(1, 6\): leave out its pooling"),
        (nothing, "returned str, not an nn.Module"),
        (f"{__name__}:NUMBER", "is not a backbone: expected a function that returns a network, not 3"),
    ],
)
def test_what_is_no_backbone_is_one_line(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        load(given)
    assert "\n" not in str(error.value)


NUMBER = 3


def test_a_network_for_large_images_is_told_their_size() -> None:
    network = nn.Conv2d(3, 7, kernel_size=100)
    with pytest.raises(InputError, match=r"does not take an image of 64 x 64 pixels .*another `image_size`"):
        load(network)
    assert wrap(network, image_size=128).dim == 7


def test_a_network_that_rests_for_good_is_not_woken() -> None:
    backbone = load("tiny")
    backbone.rest()
    with backbone.resting():
        pass
    pixels = images(2, 3, 32, 32)
    before = backbone(pixels)[0]
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.zero_()
    assert torch.equal(backbone(pixels)[0], before), "changes of the weights have no effect at rest"
