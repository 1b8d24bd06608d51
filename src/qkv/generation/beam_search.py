"""Beam search over a batch of prompts, with the semantics of Hugging Face's `generate` (transformers 5).

Every step extends each of a prompt's n running beams by every token and keeps the best 2n of these candidates (more with
several end-of-sequence tokens). Candidates among the first n that end become finished hypotheses, of which the n best by
Σ log p / length**length_penalty are kept; the best n that don't end continue. Lengths count new tokens, the
end-of-sequence token included.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..nn.kernels.native.ranking import rank, serves
from . import pace, trace
from .logits_processors import MinNewTokens, apply
from .model_interface import DecodingModel, settled
from .prompts import Prompts
from .result import Hypothesis
from .stopping import SearchOptions

NONE = -torch.inf  # the score of an impossible candidate
CHUNK = 64  # tokens in a chunk, whose maximum is found first
WIDE = 4096  # the smallest vocabulary that is searched by chunks


def beam_search(model: DecodingModel, prompts: Prompts, rules: SearchOptions) -> list[list[Hypothesis]]:
    """Return the `num_samples` best hypotheses of every prompt, best first."""
    search = _Beams(model, prompts, rules)
    with settled(search.cache):
        while search.active:
            search.step()
            pace.chosen()
    count = rules.settings.num_samples
    return [(hypotheses + [Hypothesis()] * count)[:count] for hypotheses in search.finished]


class _Beams:
    """The running beams: row b · each + j is beam j of the b-th active prompt.

    At first a prompt has one, as all of its beams would be equal; or n if a vocabulary is too small to choose from.

    Beams are paths in a tree. A step appends its nodes (parent row, token, log p) to `steps` and copies nothing; the
    tokens of a hypothesis are collected from its last node when it is finished.
    """

    def __init__(self, model: DecodingModel, prompts: Prompts, rules: SearchOptions) -> None:
        settings = rules.settings
        self.model, self.rules, self.n = model, rules, settings.num_beams
        self.width = max(2, 1 + len(rules.eos)) * self.n  # enough that n candidates are left if every beam ends
        self.cache, logits = prompts.prefill(model)
        self.each = 1 if logits.shape[-1] >= self.width else self.n  # running beams of a prompt
        rows = torch.arange(len(prompts), device=logits.device).repeat_interleave(self.each)
        if self.each > 1:
            self.cache.reorder(rows)
        self.logits = logits[rows] if self.each > 1 else logits
        self.eos = torch.tensor(sorted(rules.eos), device=logits.device, dtype=torch.long)
        self.history = prompts.history()[rows] if rules.processors else None
        self.scores = logits.new_full((len(prompts), self.each), NONE, dtype=torch.float32)
        self.scores[:, 0] = 0.0  # only one of equal beams counts
        self.limits = list(prompts.limits)
        self.active = list(range(len(prompts)))  # the prompt that each group of beams belongs to
        self.finished: list[list[Hypothesis]] = [[] for _ in self.active]
        self.steps: list[tuple[list[int], list[int], list[float]]] = []

    def step(self) -> None:
        """Extend every beam by one token, and drop the prompts whose search is over."""
        n, length = self.n, len(self.steps) + 1
        log_probs, (top, places) = self._continuations()  # (B, K); a place is beam · V + token
        vocab = self.logits.shape[-1]
        ended = self._ended(top, places, vocab, length)
        final = (top / length**self.rules.settings.length_penalty).masked_fill(~ended, NONE)[:, :n]
        running, picked = top.masked_fill(ended, NONE).topk(n)
        bound = running[:, :1] / self._best_length(length) ** self.rules.settings.length_penalty
        candidates = torch.cat(
            [places[:, :n], places.gather(1, picked)], 1
        )  # (B, 2n): n that may finish, n that continue
        bounded_scores = torch.cat([final, bound], 1).tolist()
        nodes = self._nodes(candidates, log_probs, vocab)
        if trace.recording() and self.active[0] == 0:
            self._trace(nodes[0], bounded_scores[0][:n], running[0].tolist())
        going = []
        for place, prompt in enumerate(self.active):
            for j, score in enumerate(bounded_scores[place][:n]):
                if score > NONE:
                    self._finish(prompt, score, nodes[place][j])
            if self._continues(prompt, place, bounded_scores[place][n]):
                going.append(place)
        self._advance(going, nodes, running)

    def _continuations(self) -> tuple[Tensor | None, tuple[Tensor, Tensor]]:
        """The log-probabilities, unless nobody needs them, and the best continuations.

        If all that a processor does is to forbid the end, the normalizers do: log p = logit − log Σ eˣ.
        """
        forbidden = self._forbidden()
        vocab = self.logits.shape[-1]
        if forbidden is None or self.rules.log_probs or not is_chunked(vocab, self.width) or not serves(self.logits):
            log_probs = self.logits.float().log_softmax(-1)
            allowed = apply(self.rules.processors, self.history, log_probs)
            return log_probs, best_continuations(allowed, self.scores, self.width)
        normalizers, best = rank(self.logits, CHUNK, forbidden)
        scores = self.scores - normalizers.view_as(self.scores)
        return None, best_of_chunks(self.logits, scores, self.width, best, forbidden)

    def _forbidden(self) -> tuple[int, ...] | None:
        """The tokens that processors forbid now; None if they may do more."""
        if not self.rules.processors:
            return ()
        if len(self.rules.processors) > 1 or not isinstance(self.rules.processors[0], MinNewTokens):
            return None
        assert self.history is not None
        return self.rules.processors[0].forbidden(self.history)

    def _trace(self, nodes: list[tuple[int, int, float]], finals: list[float], running: list[float]) -> None:
        """Record the step of the first prompt: candidates that finish, then candidates that continue."""
        scores = [*finals, *running]
        beams = [trace.Beam(parent, token, score) for (parent, token, _), score in zip(nodes, scores, strict=True)]
        possible = [beam for beam in beams[self.n :] if beam.score > NONE]
        trace.add_beams(possible, [beam for beam in beams[: self.n] if beam.score > NONE])

    def _ended(self, top: Tensor, places: Tensor, vocab: int, length: int) -> Tensor:
        """(B, K): whether each candidate is complete."""
        ended = ((places % vocab)[..., None] == self.eos).any(-1)
        if length >= min(self.limits[prompt] for prompt in self.active):
            cut = [length >= self.limits[prompt] for prompt in self.active]
            ended = ended | torch.tensor(cut, device=ended.device)[:, None]
        return ended if self.rules.stop is None else ended | self._stopped(top, places, vocab)

    def _stopped(self, top: Tensor, places: Tensor, vocab: int) -> Tensor:
        """(B, K): whether the caller's `stop` ends each candidate."""
        assert self.rules.stop is not None
        stopped = []
        for b, (scores, row) in enumerate(zip(top.tolist(), places.tolist(), strict=True)):
            paths = [[*self._path(b * self.each + place // vocab)[0], place % vocab] for place in row]
            stopped.append([s > NONE and self.rules.stop(path) for s, path in zip(scores, paths, strict=True)])
        return torch.tensor(stopped, device=top.device)

    def _best_length(self, length: int) -> Tensor | int:
        """The length at which a running beam is compared with finished hypotheses."""
        settings = self.rules.settings
        if settings.early_stopping != "never" or settings.length_penalty <= 0:
            return length
        limits = [self.limits[prompt] for prompt in self.active]
        return torch.tensor(limits, device=self.scores.device, dtype=self.scores.dtype)[:, None]

    def _nodes(self, places: Tensor, log_probs: Tensor | None, vocab: int) -> list[list[tuple[int, int, float]]]:
        """(parent row, token, log p) for each prompt and place."""
        if self.rules.log_probs:
            assert log_probs is not None
            values = log_probs.view(len(self.active), -1).gather(1, places).tolist()
        else:
            values = [[0.0] * places.shape[1]] * len(self.active)
        return [
            [
                (b * self.each + place // vocab, place % vocab, value)
                for place, value in zip(row, row_values, strict=True)
            ]
            for b, (row, row_values) in enumerate(zip(places.tolist(), values, strict=True))
        ]

    def _path(self, row: int) -> tuple[list[int], list[float]]:
        """The tokens and log-probabilities of a running beam, from the tree."""
        tokens, log_probs = [], []
        for parents, step_tokens, step_log_probs in reversed(self.steps):
            tokens.append(step_tokens[row])
            log_probs.append(step_log_probs[row])
            row = parents[row]
        return tokens[::-1], log_probs[::-1]

    def _finish(self, prompt: int, score: float, node: tuple[int, int, float]) -> None:
        """Keep a finished hypothesis if it is among the prompt's n best."""
        finished = self.finished[prompt]
        if len(finished) == self.n and score <= finished[-1].score:
            return
        parent, token, log_prob = node
        tokens, log_probs = self._path(parent)
        tokens.append(token)
        reason = self.rules.ending(tokens, self.limits[prompt]) or "stop"
        finished.append(Hypothesis(tokens, [*log_probs, log_prob], score, reason))
        finished.sort(key=lambda hypothesis: -hypothesis.score)
        del finished[self.n :]

    def _continues(self, prompt: int, place: int, bound: float) -> bool:
        """Whether a running beam may still enter the prompt's n best."""
        finished = self.finished[prompt]
        if len(finished) < self.n:
            if bound == NONE and not finished:  # no token is allowed: return the running beam as it is
                tokens, log_probs = self._path(place * self.each)
                score = float(self.scores[place, 0]) / max(len(tokens), 1) ** self.rules.settings.length_penalty
                finished.append(Hypothesis(tokens, log_probs, score))
            return bound > NONE
        return self.rules.settings.early_stopping is not True and bound > finished[-1].score

    def _advance(self, going: list[int], nodes: list[list[tuple[int, int, float]]], scores: Tensor) -> None:
        """Feed the chosen beams of the prompts at the places `going` to the model."""
        flat = [node for place in going for node in nodes[place][self.n :]]
        if not flat:
            self.active = []
            return
        parents, tokens, log_probs = (list(column) for column in zip(*flat, strict=True))
        self.steps.append((parents, tokens, log_probs))
        rows, column = torch.tensor([parents, tokens], device=scores.device)
        if parents != list(range(len(self.active) * self.each)):
            self.cache.reorder(rows, cross=len(going) < len(self.active) or self.each < self.n)
        if self.history is not None:
            self.history = torch.cat([self.history[rows], column[:, None]], 1)
        self.scores = scores if len(going) == len(self.active) else scores[torch.tensor(going, device=scores.device)]
        self.active, self.each = [self.active[place] for place in going], self.n
        del self.logits  # frees its memory for the next logits
        self.logits = self.model.step(column[:, None], self.cache)


def best_continuations(
    log_probs: Float[Tensor, "N V"], scores: Float[Tensor, "B n"], k: int
) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """Return the k best of scores[b, j] + log_probs[b·n + j, token] for every b, best first, and their places j · V + token.

    The k best lie in the k chunks of tokens with the greatest maxima, and on a CPU maxima cost a fifth of a top-k.
    """
    (_, vocab), (batch, n) = log_probs.shape, scores.shape
    if not is_chunked(vocab, k):
        totals = (log_probs.reshape(batch, n, vocab) + scores[..., None]).flatten(1)
        top, places = totals.topk(min(k, n * vocab))
        return top, places
    chunked = vocab // CHUNK * CHUNK
    best = log_probs[:, :chunked].unflatten(1, (-1, CHUNK)).amax(-1)
    if chunked < vocab:
        best = torch.cat([best, log_probs[:, chunked:].amax(-1, keepdim=True)], 1)
    return best_of_chunks(log_probs, scores, k, best)


def is_chunked(vocab: int, k: int) -> bool:
    """Whether a vocabulary is so large that its k best are found by chunks."""
    return vocab >= WIDE and k <= vocab // CHUNK


def best_of_chunks(
    log_probs: Float[Tensor, "N V"],
    scores: Float[Tensor, "B n"],
    k: int,
    best: Float[Tensor, "N C"],
    forbidden: Sequence[int] = (),
) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """`best_continuations` from the maxima of chunks of tokens, among tokens that aren't forbidden."""
    (_, vocab), (batch, n), chunks = log_probs.shape, scores.shape, best.shape[1]
    flat = log_probs.reshape(batch, n * vocab)
    chunk = (best.view(batch, n, chunks) + scores[..., None]).flatten(1).topk(k).indices
    beam = chunk // chunks
    token = (chunk % chunks)[..., None] * CHUNK + torch.arange(CHUNK, device=chunk.device)
    places = (beam[..., None] * vocab + token.clamp(max=vocab - 1)).flatten(1)
    totals = flat.gather(1, places) + scores.gather(1, beam).repeat_interleave(CHUNK, 1)
    outside = token >= vocab
    for each in forbidden:
        outside = outside | (token == each)
    top, which = totals.masked_fill(outside.flatten(1), -torch.inf).topk(k)
    return top, places.gather(1, which)
