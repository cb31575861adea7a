"""Backbones against independent models: published EfficientNet code, transformers, PyTorch's own layers."""

from __future__ import annotations

import copy
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dhocl.backbones import BACKBONES, IMAGENET_MEAN, IMAGENET_STD, Backbone, frozen, load, side_by_side, wrap
from dhocl.backbones.efficientnet import read_weights, weights_file
from dhocl.backbones.layers import ConvNorm, SameConv, ZeroBorder, kernel_gradient
from dhocl.errors import InputError
from tensors import normal, precise


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def lite() -> Backbone:
    return load("efficientnet_lite0")


@pytest.fixture(scope="module")
def published() -> Any:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    model = package.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=str(weights_file()), image_size=None
    )
    return model.eval()


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
        (3, 1, 6, 2, 2),  # depthwise on maps smaller than the kernel
        (3, 2, 6, 2, 2),
        (5, 1, 6, 1, 1),
        (5, 1, 6, 2, 2),
        (5, 1, 6, 3, 9),
        (5, 1, 6, 7, 4),
        (5, 2, 6, 3, 3),
        (5, 2, 6, 4, 4),
        (5, 2, 6, 3, 4),
        (5, 4, 6, 4, 4),
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
    for seed, tensor in enumerate((*layer.parameters(), layer.norm.running_mean)):
        tensor.data = precise(*tensor.shape, seed=seed)
    x = precise(4, 6, height, width).to(memory_format=torch.channels_last).requires_grad_()
    ours = layer(x)

    down, across = (max((-(-size // stride) - 1) * stride + kernel - size, 0) for size in (height, width))
    padded = nn.functional.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))
    plain = layer.norm(nn.functional.conv2d(padded, layer.conv.weight, stride=stride, groups=groups))
    plain = nn.functional.relu6(plain) if relu6 else plain
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
def test_a_layer_at_rest_says_the_same_until_it_wakes(
    kernel: int, stride: int, groups: int, outputs: int, size: int, memory_format: torch.memory_format, relu6: bool
) -> None:
    layer = ConvNorm(6, outputs, kernel, stride, groups, relu6).eval()
    for seed, tensor in enumerate((*layer.parameters(), layer.norm.running_mean)):
        tensor.data = normal(*tensor.shape, seed=seed)
    x = 3 * normal(4, 6, size, size).to(memory_format=memory_format)
    with torch.no_grad():
        learning = layer(x)
        layer.rest()
        torch.testing.assert_close(layer(x), learning)
        layer.conv.weight.mul_(2)
        torch.testing.assert_close(layer(x), learning)  # it was told that weights stay
        layer.wake()
        assert not torch.allclose(layer(x), learning)


def test_a_depthwise_convolution_learns_without_a_bias() -> None:
    conv, x = SameConv(4, 4, 3, groups=4, bias=False), torch.ones(1, 4, 2, 2, requires_grad=True)
    conv(x).sum().backward()
    assert conv.weight.grad is not None
    torch.testing.assert_close(conv.weight.grad, torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]).expand(4, 1, 3, 3))


def test_a_kernel_has_no_gradient_where_it_never_meets_the_image() -> None:
    gradient = kernel_gradient(precise(3, 4, 2, 2), precise(3, 4, 2, 2, seed=1), kernel=5, stride=1, padding=2)
    assert gradient.shape == (4, 1, 5, 5)
    assert gradient[:, :, 1:4, 1:4].all()
    gradient[:, :, 1:4, 1:4] = 0
    assert not gradient.any()


@pytest.mark.parametrize("sides", [(0, 0, 0, 0), (0, 1, 0, 1), (1, 2, 1, 2), (3, 0, 1, 2)])
def test_a_zero_border_is_what_pad_makes(sides: tuple[int, int, int, int]) -> None:
    x = torch.randn(2, 3, 5, 4, dtype=torch.double, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.equal(ZeroBorder.apply(x, *sides), nn.functional.pad(x, sides))
    assert torch.autograd.gradcheck(lambda x: ZeroBorder.apply(x, *sides), x)


@pytest.mark.parametrize("size", [1, 2, 7, 8])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2), (5, 2), (5, 4)])
def test_same_padding_puts_the_odd_zero_last(size: int, kernel: int, stride: int) -> None:
    conv = SameConv(1, 1, kernel, stride, bias=False)
    x = torch.randn(1, 1, size, size)
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    first, last = missing // 2, missing - missing // 2
    padded = nn.functional.pad(x, (first, last, first, last))
    torch.testing.assert_close(conv(x), nn.functional.conv2d(padded, conv.weight, stride=stride))


@pytest.mark.parametrize("size", [2, 7, 8])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (4, 2), (5, 2), (5, 4)])
def test_without_a_backward_a_depthwise_convolution_gives_the_same_numbers(size: int, kernel: int, stride: int) -> None:
    conv = SameConv(16, 16, kernel, stride, groups=16)
    conv.relu6 = size == 8
    x = torch.randn(4, 16, size, size).to(memory_format=torch.channels_last)
    with torch.no_grad():
        at_rest = conv(x)
    assert torch.equal(at_rest, conv(x))


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
    monkeypatch.setattr("dhocl.backbones.parts.PART", 8 * 64 * 64)
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
    monkeypatch.setattr("dhocl.backbones.parts.PART", 32 * 32)
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
    content = bytearray(weights_file().read_bytes())
    content[-1] ^= 1
    altered.write_bytes(content)
    with pytest.raises(InputError, match=r"weights\.pth.*sha256 differs"):
        read_weights(altered)
    with pytest.raises(InputError, match="No such file"):
        read_weights(tmp_path / "nothing.pth")


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_keeps_its_promises(name: str) -> None:
    before = torch.random.get_rng_state()
    backbone = load(name)
    assert torch.equal(before, torch.random.get_rng_state())
    assert not backbone.training
    assert "\n" not in BACKBONES[name].about
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
    with pytest.raises(InputError, match="efficientnet_lite0, tiny or hub:<name>"):
        load("resnet18")


# ---- hub models: tiny random ones of each kind, saved and loaded like downloaded ones ----

SMALL = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 32,
    "patch_size": 8,
}


def save_hub_model(kind: str, folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    if kind == "resnet":
        config = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], layer_type="basic"
        )
    elif kind == "clip":
        text = {
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 8,
            "vocab_size": 9,
        }
        config = transformers.CLIPConfig(text_config=text, vision_config=SMALL, projection_dim=6)
    else:
        prefix = {"vit": "ViT", "vit_mae": "ViTMAE", "deit": "DeiT", "dinov2": "Dinov2", "swin": "Swin"}[kind]
        config = getattr(transformers, f"{prefix}Config")(**(SMALL if kind != "swin" else {"depths": [1]}))
    model = transformers.AutoModel.from_config(config).eval()
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["vit", "vit_mae", "deit", "dinov2", "clip"])
def test_hub_transformer_gives_class_token_and_patches(kind: str, tmp_path: Path) -> None:
    model = save_hub_model(kind, tmp_path)
    preprocessor = {
        "image_processor_type": "ViTImageProcessor",
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    backbone, pixels = load(f"hub:{tmp_path}"), images(2, 3, 32, 32)
    features, fmap = backbone(pixels)
    x = (pixels / 255 - 0.5) / 0.25
    if kind == "clip":
        out = model.vision_model(x)
        tokens, expected = model.vision_model.post_layernorm(out.last_hidden_state), out.pooler_output
    elif kind == "vit_mae":
        tokens = _without_masking(model, x)
        expected = tokens[:, 0]
    else:
        tokens = model(x).last_hidden_state
        expected = tokens[:, 0]
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(fmap[:, :, 1, 2], tokens[:, -16 + 1 * 4 + 2], atol=1e-5, rtol=1e-4)
    assert (backbone.dim, backbone.map_dim) == (12, 12)
    larger = backbone(images(2, 3, 40, 64))
    assert larger[0].shape == (2, 12)
    assert larger[1].shape == (2, 12, 5, 8)


def _without_masking(model: Any, x: Tensor) -> Tensor:
    """MAE's encoder by hand: embed every patch, run the layers, normalise."""
    patches = model.embeddings.patch_embeddings.projection(x).flatten(2).transpose(1, 2)
    places = model.embeddings.position_embeddings
    first = (model.embeddings.cls_token + places[:, :1]).expand(len(x), -1, -1)
    tokens = torch.cat([first, patches + places[:, 1:]], 1)
    layers = model.layers if hasattr(model, "layers") else model.encoder.layer
    for layer in layers:
        out = layer(tokens)
        tokens = out[0] if isinstance(out, tuple) else out
    return model.layernorm(tokens)


def test_hub_resnet_gives_pooled_features_and_stage_3(tmp_path: Path) -> None:
    model = save_hub_model("resnet", tmp_path)
    backbone, pixels = load(f"hub:{tmp_path}"), images(2, 3, 64, 32)
    features, fmap = backbone(pixels)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))  # it names none
    out = model((pixels / 255 - mean) / std, output_hidden_states=True)
    torch.testing.assert_close(features, out.pooler_output[:, :, 0, 0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(fmap, out.hidden_states[3], atol=1e-5, rtol=1e-4)
    assert fmap.shape == (2, backbone.map_dim, 4, 2)
    assert (backbone.dim, backbone.map_dim) == (20, 16)
    for got, want in zip(frozen(backbone)(pixels), (features, fmap), strict=True):
        torch.testing.assert_close(got, want)
    for stage, stride in enumerate((4, 8, 16, 32), 1):
        backbone.use_map(stride)
        torch.testing.assert_close(backbone(pixels)[1], out.hidden_states[stage], atol=1e-5, rtol=1e-4)
        assert backbone.map_dim == out.hidden_states[stage].shape[1]


def test_hub_model_of_another_kind_is_named(tmp_path: Path) -> None:
    save_hub_model("swin", tmp_path)
    with pytest.raises(InputError, match="type swin; known are resnet, vit"):
        load(f"hub:{tmp_path}")


def test_hub_model_that_can_not_be_loaded_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(InputError, match="can not be loaded") as empty_folder:
        load(f"hub:{tmp_path}")
    assert "\n" not in str(empty_folder.value)
    save_hub_model("vit", tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])  # as after a download that broke off
    with pytest.raises(InputError, match="can not be loaded"):
        load(f"hub:{tmp_path}")


def test_missing_transformers_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'dhocl\[hub\]'"):
        load("hub:facebook/dino-vits16")
