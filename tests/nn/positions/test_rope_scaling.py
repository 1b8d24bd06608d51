"""Rotary scalings: the Hub's numbers, the papers' properties, and what a change of the rates within a sequence means."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from qkv.core.layout import Layout
from qkv.io.families import preset
from qkv.nn.models.build import build
from qkv.nn.models.transformer import TransformerModel
from qkv.nn.patterns.documents import document_lengths, document_numbers
from qkv.nn.positions.base import Widths
from qkv.nn.positions.rope_scaling import (
    NTK,
    DynamicNTK,
    LinearScaling,
    Llama3Scaling,
    LongRoPE,
    NoScaling,
    Scaling,
    Turn,
    YaRN,
)
from qkv.nn.positions.rotary import Rotary
from qkv.runs.inference.run import load

GOLDEN = json.loads(Path(__file__).with_name("scalings_golden.json").read_text(encoding="utf-8"))["cases"]
TURN = Turn(10000.0, 16)
WIDTHS = Widths(d_model=64, n_heads=4, d_head=16, max_positions=None)
LONG = LongRoPE(short_factor=(1.0,) * 8, long_factor=tuple(range(1, 9)), original_max_positions=6, factor=4.0)
CHANGING = [DynamicNTK(factor=2.0, original_max_positions=6), LONG]
STEADY = [
    NoScaling(),
    LinearScaling(factor=4.0),
    NTK(factor=4.0),
    YaRN(factor=4.0, original_max_positions=64),
    Llama3Scaling(factor=8.0, original_max_positions=64),
]


def rates(scaling: Scaling, turn: Turn = TURN, length: int = 1) -> Tensor:
    return scaling.rates(turn, None, torch.tensor([[length]])).flatten()


# -- the Hub's numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: f"{c['scaling']['kind']} {c['width']} at {c['length']}")
def test_the_hubs_rates_and_magnitudes(case: dict[str, Any]) -> None:
    """Numbers of `bench/.envs/huggingface/bin/python tests/nn/positions/make_scalings_golden.py`."""
    scaling, turn = Scaling.from_dict(case["scaling"]), Turn(case["base"], case["width"])
    scaling.check(turn)
    wanted = torch.tensor(case["rates"], dtype=torch.float64)
    torch.testing.assert_close(rates(scaling, turn, case["length"]).double(), wanted, rtol=1e-6, atol=0)
    assert scaling.magnitude() == pytest.approx(case["magnitude"], rel=1e-6)


# -- the papers' properties -----------------------------------------------------------------------------------------


def test_interpolation_puts_a_longer_context_where_the_shorter_was() -> None:
    stretched = Rotary(scaling=LinearScaling(factor=4.0)).module(WIDTHS).tables(Layout.full(40))
    plain = Rotary().module(WIDTHS).tables(Layout.full(10))
    assert stretched and plain
    for long, short in zip(stretched, plain, strict=True):
        torch.testing.assert_close(long[:, ::4], short)


@pytest.mark.parametrize("factor", [2.0, 8.0])
def test_ntk_slows_the_slowest_pair_by_the_factor_and_the_fastest_not(factor: float) -> None:
    slowed = rates(NTK(factor=factor)) / TURN.rates()
    assert slowed[0] == 1.0 and slowed[-1].item() == pytest.approx(1 / factor, rel=1e-5)
    assert (slowed.diff() < 0).all()


@pytest.mark.parametrize(
    "scaling", [YaRN(factor=4.0, original_max_positions=2048), Llama3Scaling(factor=4.0, original_max_positions=2048)]
)
def test_scalings_by_parts_keep_fast_pairs_and_interpolate_slow_ones(scaling: Scaling) -> None:
    turn = Turn(10000.0, 128)
    slowed, turns = rates(scaling, turn) / turn.rates(), turn.rates() * 2048 / (2 * math.pi)
    assert (slowed[turns > 33] == 1).all() and (slowed[turns < 0.9] - 0.25).abs().max() < 1e-6
    assert (slowed.diff() <= 1e-6).all() and ((slowed > 0.26) & (slowed < 0.99)).any()


def test_dynamic_ntk_is_ntk_of_as_much_as_the_length_needs() -> None:
    scaling = DynamicNTK(factor=1.0, original_max_positions=64)
    assert torch.equal(rates(scaling, length=64), TURN.rates())
    torch.testing.assert_close(rates(scaling, length=256), rates(NTK(factor=4.0)))


def test_a_magnitude_stretches_scores_by_its_square() -> None:
    plain, stretched = (Rotary(scaling=LONG.replace(attention_factor=f)).module(WIDTHS) for f in (1.0, 1.5))
    layout, q = Layout.full(4), torch.randn(1, 4, 2, 16)
    once, twice = (m.rotate(q, m.tables(layout)) for m in (plain, stretched))  # type: ignore[arg-type]
    torch.testing.assert_close(twice.square().sum(-1), 1.5**2 * once.square().sum(-1))


# -- rates that change with the length ------------------------------------------------------------------------------


def test_lengths_match_documents() -> None:
    assert document_numbers(Layout.full(5)) is None and document_lengths(Layout.full(5, start=3)).tolist() == [[8]]
    assert document_lengths(Layout.from_lengths([2, 4], side="left")).tolist() == [[2], [4]]
    packed = Layout.packed([[2, 3], [1, 1]], width=6)
    assert document_numbers(packed).tolist() == [[0, 0, 1, 1, 1, 2], [0, 1, 2, 2, 2, 2]]  # type: ignore[union-attr]
    assert document_lengths(packed)[packed.valid].tolist() == [2, 2, 3, 3, 3, 1, 1]


@pytest.mark.parametrize("scaling", CHANGING, ids=lambda s: s.kind)
def test_no_row_or_document_depends_on_its_neighbor(scaling: Scaling) -> None:
    module = Rotary(scaling=scaling).module(WIDTHS)
    alone = [module.tables(Layout.full(n)) for n in (3, 9)]
    padded = module.tables(Layout.from_lengths([3, 9]))
    packed = module.tables(Layout.packed([[3, 9]]))
    for i in (0, 1):
        assert torch.equal(padded[i][0, :3], alone[0][i][0]) and torch.equal(padded[i][1], alone[1][i][0])  # type: ignore[index]
        assert torch.equal(packed[i][0], torch.cat([alone[0][i][0], alone[1][i][0]]))  # type: ignore[index]


def model(scaling: Scaling) -> TransformerModel:
    rotary = Rotary(scaling=scaling)
    spec = preset(
        "llama", vocab_size=11, d_model=32, n_layers=2, n_heads=2, d_ff=24, max_positions=None, position=rotary
    )
    built = build(spec, dtype=torch.float64).eval()
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return built


@torch.no_grad()
def apart(built: TransformerModel, tokens: int, prompt: int) -> float:
    """How far the last logits of cached decoding are from one whole pass."""
    ids = torch.randint(11, (1, tokens), generator=torch.Generator().manual_seed(0))
    cache = built.start(1)
    built.step(ids[:, :prompt], cache)
    for t in range(prompt, tokens):
        last = built.step(ids[:, t : t + 1], cache)
    return float((last - built(ids)[:, -1]).abs().max())


@pytest.mark.parametrize("scaling", STEADY, ids=lambda s: s.kind)
def test_steady_rates_decode_as_one_pass(scaling: Scaling) -> None:
    assert apart(model(scaling), 12, 2) < 1e-9


@pytest.mark.parametrize("scaling", CHANGING, ids=lambda s: s.kind)
def test_changing_rates_decode_as_one_pass_until_they_change(scaling: Scaling) -> None:
    built = model(scaling)
    assert apart(built, 6, 2) < 1e-9
    assert apart(built, 12, 2) > 1e-3, "keys fed before the change keep the rates they were turned by, as in the Hub"


def test_longrope_decodes_as_one_pass_when_the_prompt_is_long_already() -> None:
    assert apart(model(LONG), 12, 7) < 1e-9


# -- values ---------------------------------------------------------------------------------------------------------


def test_scalings_are_values_of_the_rotary_spec() -> None:
    spec = Rotary.from_dict({"kind": "rotary", "scaling": {"kind": "yarn", "factor": 4, "original_max_positions": 64}})
    assert spec == Rotary(scaling=YaRN(factor=4.0, original_max_positions=64))
    assert Rotary.from_json(spec.to_json()) == spec and Rotary().scaling == NoScaling()
    assert Rotary(fraction=0.5, scaling=NTK(factor=2.0)).module(WIDTHS).tables(Layout.full(3))[0].shape[-1] == 4  # type: ignore[index]


@pytest.mark.parametrize(
    "given, said",
    [
        ({"kind": "linear", "factor": 0}, "scaling.factor: input should be greater than 0, not 0"),
        ({"kind": "yran", "factor": 2}, "there is no scaling 'yran'; did you mean 'yarn'"),
        ({"kind": "yarn", "factor": 2}, "scaling.original_max_positions"),
        ({**YaRN(factor=2.0, original_max_positions=8).to_dict(), "beta_fast": 0.5}, "at least beta_slow=1"),
        (
            {**Llama3Scaling(factor=2.0, original_max_positions=8).to_dict(), "high_freq_factor": 1},
            "has to be above low",
        ),
    ],
)
def test_wrong_values_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Rotary.from_dict({"scaling": given})


@pytest.mark.parametrize("scaling", [NTK(factor=2.0), DynamicNTK(factor=2.0, original_max_positions=4)])
def test_one_pair_has_no_base_to_change(scaling: Scaling) -> None:
    with pytest.raises(ValueError, match="needs at least 4 rotated coordinates, not 2"):
        Rotary(scaling=scaling).module(WIDTHS._replace(d_head=2))


def test_longrope_has_a_factor_for_each_pair() -> None:
    with pytest.raises(ValueError, match="short_factor has to be 16 numbers above 0, one for each pair of the 32"):
        Rotary(scaling=LONG).module(WIDTHS._replace(d_head=32))


def test_dynamic_ntk_reads_past_the_context_as_transformers_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=12,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1000.0, "factor": 2.0},
    )
    theirs = LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path, "cpu").model
    assert ours.spec.max_positions == 12 and ours.max_positions is None
    with torch.no_grad():
        for length in (8, 12, 13, 30):
            x = torch.randint(40, (1, length))
            torch.testing.assert_close(ours(x), theirs(x).logits, atol=1e-5, rtol=1e-4)
        x = torch.randint(40, (1, 10))
        expected = theirs.generate(x, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0)
        assert ours.generate(x, max_new_tokens=12).tolist() == expected.tolist()
        kept = load(tmp_path, "cpu")
        kept.save(tmp_path / "again", to="hub")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["max_position_embeddings"] == 12
