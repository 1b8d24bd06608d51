"""Qwen2-VL and Qwen2.5-VL against transformers: pictures and videos of unequal sizes, M-RoPE, and directories both ways."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import qkv
from qkv.io.families import FAMILIES
from qkv.io.hub.family import difference

sys.path.insert(0, str(Path(__file__).parent))

from picture_readers import IMAGE, ROLES, VIDEO, Given, check, drawn, pictures_and_videos, random_sizes

COUNT = 13


def config_of(kind: str, case: int) -> dict[str, Any]:
    """The configuration of a random model: unusual heads, sections, windows, patches and mergers."""
    rng = random_sizes(case)
    heads, pairs = rng.choice([1, 2, 4]), rng.choice([3, 4, 7])
    cuts = sorted(rng.randint(0, pairs) for _ in range(2))
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": rng.choice([7.0, 1e6])}
    if case % 4 == 2:
        rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}
    text = {
        "vocab_size": rng.randint(40, 70),
        "hidden_size": heads * 2 * pairs,
        "intermediate_size": rng.randint(10, 50),
        "num_hidden_layers": rng.randint(1, 3),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([n for n in (1, 2, 4) if heads % n == 0]),
        "hidden_act": rng.choice(["silu", "gelu"]),
        "max_position_embeddings": 300,
        "rms_norm_eps": rng.choice([1e-6, 1e-3]),
        "rope_parameters": {**rope, "mrope_section": [cuts[0], cuts[1] - cuts[0], pairs - cuts[1]]},
        **ROLES,
    }
    if case % 5 == 3:
        text |= {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1, "num_hidden_layers": 2}
    patch, merge = rng.choice([2, 3]), rng.choice([1, 2, 2, 3])
    vision = {
        "depth": rng.randint(1, 3),
        "num_heads": rng.choice([1, 2]),
        "patch_size": patch,
        "spatial_merge_size": merge,
        "temporal_patch_size": rng.choice([1, 2, 2, 3]),
        "in_channels": rng.choice([3, 3, 1]),
        "rope_parameters": {"rope_type": "axial", "rope_theta": rng.choice([10000.0, 30.0])},
    }
    width = vision["num_heads"] * rng.choice([4, 8])
    if kind == "qwen2_vl":
        vision |= {"embed_dim": width, "mlp_ratio": rng.choice([1, 2, 3]), "hidden_size": text["hidden_size"]}
        vision["hidden_act"] = rng.choice(["quick_gelu", "gelu"])
    else:
        vision |= {
            "hidden_size": width,
            "intermediate_size": rng.randint(5, 30),
            "out_hidden_size": text["hidden_size"],
        }
        vision |= {"hidden_act": rng.choice(["silu", "relu"]), "tokens_per_second": rng.choice([1, 2, 5])}
        vision["window_size"] = patch * merge * rng.choice([1, 2, 3]) + rng.choice([0, 1])
        vision["fullatt_block_indexes"] = [i for i in range(vision["depth"]) if rng.random() < 0.4]
    whole = {"image_token_id": IMAGE, "video_token_id": VIDEO, "tie_word_embeddings": rng.random() < 0.4}
    return {"text_config": text, "vision_config": vision, **whole}


def theirs_of(kind: str, case: int) -> Any:
    import transformers

    name = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL"}[kind]
    config = getattr(transformers, f"{name}Config")(**config_of(kind, case), attn_implementation="sdpa")
    return drawn(getattr(transformers, f"{name}ForConditionalGeneration")(config), case)


def given_to(model: Any, count: int = 2, videos: bool = True) -> Given:
    """Two pictures and a video of unequal sizes, and a video and a picture."""
    rows = [[(1, 2, 3), (0, 3, 1), (0, 1, 4)], [(2, 2, 1), (0, 4, 5)]]
    return pictures_and_videos(model, rows[:count], videos)


CASES = [
    pytest.param(kind, case, marks=pytest.mark.slow if case or kind != "qwen2_5_vl" else [])
    for kind in ("qwen2_5_vl", "qwen2_vl")
    for case in range(COUNT)
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_all_that_transformers_does(kind: str, case: int, tmp_path: Path) -> None:
    theirs = theirs_of(kind, case)
    check(theirs, given_to(theirs, videos=case % 3 != 1), given_to(theirs, 1), tmp_path)


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen2_vl"])
def test_a_configuration_is_a_spec_and_back(kind: str) -> None:
    family = FAMILIES[kind]
    for case in range(COUNT):
        config = config_of(kind, case)
        spec = family.spec(config)
        written = family.config(spec)
        assert not difference(family.spec(written), spec)
        assert qkv.build(spec, device="meta").spec.n_parameters == spec.n_parameters
        flat = {**config, **config["text_config"]}
        del flat["text_config"]
        rope = flat.pop("rope_parameters")
        if rope["rope_type"] == "default":
            flat |= {"rope_theta": rope["rope_theta"]}
            flat["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
            assert not difference(family.spec(flat), spec)


def test_what_a_configuration_says_wrongly_is_one_sentence() -> None:
    family, config = FAMILIES["qwen2_5_vl"], config_of("qwen2_5_vl", 0)
    text, vision = config["text_config"], config["vision_config"]
    for changes, said in (
        ({"vision_config": {**vision, "out_hidden_size": 5}}, "pictures get a width of 5"),
        ({"vision_config": {**vision, "window_size": 1}}, "a window_size of 1 pixels is less than"),
        ({"vision_config": {**vision, "new": 1}}, "vision_config: the key 'new'"),
        (
            {"text_config": {**text, "rope_parameters": {"mrope_section": [1, 2]}}},
            "mrope_section must be three numbers",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            family.spec({**config, **changes})
    wrong = {**config, "text_config": {**text, "rope_parameters": {"mrope_section": [90, 1, 1]}}}
    with pytest.raises(ValueError, match="M-RoPE are for 92 pairs of coordinates, and heads have"):
        qkv.build(family.spec(wrong), device="meta")
