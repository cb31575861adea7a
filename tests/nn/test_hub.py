"""Hub models: small random ones of each kind, saved and loaded like downloaded ones, against transformers itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from dhocl.core.errors import InputError
from dhocl.nn.backbones import IMAGENET_MEAN, IMAGENET_STD, frozen, load, side_by_side


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def normalised(pixels: Tensor) -> Tensor:
    """By the numbers of ImageNet, which hold where a model names none."""
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (IMAGENET_MEAN, IMAGENET_STD))
    return (pixels / 255 - mean) / std


SMALL = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 32,
    "patch_size": 8,
}


STAGES = {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 1, 1]}
TEXT = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 9}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {  # kind -> the class of its configuration, and a small one
    "vit": ("ViTConfig", SMALL),
    "vit_mae": ("ViTMAEConfig", SMALL),
    "deit": ("DeiTConfig", SMALL),
    "dinov2": ("Dinov2Config", SMALL),
    "dinov3_vit": ("DINOv3ViTConfig", SMALL | {"hidden_size": 16, "num_register_tokens": 3}),
    "clip": ("CLIPConfig", {"text_config": TEXT, "vision_config": SMALL, "projection_dim": 6}),
    "siglip": ("SiglipConfig", {"text_config": TEXT, "vision_config": SMALL}),
    "resnet": ("ResNetConfig", STAGES | {"embedding_size": 8, "layer_type": "basic"}),
    "convnext": ("ConvNextConfig", STAGES),
    "dinov3_convnext": ("DINOv3ConvNextConfig", STAGES),
    "swin": ("SwinConfig", {"embed_dim": 8, "depths": [1, 2, 2, 2], "num_heads": [1, 2, 2, 4], "window_size": 2}),
    "regnet": ("RegNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "groups_width": 4}),
}
NEW = ("convnext", "swin", "siglip", "dinov3_vit", "dinov3_convnext")


def save_hub_model(kind: str, folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    name, small = CONFIGS[kind]
    if not hasattr(transformers, name):
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    torch.manual_seed(1)
    model = transformers.AutoModel.from_config(getattr(transformers, name)(**small)).eval()
    for parameter in model.parameters():  # some start at 0, such as Swin's position biases
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", ["vit", "vit_mae", "deit", "dinov2", "dinov3_vit", "clip", "siglip"])
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
    elif kind == "siglip":  # no class token: a trained attention over the patches
        out = model.vision_model(x)
        tokens, expected = out.last_hidden_state, out.pooler_output
    else:
        tokens = model(x).last_hidden_state
        expected = tokens[:, 0]
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(fmap[:, :, 1, 2], tokens[:, -16 + 1 * 4 + 2], atol=1e-5, rtol=1e-4)
    width = 16 if kind == "dinov3_vit" else 12
    assert (backbone.dim, backbone.map_dim) == (width, width)
    stage, again = backbone.pooled(pixels)
    torch.testing.assert_close(again, features)
    tokens = _after_the_first_block(backbone, x)  # 4 x 4 patches, so each is a cell
    torch.testing.assert_close(stage, tokens.transpose(1, 2).flatten(1), atol=1e-5, rtol=1e-4)
    assert backbone.stages == (16 * width,)
    larger = backbone(images(2, 3, 40, 64))
    assert larger[0].shape == (2, width)
    assert larger[1].shape == (2, width, 5, 8)


def _after_the_first_block(backbone: Any, x: Tensor) -> Tensor:
    """Patch tokens (B, 16, width) that the second of two blocks gets."""
    caught: list[Tensor] = []
    blocks = next(m for m in backbone.model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 2)
    handle = blocks[1].register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    backbone.encode(x)
    handle.remove()
    return caught[0][:, -16:]


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


@pytest.mark.parametrize("kind", ["resnet", "convnext", "dinov3_convnext"])
def test_hub_stages_give_pooled_features_and_the_map_of_each_stage(kind: str, tmp_path: Path) -> None:
    model = save_hub_model(kind, tmp_path)
    backbone, pixels = load(f"hub:{tmp_path}"), images(2, 3, 64, 32)
    features, fmap = backbone(pixels)
    out = model(normalised(pixels), output_hidden_states=True)
    torch.testing.assert_close(features, out.pooler_output.flatten(1), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(fmap, out.hidden_states[3], atol=1e-5, rtol=1e-4)
    assert fmap.shape == (2, backbone.map_dim, 4, 2)
    assert (backbone.dim, backbone.map_dim) == (20, 16)
    *stages, again = backbone.pooled(pixels)
    torch.testing.assert_close(again, features)
    for stage, fmap in zip(stages, out.hidden_states[2:4], strict=True):
        expected = adaptive_avg_pool2d(fmap, 4).flatten(1)
        torch.testing.assert_close(stage, expected, atol=1e-5, rtol=1e-4)
    assert backbone.stages == (16 * out.hidden_states[2].shape[1], 16 * 16)
    for stage, stride in enumerate((4, 8, 16, 32), 1):
        backbone.use_map(stride)
        torch.testing.assert_close(backbone(pixels)[1], out.hidden_states[stage], atol=1e-5, rtol=1e-4)
        assert backbone.map_dim == out.hidden_states[stage].shape[1]


def test_swin_gives_pooled_features_and_the_map_of_each_stage(tmp_path: Path) -> None:
    model = save_hub_model("swin", tmp_path)
    backbone, pixels = load(f"hub:{tmp_path}"), images(2, 3, 64, 64)
    out = model(normalised(pixels), output_hidden_states=True)
    torch.testing.assert_close(backbone(pixels)[0], out.pooler_output, atol=1e-5, rtol=1e-4)
    assert backbone.maps == {4: 8, 8: 16, 16: 32, 32: 64}
    for stage, (stride, width) in enumerate(backbone.maps.items()):
        backbone.use_map(stride)
        fmap, side = backbone(pixels)[1], 64 // stride
        assert fmap.shape == (2, width, side, side)
        halve = model.encoder.layers[stage].downsample  # what transformers returns comes after it
        tokens = fmap.flatten(2).transpose(1, 2)
        after = tokens if halve is None else halve(tokens, (side, side))
        torch.testing.assert_close(after, out.hidden_states[stage + 1], atol=1e-5, rtol=1e-4)


def test_an_image_smaller_than_a_window_leaves_swin_as_it_is(tmp_path: Path) -> None:
    save_hub_model("swin", tmp_path)
    backbone, pixels = load(f"hub:{tmp_path}"), images(2, 3, 64, 64)
    before = backbone(pixels)
    assert backbone(images(1, 3, 16, 40))[0].shape == (1, 64)
    for got, want in zip(backbone(pixels), before, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("kind", NEW)
def test_a_hub_model_trains_is_restored_and_freezes(kind: str, tmp_path: Path) -> None:
    save_hub_model(kind, tmp_path)
    backbone, pixels = load(f"hub:{tmp_path}"), images(3, 3, 48, 48)
    start = [value.detach() for value in backbone(pixels)]
    optimizer = torch.optim.SGD(backbone.parameters(), lr=0.1)
    features, fmap = backbone(pixels)
    (features.square().mean() + fmap.square().mean()).backward()
    unused = {name for name, parameter in backbone.named_parameters() if parameter.grad is None}
    assert unused <= {"model.embeddings.mask_token"}
    optimizer.step()
    trained = [value.detach() for value in backbone(pixels)]
    assert not torch.allclose(trained[0], start[0])
    other = load(f"hub:{tmp_path}")
    other.load_state_dict(backbone.state_dict())
    for restored, still, want in zip(other(pixels), frozen(backbone)(pixels), trained, strict=True):
        assert torch.equal(restored, want)
        torch.testing.assert_close(still, want)  # without gradients, attention uses another kernel


@pytest.mark.parametrize("kind", NEW)
def test_a_hub_model_takes_a_large_batch_in_parts(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_hub_model(kind, tmp_path)
    backbone, pixels = load(f"hub:{tmp_path}"), images(7, 3, 32, 32)
    with torch.no_grad():
        whole = backbone(pixels)
        monkeypatch.setattr("dhocl.nn.backbones.parts.PART", 2 * 32 * 32)
        with side_by_side():
            parts = backbone(pixels)
    for got, want in zip(parts, whole, strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_hub_model_of_another_kind_is_named(tmp_path: Path) -> None:
    save_hub_model("regnet", tmp_path)
    with pytest.raises(InputError, match="type regnet; known are resnet, convnext"):
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
