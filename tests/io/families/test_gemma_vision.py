"""PaliGemma and Gemma 3 against transformers: logits, gradients, generations, and directories both ways."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
from qkv.core.layout import Role
from qkv.io.families import FAMILIES
from qkv.io.hub.family import difference

sys.path.insert(0, str(Path(__file__).parent))

from picture_readers import ROLES, Given, check, drawn, padded_left, random_sizes

COUNT = 13  # cases of each kind of text


def config_of(kind: str, case: int) -> dict[str, Any]:
    """The configuration of a random model: the first is plain, the others are unusual."""
    rng = random_sizes(case)
    heads = rng.choice([1, 2, 3, 4])
    text: dict[str, Any] = {
        "model_type": kind,
        "vocab_size": rng.randint(40, 70),
        "hidden_size": heads * rng.choice([6, 8, 9]),
        "intermediate_size": rng.randint(10, 50),
        "num_hidden_layers": rng.randint(1, 4),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([n for n in (1, 2, 3, 4) if heads % n == 0]),
        "head_dim": rng.choice([2, 4, 6, 10]),
        "max_position_embeddings": 160,
        "rms_norm_eps": rng.choice([1e-6, 1e-3]),
        "attention_bias": rng.random() < 0.3,
        **ROLES,
    }
    act = "hidden_act" if kind == "gemma" else "hidden_activation"
    text[act] = rng.choice(["gelu_pytorch_tanh", "silu", "relu"])
    if kind != "gemma":
        text |= {"sliding_window": rng.randint(2, 9), "query_pre_attn_scalar": rng.randint(2, 30)}
        text["layer_types"] = rng.choices(["sliding_attention", "full_attention"], k=text["num_hidden_layers"])
    if kind == "gemma2":
        text["attn_logit_softcapping"] = rng.choice([3.0, 20.0])
        text["final_logit_softcapping"] = rng.choice([4.0, 30.0])
    if kind == "gemma3_text":
        both = {"rope_type": "default", "rope_theta": rng.choice([10.0, 1e4])}
        text["rope_parameters"] = {
            "sliding_attention": both,
            "full_attention": rng.choice([both, {"rope_type": "linear", "factor": 3.0, "rope_theta": 50.0}]),
        }
    elif case % 3 == 1:
        text["rope_parameters"] = {"rope_type": "default", "rope_theta": 77.0}
    side, pool = rng.choice([1, 2, 3]), rng.choice([1, 2, 3]) if kind == "gemma3_text" else 1
    patch, width = rng.choice([2, 3]), rng.choice([8, 12])
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": width,
        "intermediate_size": rng.randint(8, 30),
        "num_hidden_layers": rng.randint(1, 3),
        "num_attention_heads": rng.choice([1, 2, 4]),
        "image_size": side * pool * patch + rng.choice([0, patch - 1]),
        "patch_size": patch,
        "num_channels": rng.choice([3, 3, 1]),
        "hidden_act": rng.choice(["gelu_pytorch_tanh", "gelu", "relu"]),
        "layer_norm_eps": rng.choice([1e-6, 1e-2]),
        "vision_use_head": rng.random() < 0.3,
    }
    token = rng.choice([3, 9, text["vocab_size"] - 1])
    config = {"text_config": text, "vision_config": vision, "image_token_index": token}
    config["tie_word_embeddings"] = rng.random() < 0.6
    if kind == "gemma3_text":
        return {**config, "mm_tokens_per_image": side**2}
    return {**config, "projection_dim": text["hidden_size"], "hidden_size": text["hidden_size"]}


def model_type(kind: str) -> str:
    return "gemma3" if kind == "gemma3_text" else "paligemma"


def theirs_of(kind: str, case: int) -> Any:
    import transformers

    name = "Gemma3" if kind == "gemma3_text" else "PaliGemma"
    how = "sdpa" if name == "Gemma3" else "eager"  # eager is NaN at padding in windows, and sdpa has no soft-caps
    config = getattr(transformers, f"{name}Config")(**config_of(kind, case), attn_implementation=how)
    return drawn(getattr(transformers, f"{name}ForConditionalGeneration")(config), case)


def given_to(model: Any, count: int = 2) -> Given:
    """Prompts padded on the left, the first with two pictures, the second with one."""
    vision, token = model.config.vision_config, model.config.image_token_id
    gemma3 = model.config.model_type == "gemma3"
    n = model.config.mm_tokens_per_image if gemma3 else (vision.image_size // vision.patch_size) ** 2
    rows = [[5, *[token] * n, 6, *[token] * n, 7, 8, 12, 30, 31], [10, 11, *[token] * n, 12]]
    ids, layout = padded_left(rows[:count])
    size = (vision.num_channels, vision.image_size, vision.image_size)
    pictures = torch.randn(1 + count, *size, dtype=torch.float64)
    types = (ids == token).long() if gemma3 else torch.zeros_like(ids)
    marked = layout if gemma3 else layout.with_roles(layout.valid * int(Role.PREFIX))
    return Given(ids, layout, {"image": pictures}, {"pixel_values": pictures, "token_type_ids": types}, marked)


CASES = [
    pytest.param(kind, case, marks=pytest.mark.slow if case or kind != "gemma2" else [])
    for kind in ("gemma", "gemma2", "gemma3_text")
    for case in range(COUNT)
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_all_that_transformers_does(kind: str, case: int, tmp_path: Path) -> None:
    theirs = theirs_of(kind, case)
    check(theirs, given_to(theirs), given_to(theirs, 1), tmp_path, untrained="vision_tower.head.")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gemma", "gemma2"])
@torch.no_grad()
def test_what_follows_the_prefix_is_causal(kind: str) -> None:
    """As their models are trained: token types are 0 in the prefix and 1 after it."""
    theirs = theirs_of(kind, 3)
    given = given_to(theirs)
    types = torch.zeros_like(given.ids)
    types[:, -3:] = 1
    expected = theirs(
        input_ids=given.ids,
        attention_mask=given.mask,
        pixel_values=given.media["image"],
        token_type_ids=types,
    ).logits
    ours = of(theirs)
    marked = given.layout.with_roles((types == 0) * int(Role.PREFIX))
    real = given.layout.valid
    found = ours(given.ids, layout=marked, media=given.media)
    torch.testing.assert_close(found[real], expected[real], rtol=1e-4, atol=3e-5)
    plain = ours(given.ids, layout=given.layout, media=given.media)
    assert not torch.allclose(plain[real], expected[real], atol=1e-2)


def of(theirs: Any) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return qkv.load(folder, dtype="float64").model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gemma", "gemma3_text"])
@torch.no_grad()
def test_the_bare_models_states(kind: str, tmp_path: Path) -> None:
    theirs = theirs_of(kind, 2).model
    theirs.save_pretrained(tmp_path)
    ours = qkv.load(tmp_path, dtype="float64").model
    given = given_to(theirs)
    expected = theirs(input_ids=given.ids, attention_mask=given.mask, **given.inputs).last_hidden_state
    found: Tensor = ours(given.ids, layout=given.marked, media=given.media)
    real = given.layout.valid
    torch.testing.assert_close(found[real], expected[real], rtol=1e-4, atol=3e-5)
    ours.save(tmp_path / "ours", "hub")
    again = type(theirs).from_pretrained(tmp_path / "ours", dtype=torch.float64)
    assert all(torch.equal(again.state_dict()[n], t) for n, t in theirs.state_dict().items() if ".head." not in n)


@pytest.mark.parametrize("kind", ["gemma", "gemma2", "gemma3_text"])
def test_a_configuration_is_a_spec_and_back(kind: str) -> None:
    family = FAMILIES[model_type(kind)]
    for case in range(COUNT):
        spec = family.spec(config_of(kind, case))
        written = family.config(spec)
        assert not difference(family.spec(written), spec) and written["text_config"]["model_type"] == kind
        assert qkv.build(spec, device="meta").spec.n_parameters == spec.n_parameters


def test_what_a_configuration_says_wrongly_is_one_sentence() -> None:
    config = config_of("gemma", 0)
    text, vision = config["text_config"], config["vision_config"]
    for changes, said in (
        ({"projection_dim": 5}, "projected to a width of 5"),
        (
            {"text_config": {**text, "model_type": "llama"}},
            "is of the model type 'llama', and what is built here is 'gemma'",
        ),
        ({"vision_config": {**vision, "model_type": "clip_vision_model"}}, "'clip_vision_model'"),
    ):
        with pytest.raises(ValueError, match=said):
            FAMILIES["paligemma"].spec({**config, **changes})
    config = config_of("gemma3_text", 0)
    with pytest.raises(ValueError, match=r"can't become 49 tokens \(mm_tokens_per_image\)"):
        FAMILIES["gemma3"].spec({**config, "mm_tokens_per_image": 49})
    with pytest.raises(ValueError, match=r"text_config: final_logit_softcapping=5\.0 is not built here"):
        FAMILIES["gemma3"].spec({**config, "text_config": {**config["text_config"], "final_logit_softcapping": 5.0}})
