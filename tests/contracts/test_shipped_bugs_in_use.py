"""The numbered bugs of contracts.md, 9 to 26: losses, data, weights, sizes, compilation, and what is said and done."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from axes import biases
from every import call, every_backend, every_family, leaves
from oracle import attention
from small import (
    VOCAB,
    alone,
    gradients,
    ids,
    model,
    packed,
    padded,
    randn,
    same,
    same_gradients,
    spec,
    spread,
    stirred,
)
from torch import Tensor
from torch.nn import functional as F

import qkv
from qkv.attention.attend import attend
from qkv.core.batch import IGNORE, Batch
from qkv.core.layout import Layout
from qkv.data.batching.batching import Batching, stream
from qkv.data.batching.packing import pack
from qkv.data.synthetic.toys import Reverse
from qkv.generation import generate
from qkv.kernels.backends import BACKENDS
from qkv.layers.moe import Mixture
from qkv.models.transformer import Transformer
from qkv.patterns.basic import causal, full, window
from qkv.positions.schemes import ALiBi, Position, Rotary, T5Buckets, Widths
from qkv.training.checkpoints.weights import load_model, model_tensors
from qkv.training.logging.history import read_metrics
from qkv.training.loop import fit
from qkv.training.objective import NextToken, Objective
from qkv.training.outcome import Diverged
from qkv.training.settings import Training
from qkv.training.step import weighed


class Letters:
    """A tokenizer of one token a character; ids below 3 are pad, bos and eos."""

    pad_id, bos_id, eos_id = 0, 1, 2

    def encode_batch(self, texts: list[str], /) -> list[list[int]]:
        return [[3 + (ord(c) - ord("a")) % (VOCAB - 3) for c in text.replace(" ", "")] for text in texts]


# -- 9 … 13: losses, labels and tokens ---------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bug_09_labels_are_aligned_and_shifted_by_nobody(family: str, smoothing: float) -> None:
    """The model's loss is that of label t under the logits at t; the data shift a text once."""
    built, tokens, labels = model(family), ids(2, 6), ids(2, 6, seed=1)
    sums = call(built, tokens, labels=labels, label_smoothing=smoothing)
    logits = call(built, tokens).flatten(0, 1)
    wanted = F.cross_entropy(logits, labels.flatten(), reduction="sum", label_smoothing=smoothing)
    assert float(sums.loss) == pytest.approx(float(wanted), rel=1e-10)
    assert int(sums.n_labels) == labels.numel()


@pytest.mark.parametrize("seq2seq", [True, False])
def test_bug_09_data_shift_labels_once(seq2seq: bool) -> None:
    """What the model reads after position t is the label at t."""
    batching = Batching(tokens=256, max_length=16, context=32, pool=16)
    with stream(Reverse(train=16), Letters(), batching, seq2seq=seq2seq, seed=1, epochs=1) as batches:
        for made in batches:
            read = made.inputs["target" if seq2seq else "ids"]
            assert made.labels is not None
            counted = made.labels[:, :-1] != IGNORE
            assert bool(
                (made.labels[:, :-1][counted] == read[:, 1:][counted])
                .logical_or(made.labels[:, :-1][counted] == 2)
                .all()
            )
            assert int((made.labels != IGNORE).sum()) == made.counts["loss"]


def test_bug_10_accumulation_does_not_average_averages(tmp_path: Path) -> None:
    """Two runs of `fit`, one over whole batches and one over parts with unequal counts, end with the same weights."""
    tokens, labels = ids(4, 6), ids(4, 6, seed=1)
    labels[1:, 2:] = IGNORE

    def batches(parts: list[slice]) -> Any:
        def open_stream(position: dict[str, Any] | None) -> Iterator[Batch]:
            for n in itertools.count():
                part = parts[n % len(parts)]
                count = int((labels[part] != IGNORE).sum())
                yield Batch({"ids": tokens[part]}, labels[part], {"loss": count}, count, count, {"n": n})

        return open_stream

    ends = []
    for i, parts in enumerate(([slice(0, 4)], [slice(0, 1), slice(1, 4)])):
        built = stirred(qkv.build(spec("decoder"), dtype=torch.float64))
        optimizer = {"kind": "sgd", "lr": 0.1}
        training = Training.from_dict(
            {
                "max_steps": 3,
                "accumulate": len(parts),
                "optimizer": optimizer,
                "schedule": "constant",
                "eval_every": None,
            }
        )
        fit(built, batches(parts), NextToken(), training, out=tmp_path / str(i))
        ends.append(torch.cat([p.detach().flatten() for p in built.parameters()]))
    same(ends[1], ends[0], 1e-7)  # a step's norm is clipped in single precision


@every_family
@pytest.mark.parametrize("fused", [True, False])
def test_bug_11_all_labels_ignored_is_zero_and_no_nan(family: str, fused: bool) -> None:
    """A batch whose labels are all −100 has a loss of 0, gradients of 0, and a step over it changes nothing."""
    built = model(family, head={"kind": "language-model", "fused": fused})
    sums = call(built, ids(2, 5), labels=torch.full((2, 5), IGNORE), label_smoothing=0.1)
    assert (float(sums.loss), float(sums.nll), int(sums.n_labels)) == (0.0, 0.0, 0)
    sums.loss.backward()
    assert all(bool((g == 0).all()) for g in gradients(built).values())


def test_bug_12_padding_written_as_end_of_sequence_is_still_padding_only() -> None:
    """pad = eos: the end of a sequence is learned and attended to, padding is neither; there is one BOS."""

    class Both(Letters):
        pad_id = 2

    batching = Batching(tokens=256, max_length=16, pool=64)
    with stream(Reverse(train=64), Both(), batching, seq2seq=True, seed=1, epochs=1) as batches:
        for made in batches:
            assert made.labels is not None
            real, target = made.inputs["target_layout"].valid, made.inputs["target"]
            assert torch.equal(made.labels != IGNORE, real.expand_as(made.labels))
            ends = [row[row != IGNORE].tolist() for row in made.labels]
            assert all(row[-1] == 2 and row.count(2) == 1 for row in ends)
            assert bool(((target == 1) & real).sum(1).eq(1).all())
            assert bool((target[:, 0] == 1).all())


def test_bug_12_an_end_of_sequence_inside_a_prompt_is_a_token() -> None:
    """Generation takes its padding from the layout: eos = pad in a prompt is attended to as any other token."""
    built, prompt = model("decoder", head={"kind": "language-model", "tied": False}), [4, 2, 5, 2]
    single = generate(built, [prompt], eos_id=2, max_new_tokens=6).best[0]
    together = generate(built, [prompt, [6, 7, 8, 9, 10, 11, 12]], eos_id=2, max_new_tokens=6).best[0]
    assert together == single
    tokens = list(prompt)
    while len(tokens) < 10 and tokens[4:][-1:] != [2]:
        tokens.append(int(built(torch.tensor([tokens]))[0, -1].argmax()))
    assert single == tokens[4:]


@every_family
@every_backend
def test_bug_13_packed_documents_do_not_see_one_another(family: str, backend: str) -> None:
    """One document's gradient with respect to another's embeddings is exactly zero, in every backend and family."""
    built, layout, tokens = model(family, full(), backend=backend), packed([[4, 3, 2]]), torch.arange(9)[None] % VOCAB
    source = {"ids": torch.arange(9, 15)[None], "layout": packed([[2, 1, 3]])}
    inputs = (
        {**source, "target": tokens, "target_layout": layout}
        if family == "encoder-decoder"
        else {"ids": tokens, "layout": layout}
    )
    built.hidden(**inputs)[0, 4:7].square().sum().backward()
    stack = built.encoder if family == "encoder" else built.decoder
    assert stack is not None
    touched = stack.embedding.weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert touched == [4, 5, 6, *([11] if family == "encoder-decoder" else [])]


def test_bug_13_packed_rows_isolate_and_label_each_document() -> None:
    """The data's packed rows carry segments, and no label crosses from one document into the next."""
    assert sorted(i for row in pack([3, 5, 2, 4], 7) for i in row) == [0, 1, 2, 3]
    batching = Batching(tokens=96, context=48, pool=64, packing=True)
    with stream(Reverse(train=64), Letters(), batching, seq2seq=False, seed=1, epochs=1) as batches:
        several = 0
        for made in batches:
            layout, read = made.inputs["layout"], made.inputs["ids"]
            assert made.labels is not None
            same_document = (layout.positions[:, 1:, 0] > layout.positions[:, :-1, 0]) & layout.valid[:, 1:]
            inside = same_document & (made.labels[:, :-1] != IGNORE)
            assert torch.equal(made.labels[:, :-1][inside], read[:, 1:][inside])
            if layout.segments is not None:
                several += int((layout.segments.amax(1) > 0).sum())
                assert bool((layout.segments[:, 1:] == layout.segments[:, :-1])[same_document].all())
                assert not layout.one_segment
        assert several > 0


# -- 14 … 16: weights, overflow, dropout -------------------------------------------------------------------------------


def tied(built: Any) -> bool:
    assert built.encoder is not None
    return built.head.weight is built.decoder.embedding.weight is built.encoder.embedding.weight


TRANSFORMS = {
    "cast": lambda m: m.to(torch.bfloat16).half().double(),
    "copied": copy.deepcopy,
    "state dict": lambda m: (m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}), m)[1],
    "loaded": lambda m: (load_model(m, {k: v.clone() for k, v in model_tensors(m).items()}), m)[1],
    "assigned": lambda m: (m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}, assign=True), m)[1],
    "from meta": lambda m: qkv.build(m.spec, device="meta").to_empty(device="cpu"),
}


@pytest.mark.parametrize("how", TRANSFORMS)
def test_bug_14_tied_weights_stay_tied(how: str) -> None:
    """Casting, copying, loading (in place or by assignment) and materializing leave one table where there was one."""
    built = qkv.build(spec("encoder-decoder"))
    assert tied(built)
    assert tied(TRANSFORMS[how](built))
    assert len(model_tensors(built)) == len({id(p) for p in built.parameters()})
    assert built.spec.n_parameters == sum(p.numel() for p in built.parameters())


@every_backend
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [None, 1.0])
def test_bug_15_large_scores_do_not_overflow(backend: str, dtype: torch.dtype, scale: float | None) -> None:
    """Scores far above fp16's 65504 give the soft-max that fp64 gives, and finite gradients."""
    q, k, v = (
        randn(1, 6, 2, 64, seed=i).mul(size).to(dtype).requires_grad_() for i, size in ((1, 200), (2, 200), (3, 1))
    )
    scores = q.double().transpose(1, 2) @ k.double().permute(0, 2, 3, 1)
    assert float(scores.abs().max()) > 65504
    out = attend(q, k, v, pattern=causal(), scale=scale, backend=backend)
    seen = torch.ones(6, 6, dtype=torch.bool).tril()[None, None].expand(1, 2, -1, -1)
    same(out, attention(*(x.double() for x in (q, k, v)), seen, scale=scale)[0], 1e-2)
    out.float().sum().backward()
    assert all(bool(x.grad.isfinite().all()) for x in (q, k, v) if x.grad is not None)


@every_family
def test_bug_16_evaluation_is_without_dropout(family: str) -> None:
    """eval() gives the same numbers twice, and those of the model without dropout; train() does not."""
    built, tokens = qkv.build(spec(family, dropout=0.5), dtype=torch.float64), ids(2, 6)
    plain = qkv.build(spec(family), dtype=torch.float64)
    assert not torch.equal(call(built.train(), tokens), call(built, tokens))
    assert torch.equal(call(built.eval(), tokens), call(built, tokens))
    same(call(built, tokens), call(plain, tokens))


def test_bug_16_generation_is_without_dropout_and_leaves_the_mode() -> None:
    """A model in training mode generates what it would in evaluation mode, and is in training mode afterwards."""
    built = qkv.build(spec("decoder", dropout=0.5)).train()
    first = [generate(built, [[3, 4, 5]], max_new_tokens=12).best for _ in range(3)]
    assert all(module.training for module in built.modules())
    assert first == [generate(built.eval(), [[3, 4, 5]], max_new_tokens=12).best] * 3


@every_family
@every_backend
@pytest.mark.parametrize("policy", ["blocks", "alternate"])
def test_bug_16_checkpointing_repeats_the_same_dropout(family: str, backend: str, policy: Any) -> None:
    """Activations that are made again in the backward pass drop what they dropped, for every kind of position."""
    for position in (T5Buckets(buckets=8), ALiBi(), Rotary()):
        built = stirred(qkv.build(spec(family, None, position, backend, dropout=0.3), dtype=torch.float64))
        found = []
        for how in ("none", policy):
            built.recompute(how)
            torch.manual_seed(5)
            sums = call(built.train(), ids(2, 6), labels=ids(2, 6, seed=1))
            sums.loss.backward()
            found.append((float(sums.loss), gradients(built)))
        assert found[0][0] == found[1][0]
        same_gradients(found[1][1], found[0][1], 1e-12)


# -- 19 … 22: sizes, data order, compilation ---------------------------------------------------------------------------


@every_backend
@pytest.mark.parametrize("bias", [e.value for e in biases() if isinstance(e.value, Position)])
def test_bug_19_positions_past_32_bits(backend: str, bias: Position) -> None:
    """Tokens beyond position 2³¹ and 2³³ see what they would see at the beginning."""
    q, k, v = leaves(1)
    module = bias.module(Widths(32, 4, 8, None))
    for parameter in module.parameters():
        parameter.data = randn(*parameter.shape, seed=4)
    options = {"pattern": causal() & window(3), "bias": module.bias(), "backend": backend}
    wanted = attend(q, k, v, layout=Layout.full(5), **options)
    for start in (2**31 - 2, 2**33):
        layout = Layout.full(5, start=start)
        assert layout.positions.dtype == torch.int64
        same(attend(q, k, v, layout=layout, **options), wanted)


def test_bug_19_counts_past_32_bits() -> None:
    """Score pairs and the cost of long inputs are exact: 100,000 tokens have 5 thousand million causal pairs."""
    pairs = causal().pairs(100_000)
    assert pairs == 100_000 * 100_001 // 2
    assert full().pairs(100_000) == 10**10
    long = qkv.preset("gpt2", max_positions=100_000)
    assert long.cost(tokens=100_000).flops > 12 * 4 * 768 * pairs
    assert Layout.from_lengths([3, 5]).positions.dtype == torch.int64


@pytest.mark.parametrize("seq2seq", [True, False])
def test_bug_20_data_resume_with_the_next_batch(seq2seq: bool) -> None:
    """A stream opened at any batch's position goes on with the batch after it, through ends of epochs, which differ."""
    batching = Batching(tokens=64, max_length=16, context=32, pool=7)

    def opened(position: dict[str, Any] | None = None) -> Any:
        return stream(Reverse(train=20), Letters(), batching, seq2seq=seq2seq, seed=3, epochs=3, position=position)

    def content(made: Batch) -> list[Any]:
        assert made.labels is not None
        return [made.labels.tolist(), *(v.tolist() for v in made.inputs.values() if isinstance(v, Tensor))]

    whole = list(opened())
    for at, made in enumerate(whole):
        position = json.loads(json.dumps(made.position))
        assert [content(b) for b in opened(position)] == [content(b) for b in whole[at + 1 :]]
    epochs = [[content(b) for b in whole if b.position["epoch"] == epoch] for epoch in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]


def test_bug_21_one_compiled_model_serves_batches_of_every_shape() -> None:
    """Lengths, padding and packing that change from batch to batch give what eager gives, dropout off."""
    torch.compiler.reset()
    built = model("decoder", position=ALiBi(), layers=1)
    compiled = torch.compile(built, backend="eager", fullgraph=True)
    for layout in (alone(6), alone(9), padded([7, 2], "left"), packed([[3, 4], [5]])):
        tokens = ids(2, layout.shape[1], seed=layout.shape[1])
        valid = layout.valid.expand(2, -1)
        with torch.no_grad():
            same(compiled(tokens, layout=layout)[valid], built(tokens, layout=layout)[valid])


@every_backend
@pytest.mark.parametrize("lengths", [(0, 3), (3, 0), (0, 0)])
def test_bug_22_no_tokens_at_all(backend: str, lengths: tuple[int, int]) -> None:
    """No query gives no row, no key gives rows of 0, and gradients exist either way."""
    q, k, v = leaves(2, *lengths)
    out = attend(q, k, v, backend=backend)
    assert out.shape == (2, lengths[0], 4, 8)
    assert bool((out == 0).all())
    out.sum().backward()
    assert all(x.grad is None or bool((x.grad == 0).all()) for x in (q, k, v))
    assert attend(*(x[:0] for x in leaves()), backend=backend).shape == (0, 5, 4, 8)


@every_family
@every_backend
def test_bug_22_sequences_of_no_length(family: str, backend: str) -> None:
    """An empty row or an empty document between others: the rest is as ever, losses and gradients are finite."""
    built, tokens = model(family, backend=backend), ids(3, 6)
    for layout in (
        Layout.from_lengths([4, 0, 6]),
        Layout.from_lengths([4, 0, 6], side="left"),
        Layout.packed([[4, 0, 2], [], [0, 6]]),
    ):
        logits = call(built, tokens, layout)
        same(logits[0, layout.valid[0]][:4], call(built, tokens[:1][:, layout.valid[0]][:, :4])[0])
        labels = ids(3, 6, seed=1).masked_fill(~layout.valid, IGNORE)
        call(built, tokens, layout, labels=labels).loss.backward()
        assert all(bool(g.isfinite().all()) for g in gradients(built).values())


# -- 23: experts -------------------------------------------------------------------------------------------------------


def with_experts(family: str, **options: Any) -> Any:
    experts = {"kind": "moe", "n_experts": 4, "top_k": 2, "d_ff": 12, **options}
    return model(family, block={"placement": "pre", "norm": "none", "feedforward": experts}).train()


@pytest.mark.parametrize("family", ["encoder", "decoder"])
@pytest.mark.parametrize("balance", ["switch", "gshard", "mixtral"])
@pytest.mark.parametrize("side", ["left", "right", "holes"])
def test_bug_23_balance_losses_do_not_count_padding(family: str, balance: str, side: str) -> None:
    """What experts report and lose, and its gradients, are those of the real tokens."""
    built = with_experts(family, balance=balance, router_z=0.01)
    lengths = [6, 2, 4]
    rows, found = [ids(1, n, seed=n)[0] for n in lengths], []
    for layout in (padded(lengths, side, 7), packed([lengths])):
        tokens = torch.cat(rows)[None] if len(layout.valid) == 1 else spread(rows, layout)
        extras = built(tokens, layout=layout, labels=torch.where(layout.valid, tokens, IGNORE)).extras
        torch.stack([extra.loss for extra in extras.values() if extra.loss is not None]).sum().backward()
        found.append(({name: extra.value.double() for name, extra in extras.items()}, gradients(built)))
    (values, slopes), (wanted, wanted_slopes) = found
    for name, value in wanted.items():
        same(values[name], value, 1e-6, name)
    assert any(slope.norm() > 0 for slope in wanted_slopes.values())
    same_gradients(slopes, wanted_slopes)


@every_family
@pytest.mark.parametrize("policy", ["none", "blocks", "alternate"])
def test_bug_23_balance_is_in_the_loss_by_default_and_not_in_evaluation(family: str, policy: Any) -> None:
    """Minimized once, recomputed or not, and not part of the perplexity."""
    built = with_experts(family)
    built.recompute(policy)
    tokens, labels = ids(2, 6), ids(2, 6, seed=1)
    source = {"target": tokens} if built.is_encoder_decoder else {}
    one = Batch({"ids": tokens, **source}, labels, {"loss": 12}, 12, 12)
    terms = NextToken()(built, one)
    total = weighed(terms, {"loss": 12})
    added = 0.01 * len(experts_of(built)) * terms["balance"].value / 12
    same(total, terms["loss"].sum / 12 + added)
    total.backward()
    assert all(module.router.weight.grad.norm() > 0 for module in experts_of(built))
    assert NextToken()(built.eval(), one).keys() == {"loss"}
    same(NextToken()(built, one)["loss"].sum, terms["loss"].value)


def experts_of(built: Any) -> list[Any]:
    return [module for module in built.modules() if isinstance(module, Mixture)]


# -- 24 … 26: what is said and what is done ----------------------------------------------------------------------------


def test_bug_24_a_named_backend_refuses_and_never_falls_back() -> None:
    """What a backend can't serve raises its reason; an unknown name is an error, in a model too."""
    q, k, v = leaves()
    with pytest.raises(ValueError, match=r"sdpa.*soft-cap"):
        attend(q, k, v, softcap=2.0, backend="sdpa")
    with pytest.raises(ValueError, match=r"sdpa.*log-sum-exp"):
        attend(q, k, v, return_lse=True, backend="sdpa")
    with pytest.raises(ValueError, match="no backend 'flash9'"):
        attend(q, k, v, backend="flash9")
    with pytest.raises(ValueError, match="soft-cap"):
        model("decoder", backend="sdpa", heads={"softcap": 3.0})(ids(1, 4))


@every_backend
def test_bug_24_the_named_backend_is_the_one_that_runs(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the named backend's `run` is called, for every layer."""
    ran: list[str] = []
    for name, module in list(BACKENDS.items()):
        run = module.run
        monkeypatch.setattr(module, "run", lambda request, name=name, run=run: (ran.append(name), run(request))[1])
    model("decoder", backend=backend)(ids(2, 5))
    assert len(ran) == 2
    assert backend == "auto" or set(ran) == {backend}


@every_backend
def test_bug_24_masks_are_obeyed_beside_causality(backend: str) -> None:
    """A bias of −∞, padding and segments each hide pairs that the causal pattern allows."""
    q, k, v = leaves(1, 6, 6)
    wanted = attend(q, k, v, pattern=causal() & window(2), backend="reference")
    hidden = torch.ones(6, 6).tril(-2) > 0
    bias = torch.zeros(6, 6, dtype=torch.float64).masked_fill(hidden, float("-inf"))
    same(attend(q, k, v, pattern=causal(), bias=bias, backend=backend), wanted)
    layout = Layout.from_mask(torch.tensor([[True, True, False, True, True, True]]))
    out = attend(q, k, v, pattern=causal(), layout=layout, backend=backend)
    short = [x[:, layout.valid[0]] for x in (q, k, v)]
    same(out[:, layout.valid[0]], attend(*short, pattern=causal(), backend="reference"))
    assert bool((out[:, 2] == 0).all())


def test_bug_24_masks_of_ones_and_of_minus_infinity_are_not_confused() -> None:
    """A mask given for scores, or scores given for a mask, is an error; True, 1 and 1.0 all mean a real token."""
    mask = torch.tensor([[1, 1, 0]])
    for kind in (torch.bool, torch.int64, torch.uint8, torch.float32):
        assert Layout.from_mask(mask.to(kind)).valid.tolist() == [[True, True, False]]
    for wrong in (
        torch.tensor([[0.0, 0.0, float("-inf")]]),
        torch.tensor([[0.0, 0.0, -1e9]]),
        torch.tensor([[0, 0, -10000]]),
    ):
        with pytest.raises(ValueError, match="mask"):
            Layout.from_mask(wrong)
    q, k, v = leaves()
    for wrong in (torch.ones(5, 5, dtype=torch.bool).tril(), torch.ones(5, 5, dtype=torch.int64).tril()):
        with pytest.raises(ValueError, match="bias"):
            attend(q, k, v, bias=wrong)


def test_bug_25_an_unknown_config_field_is_an_error() -> None:
    """At every depth of a model's JSON, one field more is refused by its name, and nothing is built."""
    data = json.loads(spec("encoder-decoder", causal() & window(3), ALiBi()).to_json())
    places = list(_objects(data))
    assert len(places) > 15
    for place in places:
        place["n_haeds"] = 8
        with pytest.raises(ValueError, match=r"n_haeds|a run of blocks is"):
            Transformer.from_dict(data)
        del place["n_haeds"]
    assert Transformer.from_dict(data).to_json() == json.dumps(data, indent=2)
    with pytest.raises(ValueError, match="no pattern 'sliding'"):
        Transformer.from_dict(json.loads(json.dumps(data).replace('"kind": "window"', '"kind": "sliding"')))


def _objects(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        yield data
    for item in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _objects(item)


class Broken(Objective, kind="broken-in-contracts"):
    """A loss that is not a number from the second batch on."""

    def __call__(self, model: torch.nn.Module, batch: Batch) -> Any:
        terms = NextToken()(model, batch)
        bad = batch.position["n"] > 0
        return {name: type(t)(t.sum * float("nan"), t.count) if bad else t for name, t in terms.items()}


def test_bug_26_a_log_does_not_hide_nan(tmp_path: Path) -> None:
    """NaN losses stand in metrics.jsonl as NaN, with the step and its data; the weights are left, and training stops."""

    def open_stream(position: dict[str, Any] | None) -> Iterator[Batch]:
        for n in itertools.count():
            yield Batch({"ids": ids(2, 5, seed=n)}, ids(2, 5, seed=n + 50), {"loss": 10}, 10, 10, {"n": n})

    built = qkv.build(spec("decoder"))
    training = Training.from_dict(
        {"max_steps": 9, "max_bad_steps": 3, "log_every": 1, "eval_every": None, "save_every": None}
    )
    with pytest.raises(Diverged, match="NaN"):
        fit(built, open_stream, Broken(), training, out=tmp_path)
    lines = list(read_metrics(tmp_path / "metrics.jsonl"))
    bad = [line for line in lines if line.get("event") == "bad step"]
    assert [line["step"] for line in bad] == [2, 3, 4]
    assert all(line["loss"] != line["loss"] for line in bad)
    assert '"NaN"' in (tmp_path / "metrics.jsonl").read_text()
    assert all(bool(p.isfinite().all()) for p in built.parameters())
