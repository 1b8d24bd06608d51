"""Families that read images against the Hub's own, on tiny random models: numbers, gradients, other sizes, directories."""

from __future__ import annotations

import copy
import functools
import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))

from hub_cases import transformers
from hub_models import Pair
from test_parity import error, names_of, their_gradients

from qkv.core.layout import Layout
from qkv.io.directories.build import build
from qkv.io.families import FAMILIES, deit, family_of, preset, vit, vit_mae, yolos
from qkv.nn.layers.patches import masked_layout
from qkv.runs.inference.run import Run, load

Outputs = dict[str, Tensor]

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 12,
    "patch_size": 4,
}
DECODER = {
    "decoder_hidden_size": 24,
    "decoder_num_hidden_layers": 2,
    "decoder_num_attention_heads": 3,
    "decoder_intermediate_size": 20,
}
YOLOS = {**SIZES, "image_size": [12, 20], "num_detection_tokens": 5}


@dataclass(frozen=True)
class Case:
    """A class of the Hub, and what its configuration is made of. `auto` is the class that finds it."""

    cls: str
    config: dict[str, Any]
    auto: str = "AutoModel"


CLASSIFIES, PAINTS, DETECTS = (
    "AutoModelForImageClassification",
    "AutoModelForPreTraining",
    "AutoModelForObjectDetection",
)
CASES = {
    "vit": Case("ViTForImageClassification", {**SIZES, "num_labels": 5}, CLASSIFIES),
    "vit-two-labels": Case("ViTForImageClassification", {**SIZES, "hidden_act": "gelu_new"}, CLASSIFIES),
    "vit-named-labels": Case(
        "ViTForImageClassification",
        {**SIZES, "id2label": {0: "cat", 1: "dog", 2: "bee"}, "label2id": {"cat": 0, "dog": 1, "bee": 2}},
        CLASSIFIES,
    ),
    "vit-oblong": Case(
        "ViTForImageClassification",
        {**SIZES, "image_size": [12, 20], "patch_size": [3, 5], "num_channels": 2, "qkv_bias": False, "num_labels": 3},
        CLASSIFIES,
    ),
    "vit-bare": Case("ViTModel", SIZES),
    "deit": Case("DeiTForImageClassification", {**SIZES, "num_labels": 5}, CLASSIFIES),
    "deit-teacher": Case("DeiTForImageClassificationWithTeacher", {**SIZES, "num_labels": 5}, CLASSIFIES),
    "deit-bare": Case("DeiTModel", SIZES),
    "vit-mae": Case("ViTMAEForPreTraining", {**SIZES, **DECODER}, PAINTS),
    "vit-mae-normalized": Case(
        "ViTMAEForPreTraining", {**SIZES, **DECODER, "norm_pix_loss": True, "mask_ratio": 0.5}, PAINTS
    ),
    "vit-mae-bare": Case("ViTMAEModel", SIZES),
    "yolos": Case("YolosForObjectDetection", {**YOLOS, "num_labels": 6}, DETECTS),
    "yolos-input-alone": Case(
        "YolosForObjectDetection", {**YOLOS, "use_mid_position_embeddings": False, "num_labels": 6}, DETECTS
    ),
    "yolos-bare": Case("YolosModel", YOLOS),
}
every = pytest.mark.parametrize("name", CASES)


@functools.cache
def pair(name: str) -> Pair:
    """Both models of a case, made once for all tests."""
    case = CASES[name]
    torch.manual_seed(sum(map(ord, name)))
    cls = getattr(transformers, case.cls)
    theirs = cls(cls.config_class(**case.config, attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # fixed positions too: they are what the file says
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.ndim > 1 else 0.3))
    place = tempfile.TemporaryDirectory(prefix="qkv-vision-")
    theirs.save_pretrained(place.name)
    return Pair(case, theirs, load(place.name, device="cpu"), place)


def pixels_for(both: Pair, size: tuple[int, int] | None = None) -> Tensor:
    embedding = both.ours.spec.encoder.embedding
    generator = torch.Generator().manual_seed(3)
    return torch.randn(2, embedding.channels, *(size or embedding.image), generator=generator)


def noise_for(both: Pair, pixels: Tensor) -> Tensor:
    """One number a patch, which says what a masked autoencoder hides."""
    grid = both.ours.spec.encoder.embedding.grid_of(pixels.shape[2:])
    return torch.rand(len(pixels), grid.patches, generator=torch.Generator().manual_seed(5))


def theirs(both: Pair, pixels: Tensor, model: Any = None, **options: Any) -> Any:
    """What their model gives, with a mask in the place that ours has, if there is one."""
    model = model or both.theirs
    if "MAE" in both.case.cls:
        options["noise"] = noise_for(both, pixels)
    out = model(pixels.to(next(model.parameters()).dtype), **options)
    if both.case.cls == "ViTMAEModel":  # its patches stand in the order of their noise
        places = 1 + options["noise"].argsort(1)[:, : out.last_hidden_state.shape[1] - 1].argsort(1)
        places = torch.cat([torch.zeros(len(places), 1, dtype=torch.int64), places], 1)[..., None]
        out.last_hidden_state = out.last_hidden_state.gather(1, places.expand_as(out.last_hidden_state))
    return out


def layout_for(both: Pair, pixels: Tensor) -> Layout | None:
    if "MAE" not in both.case.cls:
        return None
    grid = both.ours.spec.encoder.embedding.grid_of(pixels.shape[2:])
    return masked_layout(grid, noise_for(both, pixels), both.theirs.config.mask_ratio)


def their_outputs(both: Pair, pixels: Tensor, model: Any = None, **options: Any) -> Outputs:
    out = theirs(both, pixels, model, **options)
    found = (out.get(key) for key in ("logits", "pred_boxes", "pooler_output"))
    heads = dict(zip(("head", "boxes", "pooled"), found, strict=True))
    heads["states"] = out.last_hidden_state if "head" not in heads or heads["head"] is None else None
    return {key: tensor for key, tensor in heads.items() if tensor is not None}


def our_outputs(both: Pair, pixels: Tensor, model: Any = None) -> Outputs:
    model = model or both.ours
    layout = layout_for(both, pixels)
    out = model(pixels, layout=layout)
    found = {"head": out.logits, "boxes": out.boxes} if hasattr(out, "boxes") else {"head": out}
    if model.head is None:
        found = {"states": found["head"]}
    if model.classification_head is not None:
        found["pooled"] = model.pooled(pixels)
    return found


def same(found: Outputs, expected: Outputs, allowed: float = 1e-5) -> None:
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert error(found[key], tensor) <= allowed, key


@every
@torch.no_grad()
def test_outputs_match_transformers(name: str) -> None:
    both = pair(name)
    pixels = pixels_for(both)
    same(our_outputs(both, pixels), their_outputs(both, pixels))


@every
@torch.no_grad()
def test_outputs_in_bf16(name: str) -> None:
    """No further from the exact outputs than twice what their own bf16 is."""
    both = pair(name)
    pixels = pixels_for(both)
    exact = their_outputs(both, pixels)
    their_half = their_outputs(both, pixels, copy.deepcopy(both.theirs).bfloat16())
    our_half = our_outputs(both, pixels, copy.deepcopy(both.ours).bfloat16())
    for key, tensor in exact.items():
        assert error(our_half[key], tensor) <= 2 * error(their_half[key], tensor), key


RESIZED = [name for name in CASES if name not in ("vit-oblong", "vit-mae", "vit-mae-normalized")]


@pytest.mark.parametrize("name", RESIZED)
@pytest.mark.parametrize("size", [(20, 20), (28, 8)])
@torch.no_grad()
def test_positions_for_images_of_another_size(name: str, size: tuple[int, int]) -> None:
    """Not of an oblong ViT, which theirs can't resize, nor of the MAE's decoder, which theirs resizes as one long row."""
    both = pair(name)
    pixels = pixels_for(both, size)
    asked = {} if "Yolos" in both.case.cls else {"interpolate_pos_encoding": True}
    same(our_outputs(both, pixels), their_outputs(both, pixels, **asked))


# -- losses ------------------------------------------------------------------------------------------------------------


def losses(both: Pair, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Ours and theirs: the class's own if it has one, else what its outputs are to numbers that are given."""
    cls = both.case.cls
    if "ImageClassification" in cls:
        labels = torch.tensor([[1, 0], [0, 1]])
        out = theirs(both, pixels)
        if "Teacher" in cls:
            scores = torch.stack([out.cls_logits, out.distillation_logits], 1)
            sums = both.ours(pixels, labels=labels)
            return sums.loss / int(sums.n_labels), F.cross_entropy(scores.flatten(0, 1), labels.flatten())
        sums = both.ours(pixels, labels=labels[:, 0])
        return sums.loss / int(sums.n_labels), theirs(both, pixels, labels=labels[:, 0]).loss
    if cls == "ViTMAEForPreTraining":
        sums = both.ours(pixels, layout=layout_for(both, pixels), labels=pixels)
        return sums.loss / int(sums.n_labels), theirs(both, pixels).loss
    found, expected = our_outputs(both, pixels), their_outputs(both, pixels)
    generator = torch.Generator().manual_seed(4)
    weights = {key: torch.randn(tensor.shape, generator=generator) for key, tensor in expected.items()}
    ours, other = (sum((out[key] * weight).sum() for key, weight in weights.items()) for out in (found, expected))
    return ours, other  # type: ignore[return-value]


@every
def test_the_loss_and_the_gradient_of_every_parameter(name: str, tmp_path: Path) -> None:
    both = pair(name)
    both.theirs.zero_grad()
    both.ours.zero_grad()
    found, expected = losses(both, pixels_for(both))
    found.backward()
    expected.backward()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    mine = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in both.ours.named_parameters()}
    wanted = names_of(both).to_ours(their_gradients(both, tmp_path))
    largest = max(float(grad.norm()) for grad in mine.values())  # some gradients are 0 but for rounding
    for parameter, grad in mine.items():
        scale = float(wanted[parameter].norm()) + 1e-2 * largest
        assert float((grad - wanted[parameter]).norm()) <= 2e-5 * scale, parameter
    both.ours.zero_grad()


# -- directories -------------------------------------------------------------------------------------------------------


def published(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Under the names of published files, if theirs writes others."""
    return {name.replace("decoder_encoder.layer.", "decoder_layers."): tensor for name, tensor in tensors.items()}


@every
def test_there_and_back(name: str, tmp_path: Path) -> None:
    both = pair(name)
    saved = both.run.save(tmp_path / "saved", to="hub")
    assert json.loads((saved / "config.json").read_text()) == json.loads((both.folder / "config.json").read_text())
    before, after = published(load_file(both.folder / "model.safetensors")), load_file(saved / "model.safetensors")
    assert before.keys() == after.keys()
    for tensor in before:
        assert torch.equal(before[tensor], after[tensor]), tensor
    assert load(saved, device="cpu").model.spec == both.ours.spec


@every
@torch.no_grad()
def test_a_directory_from_the_spec_alone_is_one_of_the_hubs(name: str, tmp_path: Path) -> None:
    both = pair(name)
    saved = Run(both.ours, None).save(tmp_path / "saved", to="hub")
    config = json.loads((saved / "config.json").read_text())
    assert config["architectures"] == [both.case.cls]
    cls = getattr(transformers, both.case.cls)
    model, info = cls.from_pretrained(saved, output_loading_info=True, attn_implementation="eager")
    assert not any(info.values()), info
    pixels = pixels_for(both)
    same(their_outputs(both, pixels, model.eval()), their_outputs(both, pixels), allowed=0)


@every
def test_auto_classes_load_what_is_saved(name: str, tmp_path: Path) -> None:
    both = pair(name)
    saved = both.run.save(tmp_path / "saved", to="hub")
    cls = getattr(transformers, both.case.auto)
    model, info = cls.from_pretrained(saved, output_loading_info=True)
    assert type(model).__name__ == both.case.cls and not any(info.values()), info


@every
@torch.no_grad()
def test_names_as_they_are_in_memory_load_too(name: str, tmp_path: Path) -> None:
    both = pair(name)
    (tmp_path / "config.json").write_text((both.folder / "config.json").read_text())
    save_file(dict(both.theirs.state_dict()), tmp_path / "model.safetensors")
    for one, other in zip(load(tmp_path, device="cpu").model.parameters(), both.ours.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", [*vit.SIZES, *deit.SIZES, *vit_mae.SIZES, *yolos.SIZES])
def test_a_published_size_is_its_configuration(name: str) -> None:
    spec = preset(name)
    family = family_of(spec)
    config = family.config(spec)
    assert family.spec(config) == spec
    cls = getattr(transformers, config["architectures"][0])
    with torch.device("meta"):
        theirs = cls(cls.config_class(**config))
    assert sum(p.numel() for p in theirs.parameters() if p.requires_grad) == spec.n_parameters


# -- configurations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family, config, said",
    [
        ("vit", {"pooler_output_size": 20}, "pooler_output_size=20 is not built here; what is, is hidden_size, 768"),
        ("vit", {"pooler_act": "gelu"}, "pooler_act='gelu' is not built here"),
        ("vit", {"image_size": [224, 224, 3]}, "image"),
        ("yolos", {"use_mid_positions": True}, "the key 'use_mid_positions' .*use_mid_position_embeddings"),
    ],
)
def test_what_means_something_else_is_named(family: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FAMILIES[family].spec(config)


FINER: dict[str, dict[str, Any]] = {
    "segmenter-tiny": {"head": {"kind": "pixel-masks", "labels": 4, "widths": [4, 6]}},
    "yolos-tiny": {},
    "vit-base-16": {"encoder.embedding.stem": [4, 4, 4], "head.standardized": True},
}


@pytest.mark.parametrize("name", FINER)
def test_what_the_hub_lacks_is_saved_as_our_own(name: str, tmp_path: Path) -> None:
    sizes = {"proposals": "patches", "detections": 0, "stem": (4, 6, 5)} if name == "yolos-tiny" else {}
    small = {"image": (32, 48), "patch": (8, 8), "d_model": 24, "n_layers": 2, "n_heads": 2, "d_ff": 32, "labels": 4}
    spec = preset(name, **small, **sizes).replace(FINER[name])
    model = build(spec, seed=0).eval()
    with pytest.warns(UserWarning, match="saved under the model type 'qkv'"):
        saved = Run(model, None).save(tmp_path / "saved")
    pixels = torch.randn(2, 3, 32, 48)
    found, wanted = load(saved, device="cpu").model(pixels), model(pixels)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)), strict=True):
        assert torch.equal(a, b)


def test_what_the_page_shows_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "vision.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "vision.md", "exec"), names)
    assert names["loss"].isfinite()
