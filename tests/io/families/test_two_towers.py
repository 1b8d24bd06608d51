"""CLIP and SigLIP against transformers: features, scores, gradients, and directories both ways, of drawn sizes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import qkv
from qkv.io.families import FAMILIES, family_of
from qkv.io.hub.names import Names
from qkv.nn.models.dual_encoder import DualEncoder

DRAWN = 14
CASES = [(family, seed) for family in ("clip", "siglip", "siglip2") for seed in range(DRAWN)]
ACTIVATIONS = ["quick_gelu", "gelu", "gelu_new", "relu", "silu", "gelu_pytorch_tanh"]


def tower(draw: random.Random) -> dict[str, Any]:
    heads = draw.choice((1, 2, 3, 5))
    return {
        "hidden_size": heads * draw.choice((2, 4, 6)),
        "num_attention_heads": heads,
        "intermediate_size": draw.choice((1, 7, 20)),
        "num_hidden_layers": draw.choice((1, 2, 3)),
        "layer_norm_eps": draw.choice((1e-6, 1e-3, 1e-1)),
        "attention_dropout": draw.choice((0.0, 0.3)),
    }


def config_of(family: str, seed: int) -> dict[str, Any]:
    """A configuration of unusual sizes: patches that don't fill the picture, one channel, a single head, short texts …"""
    draw = random.Random(seed)
    known = ACTIVATIONS if family == "clip" else ACTIVATIONS[1:]
    patch = draw.choice((1, 3, 4))
    text = {**tower(draw), "vocab_size": draw.choice((11, 40)), "max_position_embeddings": draw.choice((3, 8, 13))}
    text |= {
        "hidden_act": draw.choice(known),
        "eos_token_id": draw.choice((2, 5, 10)),
        "pad_token_id": 0,
        "bos_token_id": 1,
    }
    image = {**tower(draw), "patch_size": patch, "image_size": patch * draw.choice((1, 2, 3)) + draw.randrange(patch)}
    image |= {"hidden_act": draw.choice(known), "num_channels": draw.choice((1, 3, 4))}
    if family == "siglip2":
        image["num_patches"] = (image.pop("image_size") // patch) ** 2
    inside = {"text_config": text, "vision_config": image}
    if family != "clip":
        text["projection_size"] = image["hidden_size"]
        return inside
    return {
        **inside,
        "projection_dim": draw.choice((1, 6, 9)),
        "logit_scale_init_value": draw.choice((0.0, 2.6592, 4.0)),
    }


def theirs_of(family: str, config: dict[str, Any], seed: int = 0) -> Any:
    import transformers

    prefix = {"clip": "CLIP", "siglip": "Siglip", "siglip2": "Siglip2"}[family]
    cls, make = (getattr(transformers, f"{prefix}{kind}") for kind in ("Model", "Config"))
    torch.manual_seed(seed)
    model = cls(make(**config)).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    return model


def inputs_of(model: Any, family: str) -> tuple[Tensor, Tensor]:
    """Texts with their ends at different places, one without an end, and pictures."""
    text, image = model.config.text_config, model.config.vision_config
    length, end = text.max_position_embeddings, text.eos_token_id
    ids = torch.randint(3, text.vocab_size - 1, (4, length))
    if family == "clip":
        last = text.vocab_size - 1 if end == 2 else end
        ids[ids == end] = 3
        for row, at in enumerate((length - 1, length // 2, 0)):
            ids[row, at:] = last
    sides = (3 * image.patch_size, 2 * image.patch_size) if family == "siglip2" else (image.image_size,) * 2
    return ids, torch.randn(3, image.num_channels, *sides, dtype=torch.float64)


def pictures_of(model: Any, pixels: Tensor) -> dict[str, Tensor]:
    """Pictures as the model of transformers takes them; SigLIP 2's are patches, filled up on the right."""
    vision = getattr(model.config, "vision_config", model.config)
    if "siglip2" not in vision.model_type:
        return {"pixel_values": pixels}
    p, grid = vision.patch_size, [side // vision.patch_size for side in pixels.shape[2:]]
    cut = (
        pixels.unflatten(3, (grid[1], p)).unflatten(2, (grid[0], p)).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    )
    patches = torch.nn.functional.pad(cut.flatten(2), (0, 0, 0, 2), value=7.0)
    mask = torch.ones(patches.shape[:2], dtype=torch.int32)
    mask[:, -2:] = 0
    return {"pixel_values": patches, "pixel_attention_mask": mask, "spatial_shapes": torch.tensor([grid] * len(pixels))}


@pytest.mark.slow
@pytest.mark.parametrize(("family", "seed"), CASES)
def test_features_scores_gradients_and_directories_are_those_of_transformers(
    family: str, seed: int, tmp_path: Path
) -> None:
    theirs = theirs_of(family, config_of(family, seed), seed)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = qkv.load(tmp_path / "theirs", dtype="float64").model
    ids, pixels = inputs_of(theirs, family)
    expected, found = theirs(input_ids=ids, **pictures_of(theirs, pixels)), ours(ids, pixels)
    # transformers resizes the positions of SigLIP 2 in fp32
    close = {"rtol": 1e-9, "atol": 1e-9} if family != "siglip2" else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(ours.encode_text(ids), theirs.get_text_features(ids).pooler_output, **close)
    torch.testing.assert_close(
        ours.encode_image(pixels), theirs.get_image_features(**pictures_of(theirs, pixels)).pooler_output, **close
    )
    torch.testing.assert_close(found.logits_per_image, expected.logits_per_image, **close)
    weights = torch.randn_like(found.logits_per_image)
    (found.logits_per_image * weights).sum().backward()
    (expected.logits_per_image * weights).sum().backward()
    names = Names.of(FAMILIES[family].table(ours.spec, False), ours)
    grads = names.to_ours(
        {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in theirs.named_parameters()}
    )
    for name, parameter in ours.named_parameters():
        mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(
            mine, grads[name], **(close if family == "siglip2" else {"rtol": 1e-7, "atol": 1e-9})
        )
    ours.save(tmp_path / "ours", "hub")
    one, other = (load_file(tmp_path / side / "model.safetensors") for side in ("theirs", "ours"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    one, other = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("theirs", "ours"))
    assert one == other
    again = type(theirs).from_pretrained(tmp_path / "ours", dtype=torch.float64)
    given = again(input_ids=ids, **pictures_of(again, pixels))
    torch.testing.assert_close(given.logits_per_image, expected.logits_per_image)


@pytest.mark.parametrize(("family", "seed"), CASES)
def test_a_configuration_is_a_spec_and_back(family: str, seed: int) -> None:
    spec = FAMILIES[family].spec(config_of(family, seed))
    assert isinstance(spec, DualEncoder) and family_of(spec) is FAMILIES[family]
    written = FAMILIES[family].config(spec)
    again = FAMILIES[family].spec(written)
    assert again.replace({"temperature": spec.temperature}) == spec and written["model_type"] == family
    assert spec.n_parameters == sum(p.numel() for p in qkv.build(spec, device="meta").parameters())


ALONE = [
    ("clip", "CLIPTextModel"),
    ("clip", "CLIPTextModelWithProjection"),
    ("clip", "CLIPVisionModel"),
    ("clip", "CLIPVisionModelWithProjection"),
    ("siglip", "SiglipTextModel"),
    ("siglip", "SiglipVisionModel"),
    ("siglip2", "Siglip2TextModel"),
    ("siglip2", "Siglip2VisionModel"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "cls"), ALONE)
@pytest.mark.parametrize("seed", [0, 3, 5])
def test_a_tower_alone(family: str, cls: str, seed: int, tmp_path: Path) -> None:
    """States that transformers pools before its last norm are compared where it gives them after the norm."""
    import transformers

    both = theirs_of(family, config_of(family, seed), seed)
    part = both.config.text_config if "Text" in cls else both.config.vision_config
    if family == "clip":
        part.projection_dim = both.config.projection_dim
    torch.manual_seed(seed)
    theirs = getattr(transformers, cls)(part).eval().double()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = qkv.load(tmp_path / "theirs", dtype="float64").model
    ids, pixels = inputs_of(both, family)
    given = ids[:1] if "Text" in cls else pixels
    with torch.no_grad():
        out = theirs(given) if "Text" in cls else theirs(**pictures_of(theirs, given))
        found = ours(given)
    embeds = next((out[key] for key in ("text_embeds", "image_embeds") if key in out), None)
    if cls == "CLIPTextModel":
        torch.testing.assert_close(found, out.last_hidden_state, rtol=1e-9, atol=1e-9)
    elif cls == "CLIPVisionModel":
        torch.testing.assert_close(found[:, 0], out.pooler_output, rtol=1e-9, atol=1e-9)
    else:
        near = 1e-5 if family == "siglip2" else 1e-9
        torch.testing.assert_close(found, out.pooler_output if embeds is None else embeds, rtol=near, atol=near)
    ours.save(tmp_path / "ours", "hub")
    one, other = (load_file(tmp_path / side / "model.safetensors") for side in ("theirs", "ours"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert (tmp_path / "theirs" / "config.json").read_text() == (tmp_path / "ours" / "config.json").read_text()


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("clip", {"projection_dim": "a"}, "projection_dim must be"),
        ("clip", {"text_config": {"vocab_size": 9}}, "end=49407 is no token of the vocabulary of texts, which has 9"),
        ("clip", {"text_config": {"eos_token_id": [1, 2]}}, "eos_token_id .* is not built here"),
        ("clip", {"text_config": {"model_type": "bert"}}, "text_config is of the model type 'bert'"),
        ("clip", {"vision_config": {"image_size": [8, 12]}}, "vision_config: image_size=.*only a square is"),
        ("clip", {"vision_config": {"new": 1}}, "vision_config: the key 'new'"),
        ("siglip", {"vision_config": {"vision_use_head": False}}, "image has no head"),
        (
            "siglip",
            {"text_config": {"projection_size": 5}},
            "vectors of image and text are 768 and 5 wide.*vision_config",
        ),
    ],
)
def test_what_a_configuration_says_wrongly_is_one_sentence(family: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FAMILIES[family].spec(changes)


def test_old_files_of_clip_give_the_towers_under_another_key() -> None:
    """`text_config_dict` counts, whatever stands under `text_config`, as for transformers."""
    from transformers import CLIPConfig

    said = {
        "text_config": {"hidden_size": 24, "vocab_size": 99},
        "text_config_dict": {"hidden_size": 16, "eos_token_id": 2},
    }
    spec, theirs = FAMILIES["clip"].spec(said), CLIPConfig(**said).text_config
    assert spec.text.d_model == theirs.hidden_size == 16 and spec.text.vocab_size == theirs.vocab_size == 49408
    assert spec.end == "largest" and theirs.eos_token_id == 2


def test_what_clips_files_can_not_say_is_refused() -> None:
    spec = qkv.preset(
        "clip", image=(8, 8), patch=(4, 4), vocab_size=9, d_model=4, n_heads=1, text_d_model=4, text_heads=1
    )
    with pytest.raises(ValueError, match="this model has no end; give it the token that does"):
        family_of(spec)
    with pytest.raises(ValueError, match="eos_token_id=2 stands for the largest token"):
        family_of(spec.replace(end=2))
    assert family_of(spec.replace(end=3)).config(spec.replace(end=3))["text_config"]["eos_token_id"] == 3
    wide = spec.replace({"end": 3, "image.encoder.embedding.image": (8, 12)})
    with pytest.raises(ValueError, match="image_size must be one number in this format, and the model has 8 × 12"):
        family_of(wide)
