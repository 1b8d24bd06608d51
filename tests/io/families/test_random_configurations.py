"""Families against the Hub's own implementation in random unusual configurations: numbers, gradients, tokens, files."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hub_models
import hub_sizes
import pytest
import test_parity
import torch
from hub_cases import Case
from hub_models import inputs, pair
from hub_sizes import EOS, ESMS_NAMES, PAD

Draw = Callable[[random.Random], dict[str, Any]]
COUNT = 12
ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu")


def sizes(draw: random.Random, even: bool = False) -> dict[str, Any]:
    """Sizes that published models don't have: odd widths, one head, one layer, a wide or a narrow feed-forward layer."""
    n_heads = draw.choice((1, 2, 3, 5, 6))
    return {
        "vocab_size": hub_sizes.VOCABULARY,
        "hidden_size": n_heads * (draw.choice((4, 6, 10)) if even else draw.choice((3, 4, 7, 10))),
        "intermediate_size": draw.choice((5, 31, 64)),
        "num_hidden_layers": draw.choice((1, 2, 3)),
        "num_attention_heads": n_heads,
        "max_position_embeddings": draw.choice((36, 41, 64)),
    }


def encoder(draw: random.Random) -> dict[str, Any]:
    return {
        **sizes(draw),
        "hidden_act": draw.choice(ACTIVATIONS),
        "layer_norm_eps": draw.choice((1e-12, 1e-5, 1e-2)),
        "pad_token_id": 1,
        "type_vocab_size": draw.choice((1, 2, 3)),
        "tie_word_embeddings": draw.random() < 0.7,
    }


def mpnet(draw: random.Random) -> dict[str, Any]:
    return {key: value for key, value in encoder(draw).items() if key != "type_vocab_size"}


def nomic_bert(draw: random.Random) -> dict[str, Any]:
    return encoder(draw) | {
        **sizes(draw, even=True),
        "pad_token_id": PAD,
        "head_dim": draw.choice((None, 4, 6, 14)),
        "rope_parameters": rope(draw),
    }


def esm(draw: random.Random) -> dict[str, Any]:
    return mpnet(draw) | {
        **sizes(draw, even=True),
        "hidden_act": "gelu",
        "mask_token_id": draw.choice((7, 32, 96)),
        "position_embedding_type": draw.choice(("rotary", "rotary", "absolute")),
        "rope_theta": draw.choice((100.0, 10000.0)),
        "token_dropout": draw.random() < 0.7,
        "emb_layer_norm_before": draw.random() < 0.3,
        "hidden_dropout_prob": 0.0,
    }


def opt(draw: random.Random) -> dict[str, Any]:
    config = sizes(draw)
    config["ffn_dim"] = config.pop("intermediate_size")
    return config | {
        "activation_function": draw.choice(ACTIVATIONS),
        "do_layer_norm_before": draw.random() < 0.6,
        "_remove_final_layer_norm": draw.random() < 0.3,
        "word_embed_proj_dim": draw.choice((None, 8, 17)),
        "enable_bias": draw.random() < 0.7,
    }


def gptj(draw: random.Random) -> dict[str, Any]:
    n_heads, d_head = draw.choice((1, 2, 3, 7)), draw.choice((4, 6, 10, 14))
    return {
        "vocab_size": hub_sizes.VOCABULARY,
        "n_embd": n_heads * d_head,
        "n_head": n_heads,
        "n_layer": draw.choice((1, 3)),
        "n_positions": 40,
        "n_inner": draw.choice((None, 9, 50)),
        "rotary_dim": draw.choice(range(2, d_head + 1, 2)),
        "activation_function": draw.choice(ACTIVATIONS),
        "layer_norm_epsilon": draw.choice((1e-5, 1e-3)),
        "tie_word_embeddings": draw.random() < 0.3,
    }


def llama(draw: random.Random) -> dict[str, Any]:
    config = sizes(draw, even=True)
    n_heads = config["num_attention_heads"]
    return config | {
        "num_key_value_heads": draw.choice([n for n in (1, 2, 3, 5, 6) if n_heads % n == 0]),
        "hidden_act": draw.choice(ACTIVATIONS),
        "rms_norm_eps": draw.choice((1e-6, 1e-2)),
        "tie_word_embeddings": draw.random() < 0.5,
        "rope_parameters": rope(draw),
    }


def rope(draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(("default", "linear", "yarn", "llama3"))
    return {"rope_type": kind, "rope_theta": draw.choice((50.0, 1e4)), **hub_sizes.SCALINGS.get(kind, {})}


def gemma(draw: random.Random) -> dict[str, Any]:
    return llama(draw) | {
        "head_dim": draw.choice((4, 6, 20)),
        "attention_bias": draw.random() < 0.3,
        "hidden_act": draw.choice(("gelu_pytorch_tanh", "relu", "silu")),
    }


def olmo3(draw: random.Random) -> dict[str, Any]:
    config = llama(draw)
    kinds = ("full_attention", "sliding_attention")
    types = draw.choice((None, [draw.choice(kinds) for _ in range(config["num_hidden_layers"])]))
    return config | {
        "attention_bias": draw.random() < 0.3,
        "sliding_window": draw.choice((2, 5, 30)),
        "layer_types": types,
        "rope_parameters": {kind: rope(draw) for kind in kinds},
    }


def ministral3(draw: random.Random) -> dict[str, Any]:
    config = llama(draw)
    parameters = {"original_max_position_embeddings": 3, **config["rope_parameters"], "llama_4_scaling_beta": 0.5}
    return config | {
        "head_dim": draw.choice((4, 10)),
        "sliding_window": draw.choice((None, 3, 7)),
        "rope_parameters": parameters,
    }


def ministral(draw: random.Random) -> dict[str, Any]:
    config = llama(draw)
    window, kinds = draw.choice((3, 7)), ("full_attention", "sliding_attention")
    types = draw.choice((None, [draw.choice(kinds) for _ in range(config["num_hidden_layers"])]))
    return config | {"head_dim": draw.choice((4, 10)), "sliding_window": window, "layer_types": types}


def bart(draw: random.Random) -> dict[str, Any]:
    heads = draw.sample((1, 2, 3, 4), 2)
    return {
        "vocab_size": hub_sizes.VOCABULARY,
        "d_model": draw.choice((12, 24, 36)),
        "max_position_embeddings": draw.choice((40, 53)),
        **{f"{name}_attention_heads": count for name, count in zip(("encoder", "decoder"), heads, strict=True)},
        **{f"{name}_layers": draw.choice((1, 2, 3)) for name in ("encoder", "decoder")},
        **{f"{name}_ffn_dim": draw.choice((7, 48)) for name in ("encoder", "decoder")},
        "activation_function": draw.choice(ACTIVATIONS),
        "scale_embedding": draw.random() < 0.5,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": None,
    }


def m2m_100(draw: random.Random) -> dict[str, Any]:
    return bart(draw) | {"pad_token_id": PAD}


def t5(draw: random.Random) -> dict[str, Any]:
    return {
        "vocab_size": hub_sizes.VOCABULARY,
        "d_model": draw.choice((10, 24, 33)),
        "d_kv": draw.choice((3, 8, 20)),
        "d_ff": draw.choice((7, 48)),
        "num_layers": draw.choice((1, 2, 3)),
        "num_decoder_layers": draw.choice((None, 1)),  # with more than the encoder's, their cache fails
        "num_heads": draw.choice((1, 3, 4)),
        "relative_attention_num_buckets": draw.choice((8, 16)),
        "relative_attention_max_distance": draw.choice((10, 128)),
        "feed_forward_proj": draw.choice(("relu", "gated-gelu", "gated-silu")),
        "layer_norm_epsilon": draw.choice((1e-6, 1e-2)),
        "decoder_start_token_id": 1,
    }


FAMILIES: dict[str, tuple[str, Draw, dict[str, Any]]] = {
    "roberta": ("RobertaForMaskedLM", encoder, {"does": "read"}),
    "xlm-roberta": ("XLMRobertaForMaskedLM", encoder, {"does": "read"}),
    "camembert": ("CamembertForMaskedLM", encoder, {"does": "read"}),
    "mpnet": ("MPNetForMaskedLM", mpnet, {"does": "read"}),
    "nomic-bert": ("NomicBertForMaskedLM", nomic_bert, {"does": "read"}),
    "esm": ("EsmForMaskedLM", esm, {"does": "read", "renamed": ESMS_NAMES}),
    "opt": ("OPTForCausalLM", opt, {}),
    "gptj": ("GPTJForCausalLM", gptj, {}),
    "gemma": ("GemmaForCausalLM", gemma, {}),
    "olmo3": ("Olmo3ForCausalLM", olmo3, {}),
    "ministral3": ("Ministral3ForCausalLM", ministral3, {}),
    "ministral": ("MinistralForCausalLM", ministral, {}),
    "mbart": ("MBartForConditionalGeneration", bart, {"does": "translate", "places": "counted"}),
    "m2m-100": ("M2M100ForConditionalGeneration", m2m_100, {"does": "translate", "places": "counted"}),
    "t5-v1.1": ("T5ForConditionalGeneration", t5, {"does": "translate", "places": "relative"}),
    "umt5": ("UMT5ForConditionalGeneration", t5, {"does": "translate", "places": "relative"}),
}

for _family, (_cls, _draw, _options) in FAMILIES.items():
    for _i in range(COUNT):
        _config = _draw(random.Random(f"{_family} {_i}"))
        hub_models.RANDOM[f"{_family} {_i}"] = Case(_cls, _config, **_options)


@pytest.mark.slow
@pytest.mark.parametrize("name", hub_models.RANDOM)
def test_a_random_configuration_is_the_hubs(name: str, tmp_path: Path) -> None:
    test_parity.test_outputs_match_transformers(name)
    test_parity.test_the_loss_and_the_gradient_of_every_parameter(name, tmp_path / "gradients")
    test_parity.test_there_and_back(name)
    test_parity.test_a_directory_from_the_spec_alone_is_one_of_the_hubs(name, tmp_path / "again")
    if hub_models.RANDOM[name].does != "read":
        twenty_tokens(name)


@torch.no_grad()
def twenty_tokens(name: str) -> None:
    """A decoder continues a batch that is padded on the left, token for token."""
    both = pair(name)
    given = inputs(both.case, "left")
    translates = both.case.does == "translate"
    ids, mask = (given.source, given.source_mask) if translates else (given.ids, given.mask)
    begins = {"decoder_start_token_id": 1, "forced_eos_token_id": None} if translates else {}
    options = {"attention_mask": mask, "max_new_tokens": 20, "do_sample": False}
    expected = both.theirs.generate(ids, **options, eos_token_id=EOS, pad_token_id=PAD, **begins)
    found = both.ours.generate(
        ids, attention_mask=mask, max_new_tokens=20, eos_id=EOS, pad_id=PAD, bos_id=1 if translates else None
    )
    assert found.tolist() == test_parity.ended(expected).tolist()
