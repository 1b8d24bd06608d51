"""Qwen3-VL against transformers: pictures and videos of unequal sizes, DeepStack, interleaved M-RoPE, both ways."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import qkv
from qkv.io.families import FAMILIES
from qkv.io.hub.family import difference

sys.path.insert(0, str(Path(__file__).parent))

from picture_readers import IMAGE, ROLES, VIDEO, Given, check, drawn, pictures_and_videos, random_sizes

COUNT = 14


def config_of(case: int, kind: str = "qwen3_vl") -> dict[str, Any]:
    """The configuration of a random model: unusual heads, sections, patches, mergers, tables, deep layers and experts."""
    rng = random_sizes(case)
    heads, pairs = rng.choice([1, 2, 4]), rng.choice([3, 4, 7])
    rows = rng.randint(0, pairs // 3)
    columns = rng.randint(0, pairs // 3)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": rng.choice([7.0, 5e6])}
    if case % 4 == 2:
        rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}
    text = {
        "vocab_size": rng.randint(40, 70),
        "hidden_size": rng.choice([12, 20, 30]),
        "head_dim": 2 * pairs,
        "intermediate_size": rng.randint(10, 50),
        "num_hidden_layers": rng.randint(1, 4),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([n for n in (1, 2, 4) if heads % n == 0]),
        "hidden_act": rng.choice(["silu", "gelu"]),
        "attention_bias": rng.random() < 0.3,
        "max_position_embeddings": 300,
        "rms_norm_eps": rng.choice([1e-6, 1e-3]),
        "rope_parameters": {
            **rope,
            "mrope_section": [pairs - rows - columns, rows, columns],
            "mrope_interleaved": True,
        },
        **ROLES,
    }
    if kind == "qwen3_vl_moe":
        text |= experts_of(case, text)
    merge = rng.choice([1, 2, 2, 3])
    depth = rng.randint(1, 4)
    vision = {
        "depth": depth,
        "num_heads": rng.choice([1, 2]),
        "patch_size": rng.choice([2, 3]),
        "spatial_merge_size": merge,
        "temporal_patch_size": rng.choice([1, 2, 2, 3]),
        "in_channels": rng.choice([3, 3, 1]),
        "intermediate_size": rng.randint(5, 30),
        "out_hidden_size": text["hidden_size"],
        "hidden_act": rng.choice(["gelu_pytorch_tanh", "silu"]),
        "num_position_embeddings": (merge * rng.choice([1, 2, 3])) ** 2,
        "deepstack_visual_indexes": [i for i in range(depth) if rng.random() < 0.6],
        "rope_parameters": {"rope_type": "axial", "rope_theta": rng.choice([10000.0, 30.0])},
    }
    vision["hidden_size"] = vision["num_heads"] * rng.choice([4, 8])
    whole = {"image_token_id": IMAGE, "video_token_id": VIDEO, "tie_word_embeddings": rng.random() < 0.4}
    return {"text_config": text, "vision_config": vision, **whole}


def experts_of(case: int, text: dict[str, Any]) -> dict[str, Any]:
    """Keys of the experts: of every width, also of half the model's and of the model's, in all layers or in some."""
    rng, layers = random_sizes(case + 1000), text["num_hidden_layers"]
    count = rng.choice([1, 3, 5])
    some = layers > 1 and case % 3 == 1
    return {
        "num_experts": count,
        "num_experts_per_tok": rng.randint(1, min(count, 3)),
        "moe_intermediate_size": rng.choice([7, text["hidden_size"] // 2, text["hidden_size"]]),
        "decoder_sparse_step": 2 if some and rng.random() < 0.5 else 1,
        "mlp_only_layers": [0] if some else [],
        "router_aux_loss_coef": rng.choice([0.0, 0.01]),
    }


def theirs_of(case: int, kind: str = "qwen3_vl") -> Any:
    import transformers

    name = {"qwen3_vl": "Qwen3VL", "qwen3_vl_moe": "Qwen3VLMoe"}[kind]
    config = getattr(transformers, f"{name}Config")(**config_of(case, kind), attn_implementation="sdpa")
    config._experts_implementation = "eager"  # their fused one has no float64
    return drawn(getattr(transformers, f"{name}ForConditionalGeneration")(config), case)


def given_to(model: Any, count: int = 2, videos: bool = True) -> Given:
    """Two pictures and a video of unequal sizes, and a video and a picture. A text stands between a video's pictures."""
    rows = [[(2, 2, 3), (0, 3, 1), (0, 1, 4)], [(3, 2, 1), (0, 4, 5)]]
    return pictures_and_videos(model, rows[:count], videos, apart=True)


KINDS = ("qwen3_vl", "qwen3_vl_moe")
FAST = (("qwen3_vl", 1), ("qwen3_vl_moe", 1), ("qwen3_vl_moe", 2))
CASES = [
    pytest.param(kind, case, marks=pytest.mark.slow if (kind, case) not in FAST else [])
    for kind in KINDS
    for case in range(COUNT)
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_all_that_transformers_does(kind: str, case: int, tmp_path: Path) -> None:
    theirs = theirs_of(case, kind)
    given = given_to(theirs, videos=case % 3 != 1)
    deep = theirs.config.vision_config.deepstack_visual_indexes  # without any, their beam search raises IndexError
    check(theirs, given, given_to(theirs, 1), tmp_path, tokens=20, close=1e-5, widths=(1, 3) if deep else (1,))


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_is_a_spec_and_back(kind: str) -> None:
    family = FAMILIES[kind]
    for case in range(COUNT):
        config = config_of(case, kind)
        spec = family.spec(config)
        assert not difference(family.spec(family.config(spec)), spec)
        assert qkv.build(spec, device="meta").spec.n_parameters == spec.n_parameters


def test_what_a_configuration_says_wrongly_is_one_sentence() -> None:
    family, config = FAMILIES["qwen3_vl"], config_of(0)
    text, vision = config["text_config"], config["vision_config"]
    rope = text["rope_parameters"]
    for changes, said in (
        ({"vision_config": {**vision, "out_hidden_size": 5}}, "pictures get a width of 5"),
        (
            {"vision_config": {**vision, "num_position_embeddings": 5}},
            "num_position_embeddings is 5, and positions fill",
        ),
        ({"vision_config": {**vision, "deepstack_visual_indexes": [9]}}, r"in increasing order, not \[9\]"),
        ({"vision_config": {**vision, "deepstack_visual_indexes": [0, 0]}}, r"in increasing order, not \[0, 0\]"),
        ({"vision_config": {**vision, "deepstack_visual_indexes": 3}}, "is a list of numbers of layers, not 3"),
        (
            {"text_config": {**text, "rope_parameters": {**rope, "mrope_interleaved": False}}},
            "mrope_interleaved is False",
        ),
        ({"text_config": {**text, "sliding_window": 4}}, "text_config: the key 'sliding_window'"),
    ):
        with pytest.raises(ValueError, match=said):
            family.spec({**config, **changes})


def test_experts_are_read_in_both_of_the_forms_that_files_have(tmp_path: Path) -> None:
    config = config_of(2, "qwen3_vl_moe")
    config["text_config"] |= {"hidden_size": 12, "moe_intermediate_size": 7, "num_experts": 3}
    config["vision_config"]["out_hidden_size"] = 12
    spec = FAMILIES["qwen3_vl_moe"].spec(config)
    model = qkv.build(spec, seed=0)
    model.save(tmp_path / "published", "hub")
    tensors = load_file(tmp_path / "published" / "model.safetensors")
    name = "model.language_model.layers.0.mlp.experts"
    assert tensors[f"{name}.gate_up_proj"].shape == (3, 12, 14) and tensors[f"{name}.down_proj"].shape == (3, 7, 12)
    turned = {key: one.mT.contiguous() if ".experts." in key else one for key, one in tensors.items()}
    shutil.copytree(tmp_path / "published", tmp_path / "turned")
    save_file(turned, tmp_path / "turned" / "model.safetensors", {"format": "pt"})
    for kind in ("published", "turned"):
        again = qkv.load(tmp_path / kind).model.state_dict()
        assert all(torch.equal(again[key], one) for key, one in model.state_dict().items()), kind
    wrong = {key: one[:, :-1].contiguous() if key.endswith("down_proj") else one for key, one in tensors.items()}
    save_file(wrong, tmp_path / "turned" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"down_proj is of shape \(3, 6, 12\), and the model's of \(3, 7, 12\)"):
        qkv.load(tmp_path / "turned")
