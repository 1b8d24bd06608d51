"""Idefics 3 and SmolVLM against transformers: logits, generations, and directories both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
from qkv.core.layout import Layout
from qkv.io.families import FAMILIES
from qkv.io.hub.family import difference

TEXT = {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT |= {
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION = {"hidden_size": 16, "intermediate_size": 28, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION |= {"image_size": 12, "patch_size": 3}

# Model type, and changes to the configuration, to its text and to its vision.
CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("idefics3", {}, {}, {}),
    ("idefics3", {"scale_factor": 4}, {"num_key_value_heads": 1, "head_dim": 10}, {"num_attention_heads": 4}),
    ("idefics3", {"tie_word_embeddings": True}, {"rms_norm_eps": 1e-3}, {"layer_norm_eps": 1e-2}),
    ("idefics3", {"scale_factor": 1, "image_token_id": 3}, {"hidden_act": "gelu"}, {"hidden_act": "gelu"}),
    ("smolvlm", {"scale_factor": 3}, {"num_key_value_heads": 4}, {"image_size": 18, "patch_size": 3}),
    ("smolvlm", {}, {"attention_bias": True, "mlp_bias": True}, {"num_channels": 1}),
    (
        "smolvlm",
        {"image_token_id": 60},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}},
        {},
    ),
    (
        "smolvlm",
        {"tie_word_embeddings": True},
        {"num_hidden_layers": 3, "intermediate_size": 17},
        {"num_hidden_layers": 1, "intermediate_size": 50, "image_size": 16, "patch_size": 2},
    ),
    (
        "smolvlm",
        {"scale_factor": 2},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}},
        {"hidden_act": "relu"},
    ),
]


def config_of(case: int) -> tuple[str, dict[str, Any]]:
    kind, changes, text, vision = CASES[case]
    inside = {"text_config": {"model_type": "llama", **TEXT, **text}, "vision_config": {**VISION, **vision}}
    return kind, {"image_token_id": 9, "scale_factor": 2, **inside, **changes}


def theirs_of(case: int) -> Any:
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        SmolVLMConfig,
        SmolVLMForConditionalGeneration,
    )

    kind, config = config_of(case)
    classes = {
        "idefics3": (Idefics3Config, Idefics3ForConditionalGeneration),
        "smolvlm": (SmolVLMConfig, SmolVLMForConditionalGeneration),
    }
    make, cls = classes[kind]
    torch.manual_seed(case)
    model = cls(make(**config, attn_implementation="sdpa")).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model


def inputs_of(model: Any) -> tuple[Tensor, Layout, Tensor, Tensor]:
    """Two prompts padded on the left, the first with two pictures, the second with one; pixels as they take them and as
    we do."""
    vision, token = model.config.vision_config, model.config.image_token_id
    n = (vision.image_size // vision.patch_size) ** 2 // model.config.scale_factor**2
    rows = [[5, *[token] * n, 6, *[token] * n, 7, 8], [10, 11, *[token] * n, 12]]
    layout = Layout.from_lengths([len(row) for row in rows], side="left")
    ids = torch.zeros(layout.shape, dtype=torch.int64)
    for row, tokens in enumerate(rows):
        ids[row, layout.valid[row]] = torch.tensor(tokens)
    pictures = torch.randn(3, vision.num_channels, vision.image_size, vision.image_size, dtype=torch.float64)
    stacked = torch.stack([pictures[:2], torch.stack([pictures[2], torch.zeros_like(pictures[2])])])
    return ids, layout, stacked, pictures


@pytest.mark.parametrize("case", [pytest.param(i, marks=pytest.mark.slow) for i in range(len(CASES))])
def test_logits_generations_and_directories_are_those_of_transformers(case: int, tmp_path: Path) -> None:
    theirs = theirs_of(case)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = qkv.load(tmp_path / "theirs", dtype="float64").model
    ids, layout, stacked, pictures = inputs_of(theirs)
    mask, media = layout.valid.long(), {"image": pictures}
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask, pixel_values=stacked).logits
        torch.testing.assert_close(
            ours(ids, layout=layout, media=media)[layout.valid], expected[layout.valid], rtol=1e-6, atol=1e-6
        )
        for beams in (1, 3):
            options = {"max_new_tokens": 5, "num_beams": beams}
            made = theirs.generate(
                input_ids=ids, attention_mask=mask, pixel_values=stacked, do_sample=False, eos_token_id=None, **options
            )
            assert ours.generate(ids, layout=layout, media=media, **options)[:, -5:].tolist() == made[:, -5:].tolist()
    ours.save(tmp_path / "ours", "hub")
    again = type(theirs).from_pretrained(tmp_path / "ours", dtype=torch.float64, attn_implementation="sdpa")
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    for part in ("text_config", "vision_config"):
        before, after = (getattr(model.config, part).to_dict() for model in (theirs, again))
        assert {key: before[key] for key in before if before[key] != after.get(key)}.keys() <= {"dtype", *_UNSAID}, part


_UNSAID = {
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "_attn_implementation",
    "transformers_version",
    "architectures",
}


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_configuration_is_a_spec_and_back(case: int) -> None:
    kind, config = config_of(case)
    family = FAMILIES[kind]
    spec = family.spec(config)
    written = family.config(spec)
    assert not difference(family.spec(written), spec) and written["model_type"] == kind
    assert qkv.build(spec, device="meta").spec.n_parameters == sum(p.numel() for p in qkv.build(spec).parameters())


def test_what_a_configuration_says_wrongly_is_one_sentence() -> None:
    family, (_, config) = FAMILIES["idefics3"], config_of(0)
    for changes, said in (
        ({"scale_factor": 3}, "can't be joined 3 × 3"),
        ({"text_config": {**config["text_config"], "model_type": "mistral"}}, "is of the model type 'mistral'"),
        ({"text_config": {**config["text_config"], "new": 3}}, "text_config: the key 'new'"),
        ({"vision_config": {**config["vision_config"], "image_size": 150}}, "50 patches is not built here"),
        ({"vision_config": {**config["vision_config"], "hidden_size": "a"}}, "vision_config: hidden_size must be"),
        ({"text_config": 3}, "text_config must be"),
    ):
        with pytest.raises(ValueError, match=said):
            family.spec({**config, **changes})
