"""The contracts for recurrent models: padding, cached steps, reorder and beams, accumulation, resumption."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from axes import Example, words
from selection import Combination, Contract
from small import gradients, ids, padded, same, same_gradients, spread, stirred
from test_accumulated import batch, taken
from test_resumed import KILLED, SAVED, STEPS, Killed, history, stream
from torch import Tensor

import qkv
from qkv.core.batch import IGNORE
from qkv.generation import generate, score
from qkv.nn.models.recurrent.decoder import Context
from qkv.nn.models.recurrent.model import Recurrent
from qkv.training.loop import fit
from qkv.training.objective import SequenceToSequence
from qkv.training.settings import Training

VOCAB, ROWS = 17, 3
LENGTHS, SOURCES = [6, 1, 9], [2, 8, 5]

DEEP = {"encoder_layers": 4, "decoder_layers": 4, "context": "bottom-attention"}
LOCAL = {"kind": "luong", "alignment": "monotonic", "reach": 2}
# A context, and what a model needs beside it.
CONTEXTS: dict[str, dict[str, Any]] = {
    "final-state": {"context": "final-state", "directions": 1, "reverse": True},
    "bridged": {"context": "final-state", "decoder_cell": "gru"},
    "fixed-context": {"context": "fixed-context"},
    "bahdanau": {"context": "bahdanau"},
    "dot": {"context": {"kind": "bahdanau", "score": "dot"}, "directions": 1},
    "luong": {"context": "luong"},
    "luong-at-once": {"context": {"kind": "luong", "score": "concat", "feeding": False}, "directions": 1},
    "local-m": {"context": LOCAL},
    "local-m-at-once": {"context": {**LOCAL, "feeding": False}},
    "local-p": {"context": {**LOCAL, "alignment": "predictive"}},
    "location": {"context": {"kind": "luong", "alignment": "location", "longest": 6}},
    "deep: residual": {**DEEP, "connections": "residual", "d_h": 6, "d_s": 6},
    "deep: fast-forward": {
        **DEEP,
        "connections": {"kind": "fast-forward", "d_memory": 7},
        "context": {"kind": "bottom-attention", "everywhere": False},
    },
}
AXES = {
    "context": [Example(label, value) for label, value in CONTEXTS.items()],
    "cell": words("rnn", "gru", "lstm"),
    "layers": words(1, 2),
}


def spec(case: Combination, **changes: Any) -> Recurrent:
    sizes = {"vocab_size": VOCAB, "d_e": 6, "d_h": 8, "d_s": 8, "cell": case.cell}
    layers = {"encoder_layers": case.layers, "decoder_layers": case.layers}
    return Recurrent.from_dict({**sizes, **layers, **case.context, **changes})


def model(case: Combination, **changes: Any) -> Any:
    return stirred(qkv.build(spec(case, **changes), dtype=torch.float64)).eval()


def test_every_context_has_an_example() -> None:
    kinds = {
        made["context"] if isinstance(made["context"], str) else made["context"]["kind"] for made in CONTEXTS.values()
    }
    assert kinds == {kind for kind, cls in Context.kinds.items() if cls.__module__.startswith("qkv.")}


@pytest.mark.contract(Contract({**AXES, "side": words("left", "right", "holes")}))
def test_padding_changes_no_logits_loss_or_gradient(case: Combination) -> None:
    """Logits, the loss over real tokens, and its gradients, of rows padded on both sides of the model."""
    built = model(case)
    rows, sources = ([ids(n, seed=n + k) for n in lengths] for k, lengths in enumerate((LENGTHS, SOURCES)))
    labels = [ids(n, seed=50 + n) for n in LENGTHS]
    layout, source_layout = padded(LENGTHS, case.side), padded(SOURCES, case.side, 11)
    wide = torch.full(layout.shape, IGNORE)
    for i, row in enumerate(labels):
        wide[i, layout.valid[i]] = row
    inputs = {"ids": spread(sources, source_layout), "target": spread(rows, layout)}
    inputs |= {"layout": source_layout, "target_layout": layout}
    logits = built(**inputs)
    loss = built(**inputs, labels=wide).loss
    loss.backward()
    together, one_by_one = gradients(built), 0.0
    for i in range(ROWS):
        single = {"ids": sources[i][None], "target": rows[i][None]}
        same(logits[i, layout.valid[i]], built(**single)[0], what=f"row {i}'s logits")
        part = built(**single, labels=labels[i][None]).loss
        part.backward()
        one_by_one += float(part.detach())
    assert float(loss) == pytest.approx(one_by_one, rel=1e-10)
    same_gradients(together, gradients(built))


class Session:
    """A model, its source and tokens, decoded with a cache."""

    def __init__(self, case: Combination) -> None:
        self.model = model(case)
        self.ids = ids(ROWS, 11, seed=1)
        self.source_layout = padded(SOURCES, "right")
        self.source = ids(*self.source_layout.shape, seed=2)

    def start(self) -> Any:
        return self.model.start(source=self.source, source_layout=self.source_layout)

    @torch.no_grad()
    def feed(self, cache: Any, tokens: Tensor, layout: Any = None) -> Tensor:
        return self.model.step(tokens, cache, layout, all_positions=True)

    @torch.no_grad()
    def full(self, tokens: Tensor, rows: Sequence[int] = range(ROWS)) -> Tensor:
        chosen = torch.tensor(rows)
        return self.model(self.source[chosen], tokens, layout=self.source_layout.select(chosen))


@pytest.mark.contract(Contract(AXES))
def test_steps_and_chunks_give_the_logits_of_one_pass(case: Combination) -> None:
    """Steps and chunks are one pass; rows of unequal prompts continue from their own ends."""
    s = Session(case)
    wanted = s.full(s.ids)
    for cuts in (range(12), [0, 4, 5, 9, 11], [0, 11]):
        cache = s.start()
        found = [s.feed(cache, s.ids[:, a:b]) for a, b in pairwise(cuts)]
        same(torch.cat(found, 1), wanted, what=f"logits in chunks {list(cuts)}")
        assert cache.length == 11
    lengths, cache = [4, 7, 5], s.start()
    rows, layout = [s.ids[i, :n] for i, n in enumerate(lengths)], padded(lengths, "left")
    prompt = s.feed(cache, spread(rows, layout), layout)
    more = ids(ROWS, 3, seed=5)
    steps = torch.cat([s.feed(cache, more[:, t : t + 1]) for t in range(3)], 1)
    for i, row in enumerate(rows):
        whole = s.full(torch.cat([row, more[i]])[None], [i])[0]
        same(prompt[i, layout.valid[i]], whole[: lengths[i]], what=f"row {i}'s prompt")
        same(steps[i], whole[lengths[i] :], what=f"row {i}'s steps")


@pytest.mark.contract(Contract(AXES))
def test_reordered_and_saved_caches_continue_the_chosen_rows(case: Combination, tmp_path: Path) -> None:
    """Rows duplicated, swapped and dropped, with their sources or without; and a cache that went through a file."""
    s = Session(case)
    cache, tokens, origin = s.start(), s.ids[:, :2], list(range(ROWS))
    s.feed(cache, tokens)
    for choice, cross in (([0, 0, 1, 1, 2, 2], True), ([1, 0, 3, 3, 5, 4], False), ([4, 1], True), ([0, 1, 1], True)):
        rows = torch.tensor(choice)
        cache.reorder(rows, cross=cross)
        tokens, origin = tokens[rows], [origin[row] for row in choice]
        new = ids(len(choice), 1, seed=tokens.shape[1])
        tokens = torch.cat([tokens, new], 1)
        same(s.feed(cache, new)[:, 0], s.full(tokens, origin)[:, -1], what=f"logits after {choice}")
    again = s.model.start(
        source=s.source[torch.tensor(origin)], source_layout=s.source_layout.select(torch.tensor(origin))
    )
    cache.save(tmp_path / "cache")
    again.load(tmp_path / "cache")
    new = ids(3, 1, seed=77)
    same(s.feed(again, new), s.feed(cache, new), what="logits after a file")
    with pytest.raises(ValueError, match="can't rewind 1"):
        cache.rewind(1)


@pytest.mark.contract(Contract({**AXES, "beams": words(1, 3)}, fast=1))
def test_scores_of_a_search_match_one_pass(case: Combination) -> None:
    """Every hypothesis scores what one pass over it gives, whatever shares its batch."""
    built = model(case)
    prompts = [ids(n, seed=n).tolist() for n in SOURCES]
    settings: dict[str, Any] = {"bos_id": 0, "eos_id": 1, "max_new_tokens": 7, "scores": True}
    found = generate(built, prompts, num_beams=case.beams, num_samples=case.beams, **settings)
    for i, prompt in enumerate(prompts):
        single = generate(built, [prompt], num_beams=case.beams, num_samples=case.beams, **settings)
        assert single.sequences[0] == found.sequences[i]
        told = score(built, [prompt] * case.beams, found.sequences[i], bos_id=0)
        for beam, total in enumerate(told.totals):
            assert found.scores is not None
            length = len(found.sequences[i][beam])
            assert found.scores[i][beam] * length == pytest.approx(total, rel=1e-4, abs=1e-4)


@pytest.mark.contract(Contract({**AXES, "smoothing": [Example("plain", 0.0), Example("smoothed", 0.2)]}, fast=1))
def test_accumulated_gradients_match_one_batch(case: Combination) -> None:
    objective = SequenceToSequence(label_smoothing=case.smoothing)
    whole = taken(model(case), objective, [batch("encoder-decoder", list(range(6)), isolated=False)])
    for cuts in ([[0], [1, 2, 3, 4, 5]], [[0, 1], [2, 3], [4, 5]]):
        found = taken(model(case), objective, [batch("encoder-decoder", rows, isolated=False) for rows in cuts])
        assert found[0] == pytest.approx(whole[0], rel=1e-6)
        same_gradients(found[1], whole[1])


def train(case: Combination, out: Path, kill_at: int | None = None, resume: bool = False) -> Any:
    made = qkv.build(spec(case, dropout=0.2), seed=4)
    limits = {"max_steps": STEPS, "save_every": SAVED, "eval_every": None, "log_every": 1, "accumulate": 2}
    objective = SequenceToSequence()
    opened = stream("encoder-decoder", kill_at)
    fit(made, opened, objective, Training.from_dict(limits), out=out, seed=9, resume=resume)
    return made


@pytest.mark.contract(Contract(AXES, fast=0, share=3))
def test_a_resumed_training_is_the_uninterrupted_one(case: Combination, tmp_path: Path) -> None:
    whole = train(case, tmp_path / "whole")
    with pytest.raises(Killed):
        train(case, tmp_path / "cut", kill_at=2 * KILLED + 1)
    torch.manual_seed(123456)
    resumed = train(case, tmp_path / "cut", resume=True)
    for name, parameter in whole.named_parameters():
        assert torch.equal(parameter, dict(resumed.named_parameters())[name]), name
    assert history(tmp_path / "cut") == history(tmp_path / "whole")


def test_packed_rows_are_refused() -> None:
    built = qkv.build(qkv.preset("rnnsearch", vocab_size=VOCAB, d_e=4, d_h=4, d_s=4))
    with pytest.raises(ValueError, match=r"one sequence a row.*batching\.packing to false"):
        built(ids(1, 5), ids(1, 4), layout=qkv.Layout.packed([[2, 3]]), target_layout=qkv.Layout.packed([[2, 2]]))
