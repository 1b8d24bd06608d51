"""A word in several contexts, against passes whose scores of a hidden word are −∞."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

import qkv
from qkv.core.layout import Layout
from qkv.look.analysis.word_contexts import Occurrence, word_contexts
from qkv.nn.activations import intervene

SIZES = {"vocab_size": 30, "d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 48}
TEXTS = torch.tensor([[3, 7, 9, 4, 5, 6], [8, 2, 9, 4, 1, 3]])  # the word is 9 4
WORD, OTHERS = (2, 3), ((0,), (1,), (4, 5))


def states(model: torch.nn.Module, stack: str, ids: Tensor, hidden: tuple[int, ...] = ()) -> list[Tensor]:
    """The residual stream after each block, read by hooks of PyTorch, without the keys of some tokens."""
    found: list[Tensor] = []

    def hide(scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[..., list(hidden)] = -torch.inf
        scores[..., list(hidden), :] = 0.0  # what a hidden token sees is of no use to others
        return scores

    hooks = [
        block.register_forward_hook(lambda block, inputs, output: found.append(output))
        for block in getattr(model, stack).blocks
    ]
    try:
        with intervene(model, {f"{stack}.layers.*.attention.scores": hide}):
            model.hidden(ids)  # type: ignore[operator]
    finally:
        for hook in hooks:
            hook.remove()
    return found


@pytest.mark.parametrize(("name", "stack"), [("gpt2", "decoder"), ("llama", "decoder"), ("bert-base", "encoder")])
@torch.no_grad()
def test_vectors_cosines_and_occlusions(name: str, stack: str) -> None:
    model = qkv.build(qkv.preset(name, **SIZES), seed=1).eval()
    contexts = [Occurrence(ids[None], Layout.full(6), WORD, OTHERS) for ids in TEXTS]
    found = word_contexts(model, stack, contexts)
    whole = [[x[0, list(WORD)].mean(0) for x in states(model, stack, ids[None])] for ids in TEXTS]
    static = getattr(model, stack).embedding(TEXTS[:1], None)[0, list(WORD)].mean(0)
    torch.testing.assert_close(found.vectors, torch.stack([torch.stack([static, *one]) for one in whole], 1))
    for layer, (a, b) in enumerate(zip(*whole, strict=True), 1):
        torch.testing.assert_close(found.alike[layer, 0, 1], cosine_similarity(a, b, dim=0))
        torch.testing.assert_close(found.static[layer - 1, 0], cosine_similarity(a, static, dim=0))
    assert found.alike[0, 0, 1] == pytest.approx(1)
    for i, ids in enumerate(TEXTS):
        for w, tokens in enumerate(OTHERS):
            without = [x[0, list(WORD)].mean(0) for x in states(model, stack, ids[None], tokens)]
            moved = torch.stack([1 - cosine_similarity(a, b, dim=0) for a, b in zip(whole[i], without, strict=True)])
            torch.testing.assert_close(found.moved[i][:, w], moved, atol=1e-5, rtol=1e-3)
            other = whole[1 - i][-1]
            apart = cosine_similarity(without[-1], other, dim=0) - cosine_similarity(whole[i][-1], other, dim=0)
            torch.testing.assert_close(found.apart[i][w], apart, atol=1e-5, rtol=1e-3)
    assert (float(found.moved[0][-1, 2].abs()) < 1e-6) == (stack == "decoder"), (
        "a decoder sees nothing that comes later"
    )


@torch.no_grad()
def test_other_words_are_compared_between_tokens_that_differ() -> None:
    model = qkv.build(qkv.preset("llama", **SIZES), seed=1).eval()
    contexts = [Occurrence(ids[None], Layout.full(6), WORD, OTHERS) for ids in TEXTS]
    found = word_contexts(model, "decoder", contexts)
    kept = [0, 1, 4, 5]
    vectors = torch.cat([states(model, "decoder", ids[None])[-1][0, kept] for ids in TEXTS])
    ids = torch.cat([ids[kept] for ids in TEXTS])
    pairs = [(i, j) for i in range(8) for j in range(8) if ids[i] != ids[j]]
    expected = torch.stack([cosine_similarity(vectors[i], vectors[j], dim=0) for i, j in pairs]).mean()
    torch.testing.assert_close(found.others[-1], expected)
    alone = [Occurrence(one.ids, one.layout, WORD, ()) for one in contexts]
    assert [x.shape for x in word_contexts(model, "decoder", alone).moved] == [(2, 0), (2, 0)]
