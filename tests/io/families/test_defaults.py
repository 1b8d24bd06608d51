"""What a configuration leaves out means what it means to `transformers`: every family, every class, every field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import qkv
from qkv.io.families import FAMILIES
from qkv.io.hub.family import difference

# Their defaults are pictures of 7 × 7 or 14 × 14 patches, of which 2 × 2 can't be joined, or 256 tokens made: such a model
# reads no picture.
NEEDED = {key: {"vision_config": {"image_size": 256}} for key in ("idefics3", "smolvlm", "gemma3")}
# And their vision and text have other widths.
NEEDED |= {
    "qwen2_5_vl": {"vision_config": {"out_hidden_size": 8192}},
    "qwen2_vl": {"vision_config": {"hidden_size": 8192}},
    "qwen3_vl": {"vision_config": {"out_hidden_size": 4096}},
    "qwen3_vl_moe": {"vision_config": {"out_hidden_size": 2048}},
}
NEEDED["esm"] = {"vocab_size": 33, "pad_token_id": 1}  # null by default, with which transformers makes no model
THEIRS = [model_type for model_type in FAMILIES if model_type in CONFIG_MAPPING]


@pytest.mark.parametrize("model_type", THEIRS)
def test_an_empty_configuration_is_the_one_with_their_defaults_written_out(model_type: str) -> None:
    given = NEEDED.get(model_type, {})
    family, written = FAMILIES[model_type], CONFIG_MAPPING[model_type](**given).to_dict()
    for name in family.classes:
        ours, theirs = family.spec(given, name), family.spec(written, name)
        assert difference(theirs, ours, beside=frozenset()) == {}, name


def test_all_but_our_own_families_are_theirs() -> None:
    assert len(THEIRS) >= 28 and set(FAMILIES) - set(THEIRS) <= {"segmenter"}


@pytest.mark.parametrize("edit", [{"dense_act_fn": "gelu"}, {"feed_forward_proj": "silu"}])
@torch.no_grad()
def test_t5_computes_the_activation_that_transformers_reads(edit: dict[str, str], tmp_path: Path) -> None:
    """`dense_act_fn`, which transformers writes, replaces the activation in `feed_forward_proj`."""
    torch.manual_seed(2)
    sizes = {"vocab_size": 40, "d_model": 16, "d_ff": 24, "num_layers": 1, "num_heads": 2, "d_kv": 8}
    transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).eval()
    ids = torch.arange(3, 12)[None]
    ours = qkv.load(tmp_path, device="cpu").model(ids, ids[:, :4])
    torch.testing.assert_close(ours, theirs(ids, decoder_input_ids=ids[:, :4]).logits, rtol=1e-4, atol=1e-4)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dense_act_fn": "tanh"}))
    with pytest.raises(ValueError, match="dense_act_fn 'tanh' and is_gated_act False is not built"):
        qkv.load(tmp_path, device="cpu")
