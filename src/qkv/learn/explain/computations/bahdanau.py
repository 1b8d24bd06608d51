"""Bahdanau's attention: an RNN aligns each target word with the states of the source."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ....core.layout import Layout
from ....core.spec import counted
from ....nn.attention.scores import Additive, AdditiveModule
from ....nn.models.recurrent.alignment import Align
from ....nn.models.recurrent.attention import AttentiveDecoder
from ....nn.models.recurrent.decoder import DecoderWidths
from ....nn.models.recurrent.encoder import EncodedSource
from ....nn.models.recurrent.model import RecurrentModel
from ..explanation import Explanation
from ..one_query import FEW
from ..steps import LabeledTable, Step, dot, listing, matrix
from ..subject import Subject

TITLE = "Bahdanau's attention: an RNN looks back at its source"
SOURCE = ("she", "saw", "a", "red", "boat")
STATES = [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [-0.5, 0.5], [-1.0, -0.5]]
BEFORE = [0.5, -1.0]
W_S, W_H, V = [[1.0, 0.5], [-0.5, 1.0]], [[2.0, -1.0], [0.5, 1.5]], [1.0, -1.0]


def example() -> Explanation:
    widths = DecoderWidths(cell="gru", d_e=2, d_h=1, d_s=2, d_m=2, n_layers=1, dropout=0.0, fits=False)
    align = Align(Additive(d_a=2), widths)
    assert isinstance(align.score, AdditiveModule)
    with torch.no_grad():
        for parameter, value in ((align.score.query, W_S), (align.score.key, W_H), (align.score.v, V)):
            parameter.copy_(torch.tensor(value).view(parameter.shape))
        states = torch.tensor([STATES])
        memory = EncodedSource(states, Layout.full(len(SOURCE)))
        memory = EncodedSource(states, memory.layout, keys=align.keys(memory))
        g = torch.tensor([[BEFORE]])
        weights = align(g, memory)[0, 0]
    about = "Five source states of width 2, and the decoder's state before the third target word."
    return Explanation("bahdanau", TITLE, about, _steps(align, memory, g[0, 0], weights, SOURCE, "the third word"))


@torch.no_grad()
def of(subject: Subject) -> Explanation:
    model = subject.model
    assert isinstance(model, RecurrentModel) and isinstance(model.decoder, AttentiveDecoder)
    request = subject.requests[-1]
    assert request.known_weights is not None
    count = len(subject.target)
    token = subject.choose("token", subject.token, count, min(2, count - 1))
    memory = model.read(subject.inputs[0])
    word = subject.target_tokens[token]
    about = (
        f"{subject.about} The decoder has read {counted(token + 1, 'token')}, the last of them “{word}”, and writes word "
        f"{token + 1}."
    )
    g, weights = request.q[0, token, 0], request.known_weights[0, 0, token]
    steps = _steps(model.decoder.align, memory, g, weights, subject.tokens, f"word {token + 1}")
    everything = matrix(
        request.known_weights[0, 0], subject.target_tokens, subject.tokens, "weights", True, around=token
    )
    last = Step(
        "The alignment",
        "The weights of all target words: row by row, what the decoder looks at after it has read that token.",
        tables=(everything,),
    )
    return Explanation("bahdanau", TITLE, about, (*steps, last))


@torch.no_grad()
def _steps(
    align: Align, memory: EncodedSource, g: Tensor, weights: Tensor, tokens: tuple[str, ...], word: str
) -> tuple[Step, ...]:
    states = memory.states[0].float()
    scores = align.scores(g[None, None], memory, None)[0, 0].float()
    context = weights.float() @ states
    lines: tuple[str, ...] = ()
    if len(tokens) <= FEW:
        lines = tuple(f"c[{i + 1}] = {dot(weights, states[:, i], FEW)}" for i in range(min(FEW, states.shape[1])))
    shares = listing(
        tokens,
        {"score e": scores, "exp(e)": (scores - scores.max()).exp(), "weight a": weights.float()},
        "weights of the source tokens",
        "weight a",
    )
    soft = "exp(e) is divided by its sum over the source. (The largest score is subtracted first.) The weights add up to 1."
    if abs(float(weights.sum()) - 1) > 1e-3 or not torch.allclose(scores.softmax(-1), weights.float(), atol=1e-4):
        soft = "Scores become weights over the source tokens that this alignment allows."
    return (
        Step(
            "States",
            f"The encoder has read the source in both directions, and its state h for each of {len(tokens)} tokens "
            f"is kept. s is the "
            f"decoder's state with which {word} is aligned.",
            "",
            (),
            (matrix(states, tokens, caption="source states h"), matrix(g, ["s"], caption="decoder state")),
        ),
        _scores(align.score, memory, g, scores, tokens),
        Step("Soft-max", soft, "a = softmax(e)", (), (shares,)),
        Step(
            "Context",
            "The context is the weighted mean of the source states. The decoder computes its next state from it and "
            "the last "
            "word, so no single vector has to hold the whole sentence.",
            "c = Σ a h",
            lines,
            (matrix(context, ["c"], caption="context"),),
        ),
    )


def _scores(score: nn.Module, memory: EncodedSource, g: Tensor, scores: Tensor, tokens: tuple[str, ...]) -> Step:
    assert memory.keys is not None
    keys = memory.keys[0, :, 0].float()
    if not isinstance(score, AdditiveModule):
        return Step(
            "Scores",
            "How well the decoder's state matches each source state.",
            "e = score(s, h)",
            (),
            (listing(tokens, {"score e": scores}, "scores", "score e"),),
        )
    query = score.queries(g[None, None, None])[0, 0, 0].float()
    bent = torch.tanh(query + keys)
    v = score.v[0].float()
    lines: tuple[str, ...] = ()
    if len(v) <= 4 and len(tokens) <= FEW:
        lines = tuple(f"{token}: {dot(v, row)}" for token, row in zip(tokens, bent, strict=True))
    projected: tuple[LabeledTable, ...] = (
        matrix(query, ["W_s s"], caption="W_s s: once for each word"),
        matrix(keys, tokens, caption="W_h h: once for each sentence"),
    )
    return Step(
        "Scores",
        "A small network compares the decoder's state with each source state. W_h h does not depend on the word "
        "that is written, so it "
        "is computed once.",
        "e = vᵀ tanh(W_s s + W_h h)",
        lines,
        (
            *projected,
            matrix(bent, tokens, caption="tanh(W_s s + W_h h)"),
            matrix(v, ["v"], caption="v"),
            listing(tokens, {"score e": scores}, "scores", "score e"),
        ),
    )
