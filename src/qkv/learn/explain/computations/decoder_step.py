"""One step of a decoder: the third target word of a five-word source."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .. import toy
from ..explanation import Explanation
from ..steps import LabeledTable, Step, listing, matrix, number
from ..subject import Attended, Subject

TITLE = "A decoder step: how the next word is predicted"
THIRD = 2  # the decoder's input before the third word


def example() -> Explanation:
    return of(toy.translator())


def of(subject: Subject) -> Explanation:
    count = len(subject.target)
    token = subject.choose("token", subject.token, count, min(THIRD, count - 1))
    subject = replace(
        subject, token=token, target=subject.target[: token + 1], target_tokens=subject.target_tokens[: token + 1]
    )
    own, cross = subject.attention("decoder"), subject.attention("cross")
    prefix = f"decoder.layers.{own.layer}"
    names = [f"{prefix}.{part}" for part in ("input", "attention", "cross.input", "cross", "feedforward", "output")]
    states = subject.record([*names, "logits"])
    word = subject.target_tokens[token]

    def row(name: str) -> Tensor:
        return states[name if name == "logits" else f"{prefix}.{name}"][0, token].float()

    about = (
        f"{subject.about} The source has {len(subject.ids)} tokens. The decoder has read {token + 1}, the last of them "
        f"“{word}”, and predicts word {token + 1}. Layer {own.layer}, head {own.head}."
    )
    vectors = matrix(
        torch.stack([row("input"), row("attention"), row("cross"), row("feedforward"), row("output")]),
        ["input", "self-attention", "cross-attention", "feed-forward", "output"],
        caption=f"the vector of “{word}”",
    )
    return Explanation(
        "decoder-step",
        TITLE,
        about,
        (
            _input(subject, row("input"), word),
            _attention(own, "Masked self-attention", _OWN.format(word=word, n=len(own.keys))),
            _attention(cross, "Cross-attention", _CROSS.format(word=word, n=len(cross.keys))),
            Step("Feed-forward layer and residuals", _REST, "", (), (vectors,)),
            _prediction(subject, row("logits")),
        ),
    )


_OWN = (
    "The query comes from “{word}”. Keys and values come from the {n} tokens that the decoder has read, “{word}” "
    "itself among "
    "them. Later words don't exist yet; in training they are masked."
)
_CROSS = (
    "The query is the vector of “{word}” after self-attention. Keys and values come from the encoder's output for "
    "all {n} source "
    "tokens, and are the same in every step."
)
_REST = (
    "The output of each sublayer is added to its input. The feed-forward layer treats every position by itself. (Layers "
    "whose norm comes after the addition normalize the sums.)"
)


def _input(subject: Subject, vector: Tensor, word: str) -> Step:
    text = (
        f"The input of the layer at “{word}”: after embedding and positions in the first layer, else the layer below."
    )
    return Step("Input", text, tables=(matrix(vector, [word], caption="input of the layer"),))


def _attention(a: Attended, title: str, text: str) -> Step:
    columns = {"score": a.scores[a.token], "weight": a.weights[a.token]}
    table = listing(a.keys, columns, f"head {a.head}: scores and weights", "weight")
    return Step(title, text, "softmax(q · k / √d)", (), (table,))


def _prediction(subject: Subject, logits: Tensor) -> Step:
    probabilities = logits.softmax(-1)
    top = probabilities.topk(min(5, len(probabilities)))
    words = [subject.piece(int(i)) for i in top.indices]
    table: LabeledTable = listing(
        words, {"logit": logits[top.indices], "probability": top.values}, "likeliest next words"
    )
    text = (
        f"The last layer's output, normalized, times the output matrix gives a logit for each of {len(logits):,} "
        f"words, and a "
        f"soft-max their probabilities. Greedy decoding takes “{words[0]}”, of probability {number(float(top.values[0]))}."
    )
    return Step("The next word", text, "p = softmax(W h)", (), (table,))
