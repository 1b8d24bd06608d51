"""Graphs before they are traced compute what their model computes, and have the names of optimum."""

from __future__ import annotations

import pytest
import torch
from onnx_models import of_preset

from qkv.runs.export.attention import by_fused_function, by_products
from qkv.runs.export.graphs import graphs_of

MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
IDS = torch.arange(10).view(2, 5)


@pytest.mark.parametrize("attend", [by_products, by_fused_function])
@torch.no_grad()
def test_a_decoder_continues_from_the_states_of_the_pass_before(attend: object) -> None:
    model = of_preset("llama", n_kv_heads=2, d_ff=48)
    (graph,) = graphs_of(model, attend)  # type: ignore[arg-type]
    assert list(graph.inputs)[:3] == ["input_ids", "attention_mask", "position_ids"]
    assert list(graph.outputs)[:3] == ["logits", "present.0.key", "present.0.value"]
    expected, positions = model(IDS, attention_mask=MASK), (MASK.cumsum(1) - 1).clamp(min=0)
    past = [x[:, :, :0] for x, _ in list(graph.inputs.values())[3:]]
    first, *past = graph.module([IDS[:, :3], MASK[:, :3], positions[:, :3], *past])
    second, *_ = graph.module([IDS[:, 3:], MASK, positions[:, 3:], *past])
    real = MASK.bool()
    torch.testing.assert_close(torch.cat([first, second], 1)[real], expected[real], atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_an_encoder_decoder_has_three_graphs() -> None:
    model = of_preset("t5-small", d_ff=48, d_head=8)
    source, begin, step = graphs_of(model, by_products)
    assert [one.name for one in (source, begin, step)] == ["encoder_model", "decoder_model", "decoder_with_past_model"]
    target = torch.tensor([[0, 3, 7], [0, 9, 2]])
    expected = model(IDS, target, attention_mask=MASK.flip(1))
    (memory,) = source.module([IDS, MASK.flip(1)])
    first, *present = begin.module([target[:, :2], memory, MASK.flip(1)])
    given = dict(zip(list(begin.outputs)[1:], present, strict=True))
    past = [given[name.replace("past_key_values", "present")] for name in step.inputs if name.startswith("past")]
    last, *_ = step.module([target[:, 2:], MASK.flip(1), *past])
    torch.testing.assert_close(torch.cat([first, last], 1), expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_an_encoder_gives_the_outputs_of_its_head() -> None:
    model = of_preset("bert-base", d_ff=48, max_positions=32)
    (graph,) = graphs_of(model, by_products)
    types = torch.tensor([[0, 0, 0, 1, 1]]).expand(2, -1)
    found = graph.module([IDS, MASK.flip(1), types])
    assert len(found) == len(graph.outputs)
    expected = model(IDS, attention_mask=MASK.flip(1), token_types=types)
    real = MASK.flip(1).bool()
    torch.testing.assert_close(found[0][real], expected[real], atol=1e-5, rtol=1e-4)
