"""The language model that comes with the package: what it is made of, what it writes, what its heads do."""

from __future__ import annotations

import json
import re
import socket
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import qkv
from qkv.io.directories.locate import SHIPPED, SMALL_ENGLISH
from qkv.look.analysis.head_scores import head_scores
from qkv.nn.models.quantized.dequantize import dequantize
from qkv.nn.models.transformer import TransformerModel
from qkv.runs.inference.run import Run

FOLDER = SHIPPED / SMALL_ENGLISH
PASSAGE = (
    "The old man opened the door and looked out into the garden. It had been raining all night, and the grass was wet. "
    '"I will go down to the village," he said to his wife, "and ask the doctor to come back with me." She did not '
    "answer, but she put her hand upon his arm, and they stood together for a long time in the grey light of the morning."
)
"""Written for this test, so no book has it."""


@pytest.fixture(scope="module")
def run() -> Run:
    return qkv.load(SMALL_ENGLISH, "cpu")


def test_it_is_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 3_000_000


def test_its_card_and_its_recipe_say_its_size(run: Run):
    count, size = run.model.spec.n_parameters, sum(path.stat().st_size for path in FOLDER.iterdir())
    card, recipe = ((FOLDER / name).read_text(encoding="utf-8") for name in ("README.md", "training.yaml"))
    assert (
        f"{count:,} parameters, {size / 1e6:.1f} MB" in card
        and f"a Llama of {count / 1e6:.1f} million weights" in recipe
    )


def test_it_loads_and_writes_without_a_network(monkeypatch: pytest.MonkeyPatch):
    def refuse(*arguments: Any) -> None:
        raise AssertionError("it reaches for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    run = qkv.load(SMALL_ENGLISH, "cpu")
    assert run.name == SMALL_ENGLISH and run.task == "continue"
    assert run.generate("The king", max_new_tokens=4, seed=0)


def test_its_continuation_is_english(run: Run):
    written = run.generate('"What is the matter?" said', do_sample=False, max_new_tokens=16)
    assert written == ' the man, with a pause, "I am not afraid of it.'


def whole(run: Run) -> TransformerModel:
    """The model with the weights that its codes stand for."""
    model = deepcopy(run.model)
    dequantize(model)
    assert isinstance(model, TransformerModel)
    return model


def test_its_perplexity_more_than_doubles_if_words_are_shuffled(run: Run):
    score = run.score(PASSAGE)
    assert score.perplexity == pytest.approx(20.64, rel=0.01)
    shuffled = " ".join(sorted(PASSAGE.split()))
    assert run.score(shuffled).perplexity > 2 * score.perplexity


def stored() -> dict[str, Tensor]:
    """The weights in the file, codes times scales."""
    tensors = load_file(FOLDER / "model.safetensors")
    scale = {name: tensors.pop(f"{name}_scale", None) for name in list(tensors) if f"{name}_scale" in tensors}
    return {name: t if scale.get(name) is None else t.float() * scale[name] for name, t in tensors.items()}


def test_it_computes_what_its_codes_stand_for(run: Run):
    """Products of integers, and of the weights that they stand for, are equal up to the rounding of fp32."""
    ids = torch.tensor([run.encode(PASSAGE)])
    plain, weights = whole(run), stored()
    assert all(torch.equal(value, weights[name]) for name, value in plain.state_dict().items() if name in weights)
    with torch.no_grad():
        ours, theirs = run.model(ids), plain(ids)
    assert (ours - theirs).norm() / theirs.norm() < 1e-5


NAMES = {
    r"decoder\.embedding\.": "model.embed_tokens.",
    r"decoder\.blocks\.": "model.layers.",
    r"\.norm\.attention\.": ".input_layernorm.",
    r"\.norm\.feedforward\.": ".post_attention_layernorm.",
    r"\.attention\.([qkv])\.": r".self_attn.\1_proj.",
    r"\.attention\.out\.": ".self_attn.o_proj.",
    r"\.feedforward\.(\w+)\.": r".mlp.\1_proj.",
    r"decoder\.norm\.": "model.norm.",
}


@pytest.mark.slow
def test_transformers_computes_the_same_logits_from_the_file(run: Run):
    from transformers import LlamaConfig, LlamaForCausalLM

    spec = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))["qkv"]
    block = spec["decoder"]["blocks"][0]
    attention = block["block"]["attention"]
    config = LlamaConfig(
        vocab_size=spec["vocab_size"],
        hidden_size=spec["d_model"],
        num_hidden_layers=block["repeat"],
        num_attention_heads=attention["n_heads"],
        num_key_value_heads=attention["n_kv_heads"],
        intermediate_size=block["block"]["feedforward"]["d_ff"],
        max_position_embeddings=spec["max_positions"],
        rms_norm_eps=spec["decoder"]["norm"]["eps"],
        tie_word_embeddings=True,
    )
    weights = {}
    for name, value in stored().items():
        for pattern, other in NAMES.items():
            name = re.sub(pattern, other, name)
        weights[name] = value
    theirs = LlamaForCausalLM(config).eval()
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    theirs.tie_weights()
    ids = torch.tensor([run.encode(PASSAGE)])
    with torch.no_grad():
        wanted, ours = theirs(ids).logits, run.model(ids)
    assert (ours - wanted).norm() / wanted.norm() < 1e-5


def test_the_heads_that_the_tour_names(run: Run):
    """Head 0 of layer 1 looks at the token before, and head 2 at the first one."""
    ids = torch.tensor([run.encode("A tired dog slept beside the warm fire.")])
    scores = {f"{s.name.split('.')[2]}.{s.head}": s for s in head_scores(run.model, ids)}
    assert scores["1.0"].previous == max(s.previous for s in scores.values()) > 0.5
    assert scores["1.2"].sink == max(s.sink for s in scores.values()) > 0.8


def test_the_card_says_what_is_there(run: Run):
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"{sum(p.numel() for p in whole(run).parameters()):,} parameters" in card
    assert "Apache-2.0" in card and "Limits" in card and "{" not in card
    recipe = (FOLDER / "training.yaml").read_text(encoding="utf-8")
    assert recipe == (Path(__file__).parents[3] / "bench" / "small_english.yaml").read_text(encoding="utf-8")
