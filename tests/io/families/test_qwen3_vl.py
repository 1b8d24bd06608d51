"""Qwen3-VL against transformers: pictures and videos of unequal sizes, DeepStack, interleaved M-RoPE, both ways."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_pictures import flattened
from torch import Tensor

import qkv
from qkv.io.families import FAMILIES
from qkv.io.hub.family import difference

sys.path.insert(0, str(Path(__file__).parent))

from picture_readers import ROLES, Given, check, drawn, padded_left, random_sizes

COUNT = 14
IMAGE, VIDEO = 9, 8


def config_of(case: int) -> dict[str, Any]:
    """The configuration of a random model: unusual heads, sections, patches, mergers, tables and deep layers."""
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


def theirs_of(case: int) -> Any:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    config = Qwen3VLConfig(**config_of(case), attn_implementation="sdpa")
    return drawn(Qwen3VLForConditionalGeneration(config), case)


def given_to(model: Any, count: int = 2, videos: bool = True) -> Given:
    """Prompts padded on the left: two pictures and a video of unequal sizes, and a video and a picture. Between the pictures
    of a video stands a text."""
    vision = model.config.vision_config
    side, frames = vision.patch_size * vision.spatial_merge_size, vision.temporal_patch_size
    sizes = [
        [(2, 2, 3), (0, 3, 1), (0, 1, 4)],
        [(3, 2, 1), (0, 4, 5)],
    ]  # times (0: a picture), rows, columns of vectors
    rows: list[list[int]] = []
    media: list[Tensor] = []
    patches: dict[str, list[Tensor]] = {"": [], "_videos": []}
    grids: dict[str, list[list[int]]] = {"": [], "_videos": []}
    for row in sizes[:count]:
        ids = [5, 6]
        for times, height, width in row if videos else [(0, h, w) for _, h, w in row]:
            shape = (vision.in_channels, height * side, width * side)
            clip = torch.randn(max(times, 1) * frames if times else 1, *shape, dtype=torch.float64)
            media.append(clip if times else clip[0])
            flat, grid = flattened(clip if times else clip.repeat(frames, 1, 1, 1), vision)
            kind = "_videos" if times else ""
            patches[kind].append(flat)
            grids[kind].append(grid)
            for i in range(max(times, 1)):
                ids += [20 + i, *[VIDEO if times else IMAGE] * (height * width), 10, 11]
        rows.append([*ids, 12, 7])
    padded, layout = padded_left(rows)
    types = (padded == IMAGE).int() + 2 * (padded == VIDEO).int()
    inputs: dict[str, Tensor] = {"mm_token_type_ids": types}
    for kind, name in (("", "image"), ("_videos", "video")):
        if patches[kind]:
            inputs |= {f"pixel_values{kind}": torch.cat(patches[kind]), f"{name}_grid_thw": torch.tensor(grids[kind])}
    return Given(padded, layout, {"image": media}, inputs, layout)


@pytest.mark.parametrize("case", [pytest.param(i, marks=pytest.mark.slow if i != 1 else []) for i in range(COUNT)])
def test_all_that_transformers_does(case: int, tmp_path: Path) -> None:
    theirs = theirs_of(case)
    given = given_to(theirs, videos=case % 3 != 1)
    deep = theirs.config.vision_config.deepstack_visual_indexes  # without any, their beam search raises IndexError
    check(theirs, given, given_to(theirs, 1), tmp_path, tokens=20, close=1e-5, widths=(1, 3) if deep else (1,))


def test_a_configuration_is_a_spec_and_back() -> None:
    family = FAMILIES["qwen3_vl"]
    for case in range(COUNT):
        config = config_of(case)
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
