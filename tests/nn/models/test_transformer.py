"""The Transformer: what it computes, what it refuses, how it decodes, and that shared tables stay shared."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.io.families import preset
from qkv.nn.models.build import build
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.nn.models.transformer import Transformer, TransformerModel

V = 29
SIZES: dict[str, Any] = {"vocab_size": V, "d_model": 16, "n_layers": 2, "n_heads": 4}


def gpt(**options: Any) -> Transformer:
    return preset("gpt2", **{**SIZES, "max_positions": 12, **options})


def seq2seq(**options: Any) -> Transformer:
    return preset("transformer", **{**SIZES, "d_ff": 24, **options})


def bert() -> Transformer:
    spec = gpt().replace({"decoder.blocks.*.attention.pattern": "full", "decoder.embedding.token_types": 2})
    pooler = SequenceClassifier(labels=None)
    return spec.replace({"encoder": spec.decoder, "decoder": None, "classification_head": pooler, "head.bias": True})


def shaken(spec: Transformer, **options: Any) -> TransformerModel:
    """Built with weights large enough that every part shows."""
    model = build(spec, **options).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def ids(*shape: int) -> Tensor:
    return torch.randint(V, shape)


# -- what it computes --------------------------------------------------------------------------------------------------


def test_a_decoder_sees_the_past_only() -> None:
    model, x = shaken(gpt()), ids(2, 8)
    changed = x.clone()
    changed[:, 5] = (changed[:, 5] + 1) % V
    a, b = model(x), model(changed)
    assert a.shape == (2, 8, V)
    torch.testing.assert_close(a[:, :5], b[:, :5])
    assert not torch.isclose(a[:, 5:], b[:, 5:]).all(-1).any()


def test_an_encoder_decoder_sees_the_whole_source_and_the_targets_past() -> None:
    model, x, y = shaken(seq2seq()), ids(2, 6), ids(2, 5)
    out = model(x, y)
    assert out.shape == (2, 5, V)
    for place in (0, 5):
        source = x.clone()
        source[:, place] = (source[:, place] + 1) % V
        assert not torch.isclose(model(source, y), out).all(-1).any()
    target = y.clone()
    target[:, 3] = (target[:, 3] + 1) % V
    torch.testing.assert_close(model(x, target)[:, :3], out[:, :3])


def test_an_encoder_is_bidirectional_and_pools() -> None:
    model, x = shaken(bert()), ids(2, 6)
    changed = x.clone()
    changed[:, 5] = (changed[:, 5] + 1) % V
    assert not torch.isclose(model(x)[:, 0], model(changed)[:, 0]).all()
    types = torch.tensor([[0, 0, 0, 1, 1, 1]]).expand(2, 6)
    assert not torch.allclose(model.hidden(x, token_types=types), model.hidden(x))
    hidden, pooled = model.hidden(x), model.pooled(x)
    dense = model.classification_head.dense  # type: ignore[union-attr]
    torch.testing.assert_close(pooled, torch.tanh(dense(hidden[:, 0])))  # type: ignore[misc, operator]
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    torch.testing.assert_close(model.pooled(x, attention_mask=mask)[:1], model.pooled(x[:1, 2:]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("make", [gpt, bert])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_row_is_what_it_is_alone(make: Any, side: str) -> None:
    model, x, layout = shaken(make()), ids(2, 7), Layout.from_lengths([4, 7], side=side)  # type: ignore[arg-type]
    out = model(x, layout=layout)
    real = slice(3, 7) if side == "left" else slice(0, 4)
    torch.testing.assert_close(out[:1, real], model(x[:1, real]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model(x, attention_mask=layout.valid), out)


@pytest.mark.parametrize("fused", [True, False])
def test_labels_give_the_sums_of_the_logits_loss(fused: bool) -> None:
    model, x = shaken(gpt().replace({"head.fused": fused}), dtype=torch.float64), ids(2, 6)
    labels = x.roll(-1, 1)
    labels[:, -1] = -100
    sums = model(x, labels=labels, label_smoothing=0.1)
    log_p = model(x).log_softmax(-1)[:, :-1]
    nll = -log_p.gather(-1, labels[:, :-1, None]).sum()
    torch.testing.assert_close(sums.nll, nll)
    torch.testing.assert_close(sums.loss, 0.9 * nll - 0.1 * log_p.mean(-1).sum())


def test_each_dropout_acts_in_training_and_none_in_evaluation() -> None:
    paths = ["decoder.embedding.dropout", *(f"decoder.blocks.*.{p}.dropout" for p in ("attention", "feedforward"))]
    x = ids(1, 6)
    for path in [*paths, "decoder.blocks.*.dropout"]:
        model = shaken(gpt(dropout=0.0).replace({path: 0.5}))
        assert torch.equal(model(x), model(x)), path
        model.train()
        assert not torch.equal(model(x), model(x)), path
    still = shaken(gpt(dropout=0.0)).train()
    assert torch.equal(still(x), still(x))


@pytest.mark.parametrize(
    "path", ["decoder.blocks.*.attention", "decoder.blocks.*.feedforward", "decoder.blocks.*.norm", "decoder.position"]
)
def test_every_part_has_an_off_value_that_runs_and_differs(path: str) -> None:
    spec, x = gpt(), ids(1, 6)
    off = spec.replace({path: "none"})
    assert off.n_parameters < spec.n_parameters
    model = build(off, seed=1)
    model(x, labels=x).loss.backward()
    assert not torch.allclose(model.eval()(x), build(spec, seed=1).eval()(x), atol=1e-4)


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"decoder": None}, "a Transformer needs an encoder, a decoder or both"),
        ({"max_positions": None}, "decoder.position: learned positions need max_positions"),
        ({"decoder.blocks.*.attention.n_heads": 3}, "n_heads=3 does not divide d_model=16; allowed: 1, 2, 4, 8, 16"),
        ({"decoder.blocks.1.cross": {"kind": "attention", "n_heads": 2}}, "blocks.1.cross has no encoder to attend to"),
        ({"decoder.embedding.width": 8}, "a tied head needs embeddings as wide as d_model=16, not 8; untie it"),
        ({"decoder.blocks.*.atention.bias": 1}, "'decoder.blocks.0' has no 'atention'; did you mean 'attention'"),
        ({"decoder.position": "rotory"}, "there is no position 'rotory'; did you mean 'rotary'"),
        ({"vocab_size": 0}, "vocab_size: input should be greater than 0, not 0"),
    ],
)
def test_specs_that_make_no_model(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gpt().replace(changes)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"decoder.blocks.*.cross": None}, "no decoder block attends to the encoder"),
        ({"source_vocab_size": 5}, "tie_embeddings shares one table, but source_vocab_size is 5 and vocab_size 29"),
        ({"encoder.embedding.width": 8}, "tie_embeddings.*width"),
    ],
)
def test_pairs_of_stacks_that_make_no_model(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        seq2seq().replace(changes)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda g, s, b: g(ids(1, 13)), "13 tokens are more than this model's context of 12; shorten or split them"),
        (lambda g, s, b: g(ids(1, 3), layout=Layout.full(3, start=10)), "13 tokens are more than .* context of 12"),
        (lambda g, s, b: g(ids(4)), r"ids are \(batch, length\), not \(4,\)"),
        (lambda g, s, b: g(ids(1, 2), ids(1, 2)), "a target is for encoder–decoders"),
        (lambda g, s, b: s(ids(1, 2)), "takes the source ids and the target"),
        (lambda g, s, b: g(ids(1, 2), layout=Layout.full(2), attention_mask=torch.ones(1, 2)), "not both"),
        (lambda g, s, b: g.pooled(ids(1, 2)), "has no classification head; give the spec one"),
        (lambda g, s, b: b.start(1), "an encoder alone does not decode"),
        (lambda g, s, b: s.start(2), "an encoder–decoder starts from source ids"),
        (lambda g, s, b: g.start(source=ids(1, 2)), "a decoder alone from a batch size"),
        (lambda g, s, b: build(gpt().replace({"head": None}))(ids(1, 2), labels=ids(1, 2)), "has no head, so labels"),
    ],
)
def test_calls_that_mean_nothing(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(build(gpt()), build(seq2seq()), build(bert()))


def test_packed_rows_may_be_longer_than_the_context_but_no_document() -> None:
    model, x = shaken(gpt()), ids(1, 20)
    out = model(x, layout=Layout.packed([[12, 8]]))
    torch.testing.assert_close(out[:, 12:], model(x[:, 12:]), atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="context of 12"):
        model(x, layout=Layout.packed([[13, 7]]))


# -- decoding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rotary", "alibi", "t5", "none"])
@torch.no_grad()
def test_stepping_is_one_pass(position: str) -> None:
    model, x = shaken(gpt(position=position)), ids(2, 10)
    whole = model(x)
    cache = model.start(2)
    torch.testing.assert_close(model.step(x[:, :4], cache, all_positions=True), whole[:, :4], atol=1e-4, rtol=1e-4)
    for t in range(4, 10):
        torch.testing.assert_close(model.step(x[:, t : t + 1], cache), whole[:, t], atol=1e-4, rtol=1e-4)
    assert (
        cache.length == 10 and cache.nbytes == 2 * 2 * 2 * 10 * 16 * 4
    )  # layers · (k, v) · rows · tokens · width · bytes


@torch.no_grad()
def test_an_encoders_keys_are_projected_once() -> None:
    model, x, y = shaken(seq2seq()), ids(2, 6), ids(2, 4)
    layout, calls = Layout.from_lengths([4, 6]), []
    for block in model.decoder.blocks:  # type: ignore[union-attr]
        block.cross.k.register_forward_hook(lambda *_: calls.append(1))  # type: ignore[union-attr, operator]
    whole = model(x, y, layout=layout)
    calls.clear()
    cache = model.start(source=x, source_layout=layout)
    for t in range(4):
        torch.testing.assert_close(model.step(y[:, t : t + 1], cache), whole[:, t], atol=1e-4, rtol=1e-4)
    assert len(calls) == 2, "once for each layer"
    cache.reorder(torch.tensor([1, 1, 0]))
    again = model.step(y[[1, 1, 0], :1], cache)
    torch.testing.assert_close(again[0], again[1])


@torch.no_grad()
def test_a_left_padded_prompt_past_the_context_is_a_sentence() -> None:
    model = shaken(gpt())
    cache = model.start(2)
    model.step(ids(2, 11), cache, Layout.from_lengths([11, 5], side="left"))
    model.step(ids(2, 1), cache)
    with pytest.raises(ValueError, match="past the model's context of 12"):
        model.step(ids(2, 1), cache)


# -- shared tables -----------------------------------------------------------------------------------------------------


def tables(model: TransformerModel) -> list[Tensor]:
    stacks = [s for s in (model.encoder, model.decoder) if s is not None]
    return [*(s.embedding.weight for s in stacks), model.head.weight]  # type: ignore[union-attr, list-item]


@pytest.mark.parametrize("make", [gpt, seq2seq, bert])
def test_tied_tables_stay_one_parameter(make: Any) -> None:
    spec = make()
    model = build(spec)

    def assert_tied(model: TransformerModel) -> None:
        assert len({id(table) for table in tables(model)}) == 1
        assert sum(p.numel() for p in model.parameters()) == spec.n_parameters

    assert_tied(model)
    assert_tied(model.to(torch.bfloat16))
    assert_tied(copy.deepcopy(model))
    other = build(spec, seed=1)
    other.load_state_dict(model.state_dict())
    assert_tied(other)
    torch.testing.assert_close(tables(other)[0], tables(model)[0].float())
    shell = build(spec, device="meta")
    shell.load_state_dict(other.state_dict(), assign=True)
    shell.tie()
    assert_tied(shell)
    assert torch.equal(tables(shell)[0], tables(other)[0])


def test_untied_tables_are_apart() -> None:
    spec = seq2seq().replace({"tie_embeddings": False, "head.tied": False, "source_vocab_size": 17})
    model = build(spec)
    assert len({id(table) for table in tables(model)}) == 3 and tables(model)[0].shape[0] == 17
    assert sum(p.numel() for p in model.parameters()) == spec.n_parameters


def test_json_holds_the_whole_model() -> None:
    for spec in (gpt(position="t5"), seq2seq(), bert()):
        again = Transformer.from_json(spec.to_json())
        assert again == spec
        assert build(again).state_dict().keys() == build(spec).state_dict().keys()


def test_a_star_changes_both_stacks() -> None:
    spec = preset("transformer", vocab_size=20, d_model=16, n_heads=4, n_layers=2, d_ff=8)
    changed = spec.replace({"*.blocks.*.attention.n_kv_heads": 2, "*.position": "rotary"})
    for stack in (changed.encoder, changed.decoder):
        assert [block.attention.n_kv_heads for block in stack.blocks] == [2, 2] and stack.position.kind == "rotary"
    assert changed.decoder.blocks[0].cross.n_kv_heads is None
    assert changed.replace({"*.blocks.*.cross.n_kv_heads": 1}).decoder.blocks[1].cross.n_kv_heads == 1
    alone = preset("gpt2", n_layers=1)
    assert alone.replace({"*.position": "alibi"}) == alone.replace({"decoder.position": "alibi"})
