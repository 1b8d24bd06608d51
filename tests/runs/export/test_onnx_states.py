"""ONNX graphs of mixtures of experts, of layers whose state has a fixed size, and of recurrent models give qkv's tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx_loop import continued, greedy, nothing, renamed, run, session, translated, translated_recurrently

import qkv
from qkv.generation import generate
from qkv.generation.sampling import Temperature, TopK, Uniforms, draw, row_seed
from qkv.runs.export import onnx
from qkv.runs.inference.run import Run

PROMPTS = [[7, 3, 11, 40, 2], [5, 9], [1, 2, 3, 4]]
SIZES: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 60}
ATTENTION, FEEDFORWARD = "decoder.blocks.*.attention", "decoder.blocks.*.feedforward"
FIRST = "decoder.blocks.0.attention"
MOE = {"kind": "moe", "n_experts": 4, "d_ff": 24}
SHARED = {"kind": "feedforward", "d_ff": 24, "activation": "silu", "gated": True, "bias": False}
LINEAR = {"kind": "linear-attention", "n_heads": 4, "pattern": "causal"}
PERFORMER = {"kind": "performer", "n_heads": 4, "pattern": "causal", "features": {"kind": "favor", "n_features": 16}}
CONVOLUTION = {"kind": "convolution", "kernel": 3, "pattern": "causal"}

DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixture": ("gpt2", {FEEDFORWARD: MOE}),
    "mixture: one expert of each token": ("gpt2", {FEEDFORWARD: {**MOE, "top_k": 1, "gated": False}}),
    "mixture: sigmoids, a bias, a shared layer with a gate": (
        "llama",
        {FEEDFORWARD: {**MOE, "score": "sigmoid", "bias_rate": 0.01, "shared": SHARED, "shared_gate": True}},
    ),
    "linear attention": ("gpt2", {ATTENTION: LINEAR}),
    "linear attention: fewer key-value heads": ("llama", {ATTENTION: {**LINEAR, "n_kv_heads": 2}}),
    "performer": ("gpt2", {ATTENTION: PERFORMER}),
    "convolutions": ("gpt2", {ATTENTION: {**CONVOLUTION, "gated": True}}),
    "convolution before attention": ("llama", {FIRST: {**CONVOLUTION, "dilation": 2}}),
    "linear attention and a mixture": ("llama", {FIRST: LINEAR, FEEDFORWARD: MOE}),
    "bytenet": ("bytenet", {}),
}


def built(name: str, changes: dict[str, Any], **sizes: Any) -> Any:
    if name == "bytenet":
        wanted: dict[str, Any] = {"d_model": 32, "n_layers": 3, "vocab_size": 60}
    else:
        wanted = {**SIZES, **({"d_ff": 48} if name == "llama" else {}), "max_positions": 64}
    spec = qkv.preset(name, **{**wanted, **sizes}).replace(changes)  # type: ignore[call-overload]
    return qkv.build(spec, seed=5).eval()


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.slow
def test_exported_decoders_with_states_generate_the_same_tokens(name: str, tmp_path: Path) -> None:
    model = built(*DECODERS[name])
    assert onnx.to_onnx(Run(model, None), tmp_path / "out").error < 1e-4
    wanted = [row[0] for row in generate(model, PROMPTS, max_new_tokens=12).sequences]
    assert continued(tmp_path / "out", PROMPTS, 12) == wanted
    alone = [row[0] for row in generate(model, PROMPTS[:1], max_new_tokens=3).sequences]
    assert continued(tmp_path / "out", PROMPTS[:1], 3) == alone


@pytest.mark.slow
def test_mixture_from_the_command_line(tmp_path: Path) -> None:
    """Greedy and sampled tokens, and logits of padded rows."""
    from qkv.cli import main

    model = built(*DECODERS["mixture"], n_layers=1)
    folder = Run(model, None, task="continue").save(tmp_path / "run", to="qkv")
    assert main(["convert", str(folder), str(tmp_path / "out"), "--to", "onnx"]) == 0
    wanted = [row[0] for row in generate(model, PROMPTS, max_new_tokens=12).sequences]
    assert continued(tmp_path / "out", PROMPTS, 12) == wanted
    seeds = [row_seed(3, i) for i in range(len(PROMPTS))]
    options: dict[str, Any] = {"temperature": 0.8, "top_k": 20, "max_new_tokens": 12}
    wanted = [row[0] for row in generate(model, PROMPTS, seeds=seeds, **options).sequences]
    uniforms = Uniforms([row_seed(seed, 0) for seed in seeds], torch.device("cpu"))

    def choose(logits: Any) -> Any:
        chosen = Temperature(0.8)(torch.empty(0), torch.from_numpy(logits))
        return draw(TopK(20)(torch.empty(0), chosen), uniforms.draw()).numpy()

    assert continued(tmp_path / "out", PROMPTS, 12, choose) == wanted
    ids, mask = torch.tensor([PROMPTS[0], [0, 0, 0, 5, 9]]), torch.tensor([[1] * 5, [0, 0, 0, 1, 1]])
    graph = session(tmp_path / "out")
    feed = {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    past = {one.name: nothing(2, one) for one in graph.get_inputs()[3:]}
    got = run(graph, {name: x.numpy() for name, x in feed.items()} | past)["logits"]
    wanted_logits = model(ids, attention_mask=mask).detach().numpy()
    real = mask.numpy().astype(bool)
    np.testing.assert_allclose(got[real], wanted_logits[real], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_mixture_multiplies_the_tokens_of_each_expert_only(tmp_path: Path) -> None:
    """An expert that no token chooses leaves no trace, even if its weights are no numbers: 0 · NaN would be seen."""
    model = built(*DECODERS["mixture: sigmoids, a bias, a shared layer with a gate"])
    for block in model.decoder.blocks:
        with torch.no_grad():
            block.feedforward.router.bias[3] = -100
            block.feedforward.up.weight[3] = float("nan")
    onnx.to_onnx(Run(model, None), tmp_path / "out")
    wanted = [row[0] for row in generate(model, PROMPTS, max_new_tokens=5).sequences]
    assert continued(tmp_path / "out", PROMPTS, 5) == wanted


@pytest.mark.slow
def test_names_and_sizes_of_states(tmp_path: Path) -> None:
    model = built("gpt2", {FIRST: PERFORMER, "decoder.blocks.1.attention": CONVOLUTION})
    onnx.to_onnx(Run(model, None), tmp_path / "out")
    shapes = {one.name: one.shape[1:] for one in session(tmp_path / "out").get_inputs()[3:]}
    expected = {"0.sums": [4, 16, 9], "0.top": [4], "1.inputs": [2, 32]}
    assert shapes == {f"past_key_values.{name}": sizes for name, sizes in expected.items()}


@pytest.mark.slow
def test_a_prompt_in_portions(tmp_path: Path) -> None:
    """A long prompt may be fed in several passes: the state continues."""
    model = built(*DECODERS["performer"])
    onnx.to_onnx(Run(model, None), tmp_path / "out")
    graph, ids = session(tmp_path / "out"), np.arange(3, 43)[None] % 60
    past, parts = {one.name: nothing(1, one) for one in graph.get_inputs()[3:]}, []
    for begin, end in ((0, 17), (17, 18), (18, 40)):
        feed = {"input_ids": ids[:, begin:end], "attention_mask": np.ones((1, end), np.int64)}
        out = run(graph, {**feed, "position_ids": np.arange(begin, end)[None], **past})
        parts.append(out.pop("logits"))
        past = renamed(out)
    wanted = model(torch.from_numpy(ids)).detach().numpy()
    np.testing.assert_allclose(np.concatenate(parts, 1), wanted, rtol=1e-4, atol=1e-5)


ENCODERS = {
    "mixture": {"encoder.blocks.*.feedforward": MOE},
    "linear attention": {"encoder.blocks.*.attention": {"kind": "linear-attention", "n_heads": 4}},
    "performer": {"encoder.blocks.*.attention": {**PERFORMER, "pattern": "full"}},
    "convolution": {"encoder.blocks.*.attention": {"kind": "convolution", "kernel": 3}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS)
def test_exported_encoders_give_the_same_outputs(name: str, tmp_path: Path) -> None:
    spec = qkv.preset("bert-base", **SIZES, d_ff=48, max_positions=32)
    model = qkv.build(spec.replace({**ENCODERS[name], "head": None, "classification_head": None}), seed=5).eval()
    assert onnx.to_onnx(Run(model, None), tmp_path / "out").error < 1e-4
    ids, mask = torch.randint(60, (3, 6)), (torch.arange(6) < torch.tensor([[6], [2], [4]])).long()
    feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.randint(2, (3, 6))}
    (got,) = run(session(tmp_path / "out"), {name: x.numpy() for name, x in feed.items()}).values()
    wanted = model(ids, attention_mask=mask, token_types=feed["token_type_ids"]).detach().numpy()
    real = mask.numpy().astype(bool)
    np.testing.assert_allclose(got[real], wanted[real], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convs2s", "t5-small: mixtures", "t5-small: linear attention"])
def test_exported_encoder_decoders_with_states_generate_the_same_tokens(name: str, tmp_path: Path) -> None:
    preset, _, what = name.partition(": ")
    changes: dict[str, Any] = {}
    if what == "mixtures":
        changes = {"decoder.blocks.*.feedforward": MOE, "encoder.blocks.*.feedforward": MOE}
    if what == "linear attention":
        changes = {"decoder.blocks.*.attention": LINEAR, "decoder.position": "none"}
    sizes = {"d_head": 8, "d_ff": 48} if preset == "t5-small" else {"max_positions": 64}
    spec = qkv.preset(preset, **SIZES, **sizes).replace(changes)  # type: ignore[call-overload]
    model = qkv.build(spec, seed=5).eval()
    assert onnx.to_onnx(Run(model, None), tmp_path / "out").error < 1e-4
    source, mask = torch.randint(60, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
    mask[1, 4:] = 0
    made = generate(model, source, attention_mask=mask, bos_id=0, max_new_tokens=8).sequences
    assert translated(tmp_path / "out", source.numpy(), mask.numpy(), 0, 8) == [row[0] for row in made]


CONTEXTS: dict[str, dict[str, Any]] = {
    "bahdanau": {"context": {"kind": "bahdanau"}},
    "bahdanau: two layers of LSTM": {"context": {"kind": "bahdanau"}, "cell": "lstm", "decoder_layers": 2},
    "luong": {"context": {"kind": "luong"}, "encoder_layers": 2},
    "luong: plain RNN without feeding": {"context": {"kind": "luong", "feeding": False}, "cell": "rnn"},
    "luong: monotonic": {"context": {"kind": "luong", "alignment": "monotonic", "reach": 2}},
    "luong: predictive": {"context": {"kind": "luong", "alignment": "predictive", "reach": 2}, "cell": "lstm"},
    "luong: location": {"context": {"kind": "luong", "alignment": "location", "longest": 6}},
    "final state": {"context": {"kind": "final-state"}, "cell": "lstm", "directions": 1, "encoder_layers": 2,
                    "decoder_layers": 2, "reverse": True},
    "final state through a bridge": {"context": {"kind": "final-state"}, "decoder_cell": "lstm"},
    "fixed context": {"context": {"kind": "fixed-context"}},
}  # fmt: skip


def recurrent(name: str) -> Any:
    """A recurrent model with weights that are large enough for tokens to differ."""
    spec = qkv.preset("rnnsearch", vocab_size=60, d_e=12, d_h=10, d_s=10)
    model = qkv.build(spec.replace(CONTEXTS[name]), seed=5).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n != "luong: plain RNN without feeding" else []) for n in CONTEXTS],
)
def test_recurrent_models(name: str, tmp_path: Path) -> None:
    model = recurrent(name)
    exported = onnx.to_onnx(Run(model, None), tmp_path / "out")
    assert exported.graphs == ("encoder_model", "decoder_model") and exported.error < 1e-4
    source = torch.randint(60, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(source)
    mask[1, 4:], mask[2, :3] = 0, 0
    made = generate(model, source, attention_mask=mask, bos_id=0, max_new_tokens=8).sequences
    wanted = [row[0] for row in made]
    assert len({tuple(row) for row in wanted}) > 1
    assert translated_recurrently(tmp_path / "out", source.numpy(), mask.numpy(), 0, 8, greedy) == wanted
