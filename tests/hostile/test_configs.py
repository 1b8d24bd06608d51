"""Hostile configurations of the Hub end soon: in a model, or in one sentence that names the key."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from configs import ROPES, base, check, check_stored, mutants, stored

from qkv.io.families import FAMILIES
from qkv.io.hub.values import KINDS
from qkv.runs.inference.run import load

SEED = 20


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_mutated_is_sound(name: str) -> None:
    for rope in (None, *ROPES):
        for cls in FAMILIES[name].classes:
            FAMILIES[name].spec(base(name, rope), cls)


def test_every_key_of_every_family_has_a_type_and_a_range() -> None:
    assert {key for family in FAMILIES.values() for key in family.claimed} <= set(KINDS)


def test_mutated_configurations_become_specs_or_are_told_by_key() -> None:
    assert [found for mutant in mutants(SEED, 500) if (found := check(mutant)) is not None] == []


def test_mutated_configurations_beside_weights(tmp_path: Path) -> None:
    """The whole of reading a directory, for three of the families at a time."""
    chosen = [mutant for mutant in mutants(SEED + 1, 600) if mutant.family in ("gpt2", "t5", "qwen2_moe")]
    for mutant in chosen:
        if not (tmp_path / mutant.family).exists():
            stored(mutant.family, tmp_path / mutant.family)
            load(tmp_path / mutant.family, "cpu")
    assert [found for mutant in chosen if (found := check_stored(mutant, tmp_path / mutant.family))] == []


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("num_hidden_layers", 10_000, "num_hidden_layers must be an integer from 1 to 512, not 10000"),
        ("num_hidden_layers", 10**9, "num_hidden_layers must be an integer from 1 to 512, not 1000000000"),
        ("num_hidden_layers", 400, "its configuration says 400 layers (decoder), and its weights have 2"),
        ("num_attention_heads", 3, "n_heads is num_attention_heads"),
        ("hidden_size", "32", "hidden_size must be an integer from 1 to 1048576, not '32'"),
        ("rms_norm_eps", float("nan"), "rms_norm_eps must be a number above 0 to 1, not nan"),
        ("tie_word_embeddings", 1, "tie_word_embeddings must be true or false, not 1"),
        ("model_type", ["llama"], "model_type must be a string, not ['llama']"),
        ("architectures", "LlamaModel", "architectures must be a list of 0 to 64, each a string"),
        ("rope_scaling", {"rope_type": "yarn", "factor": "2"}, "rope_scaling.factor must be a number above 0"),
        ("rope_scaling", {"rope_type": "longrope", "short_factor": [1] * 5000}, "rope_scaling.short_factor must be"),
        ("quantization_config", {"bits": [4] * 10**5}, "the key 'quantization_config'"),
        ("pad_token_id", "x", "pad_token_id must be"),
        ("bad_words_ids", [[99]], "bad_words_ids is 99, and the model's vocabulary ends at 96"),
        ("qkv", [1], "qkv must be a JSON object"),
        ("qkv", {"spec": 3}, "qkv.spec must be a JSON object"),
    ],
)
def test_one_value_is_told_soon(tmp_path: Path, key: str, value: Any, said: str) -> None:
    config = {**stored("llama", tmp_path), key: value}
    if key == "rope_scaling":
        del config["rope_theta"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    began = time.monotonic()
    with pytest.raises(ValueError) as error:
        load(tmp_path, "cpu")
    assert said in str(error.value) and len(str(error.value)) < 1000
    assert time.monotonic() - began < 10
