"""The work of a model that several ranks share."""

from __future__ import annotations

import pytest
from torch import Tensor

import qkv
from qkv.nn.cost.plan.layout import RankLayout, check, check_model
from qkv.nn.cost.plan.work import work
from qkv.nn.positions.absolute import NoPosition
from qkv.nn.positions.base import Position, PositionModule, Tables, Widths
from qkv.nn.positions.bias import ALiBi
from qkv.nn.positions.rotary import Rotary
from qkv.nn.positions.xpos import XPos
from qkv.runs.planning.published_models import spec_of


def test_key_value_heads_that_several_ranks_have_count_on_each_of_them() -> None:
    spec = spec_of("llama-3-8b", {"n_layers": 2}).replace({"decoder.blocks.*.attention.n_kv_heads": 2})
    model = work("llama", spec, 1024)
    layer, many = model.kinds[0], model.over(8).kinds[0]
    of_a_head = 2 * layer.d_model * layer.d_head  # numbers of its key and value matrices
    assert layer.kv_heads == 2 and model.over(2) is model
    assert many.kv_heads == 8
    assert many.divided / 8 == (layer.divided - 2 * of_a_head) / 8 + of_a_head
    assert many.mixing - layer.mixing == 2 * 1024 * 6 * of_a_head
    check(RankLayout(tensor=8), model, 8, 1)


class TurnOnce(PositionModule):
    def rotate_queries(self, q: Tensor, tables: Tables) -> Tensor:
        return -q


class Turned(Position, kind="turned"):
    """A scheme from outside that changes queries, and says so nowhere else."""

    def module(self, widths: Widths) -> PositionModule:
        return TurnOnce()


@pytest.mark.parametrize(
    ("position", "turns"), [(Rotary(), True), (XPos(), True), (Turned(), True), (ALiBi(), False), (NoPosition(), False)]
)
def test_what_turns_queries_is_known_from_what_a_scheme_does(position: Position, turns: bool) -> None:
    spec = qkv.preset("gpt2", n_layers=2, d_model=32, n_heads=4, vocab_size=50)
    model = work("one", spec.replace({"decoder.position": position}), 16)
    assert [layer.rotary for layer in model.layers] == [turns] * 2


def test_layers_without_positions_in_a_rotary_stack_turn_nothing() -> None:
    spec = qkv.preset("gpt2", n_layers=2, d_model=32, n_heads=4, vocab_size=50)
    spec = spec.replace({"decoder.position": Rotary(), "decoder.blocks.1.position": NoPosition()})
    assert [layer.rotary for layer in work("one", spec, 16).layers] == [True, False]


def test_tokens_of_two_towers_can_be_divided_but_not_their_layers_into_stages() -> None:
    spec = qkv.preset("clip")
    model = work("towers", spec, 8)
    assert model.parameters == spec.cost().parameters
    assert len(model.layers) == spec.image.n_layers + spec.text.n_layers
    assert model.tokens == spec.image_tokens + 8
    for axis in ("tensor", "context"):
        check_model(RankLayout(**{axis: 2}), model)
    with pytest.raises(ValueError, match=r"scale\.pipeline .* dual-encoder"):
        check_model(RankLayout(pipeline=2), model)
