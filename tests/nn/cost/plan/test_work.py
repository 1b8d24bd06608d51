"""The work of a model that several ranks share."""

from __future__ import annotations

from qkv.nn.cost.plan.layout import RankLayout, check
from qkv.nn.cost.plan.work import work
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
