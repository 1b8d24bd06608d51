"""Beam search over a batch of prompts, with the semantics of Hugging Face's `generate` (transformers 5).

At every step each of a prompt's n running beams is followed by every token, and the best 2n of these candidates (more
with several end-of-sequence tokens) are looked at. Those among the first n that end become finished hypotheses, of
which the n best by Σ log p / length**length_penalty are kept; the best n that don't end run on. Lengths count new
tokens, the end-of-sequence token included.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .logits_processors import apply
from .model_interface import Decoder
from .prompts import Prompts
from .result import Hypothesis
from .stopping import SearchOptions

NONE = -torch.inf  # the score of what can't happen
CHUNK = 64  # tokens whose best is found first
WIDE = 4096  # a vocabulary worth searching by chunks


def beam_search(model: Decoder, prompts: Prompts, rules: SearchOptions) -> list[list[Hypothesis]]:
    """The `num_samples` best hypotheses of every prompt, best first."""
    search = _Beams(model, prompts, rules)
    while search.active:
        search.step()
    best = rules.settings.num_samples
    return [(found + [Hypothesis()] * best)[:best] for found in search.found]


class _Beams:
    """The running beams: row b·n + j is beam j of the b-th prompt still searched.

    Beams are paths in a tree. A step appends its nodes (parent row, token, log p) to `steps`, and nothing is ever
    copied; a hypothesis is read back from its last node when it is finished.
    """

    def __init__(self, model: Decoder, prompts: Prompts, rules: SearchOptions) -> None:
        settings = rules.settings
        self.model, self.rules, self.n = model, rules, settings.num_beams
        self.width = max(2, 1 + len(rules.eos)) * self.n  # enough that n candidates are left if every beam ends
        self.cache, logits = prompts.prefill(model)
        rows = torch.arange(len(prompts), device=logits.device).repeat_interleave(self.n)
        self.cache.reorder(rows)
        self.logits = logits[rows]
        self.eos = torch.tensor(sorted(rules.eos), device=logits.device, dtype=torch.long)
        self.history = prompts.history()[rows] if rules.processors else None
        self.scores = logits.new_full((len(prompts), self.n), NONE, dtype=torch.float32)
        self.scores[:, 0] = 0.0  # all beams are the same yet: count one
        self.limits = list(prompts.limits)
        self.active = list(range(len(prompts)))  # the prompt that each group of beams belongs to
        self.found: list[list[Hypothesis]] = [[] for _ in self.active]
        self.steps: list[tuple[list[int], list[int], list[float]]] = []

    def step(self) -> None:
        """Extend every beam by a token; prompts whose search is over leave."""
        n, length = self.n, len(self.steps) + 1
        log_probs = self.logits.float().log_softmax(-1)
        allowed = apply(self.rules.processors, self.history, log_probs)
        vocab = allowed.shape[-1]
        top, places = best_continuations(allowed, self.scores, self.width)  # (B, K); a place is beam · V + token
        ended = self._ended(top, places, vocab, length)
        final = (top / length**self.rules.settings.length_penalty).masked_fill(~ended, NONE)[:, :n]
        live, picked = top.masked_fill(ended, NONE).topk(n)
        bound = live[:, :1] / self._best_length(length) ** self.rules.settings.length_penalty
        looked_at = torch.cat([places[:, :n], places.gather(1, picked)], 1)  # (B, 2n): may finish, run on
        numbers = torch.cat([final, bound], 1).tolist()
        nodes = self._nodes(looked_at, log_probs, vocab)
        going = []
        for place, prompt in enumerate(self.active):
            for j, score in enumerate(numbers[place][:n]):
                if score > NONE:
                    self._finish(prompt, score, nodes[place][j])
            if self._goes_on(prompt, place, numbers[place][n]):
                going.append(place)
        self._advance(going, nodes, live)

    def _ended(self, top: Tensor, places: Tensor, vocab: int, length: int) -> Tensor:
        """(B, K): which candidates are complete."""
        ended = ((places % vocab)[..., None] == self.eos).any(-1)
        if length >= min(self.limits[prompt] for prompt in self.active):
            cut = [length >= self.limits[prompt] for prompt in self.active]
            ended = ended | torch.tensor(cut, device=ended.device)[:, None]
        return ended if self.rules.stop is None else ended | self._stopped(top, places, vocab)

    def _stopped(self, top: Tensor, places: Tensor, vocab: int) -> Tensor:
        """(B, K): which candidates the caller's `stop` ends."""
        assert self.rules.stop is not None
        stopped = []
        for b, (scores, row) in enumerate(zip(top.tolist(), places.tolist(), strict=True)):
            paths = [[*self._path(b * self.n + place // vocab)[0], place % vocab] for place in row]
            stopped.append([s > NONE and self.rules.stop(path) for s, path in zip(scores, paths, strict=True)])
        return torch.tensor(stopped, device=top.device)

    def _best_length(self, length: int) -> Tensor | int:
        """The length at which a running beam is compared with finished hypotheses."""
        settings = self.rules.settings
        if settings.early_stopping != "never" or settings.length_penalty <= 0:
            return length
        limits = [self.limits[prompt] for prompt in self.active]
        return torch.tensor(limits, device=self.scores.device, dtype=self.scores.dtype)[:, None]

    def _nodes(self, places: Tensor, log_probs: Tensor, vocab: int) -> list[list[tuple[int, int, float]]]:
        """For each prompt and place: (parent row, token, log p)."""
        if self.rules.log_probs:
            values = log_probs.view(len(self.active), -1).gather(1, places).tolist()
        else:
            values = [[0.0] * places.shape[1]] * len(self.active)
        return [
            [(b * self.n + place // vocab, place % vocab, value) for place, value in zip(row, row_values, strict=True)]
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
        found = self.found[prompt]
        if len(found) == self.n and score <= found[-1].score:
            return
        parent, token, log_prob = node
        tokens, log_probs = self._path(parent)
        tokens.append(token)
        reason = self.rules.ending(tokens, self.limits[prompt]) or "stop"
        found.append(Hypothesis(tokens, [*log_probs, log_prob], score, reason))
        found.sort(key=lambda hypothesis: -hypothesis.score)
        del found[self.n :]

    def _goes_on(self, prompt: int, place: int, bound: float) -> bool:
        """Whether a running beam may still enter the prompt's n best."""
        found = self.found[prompt]
        if len(found) < self.n:
            if bound == NONE and not found:  # nothing is allowed to follow: what runs is all there is
                tokens, log_probs = self._path(place * self.n)
                score = float(self.scores[place, 0]) / max(len(tokens), 1) ** self.rules.settings.length_penalty
                found.append(Hypothesis(tokens, log_probs, score))
            return bound > NONE
        return self.rules.settings.early_stopping is not True and bound > found[-1].score

    def _advance(self, going: list[int], nodes: list[list[tuple[int, int, float]]], live: Tensor) -> None:
        """Run on with the picked beams of the prompts that go on."""
        flat = [node for place in going for node in nodes[place][self.n :]]
        if not flat:
            self.active = []
            return
        parents, tokens, log_probs = (list(column) for column in zip(*flat, strict=True))
        self.steps.append((parents, tokens, log_probs))
        rows, column = torch.tensor([parents, tokens], device=live.device)
        if parents != list(range(len(self.active) * self.n)):
            self.cache.reorder(rows, cross=len(going) < len(self.active))
        if self.history is not None:
            self.history = torch.cat([self.history[rows], column[:, None]], 1)
        self.scores = live if len(going) == len(self.active) else live[torch.tensor(going, device=live.device)]
        self.active = [self.active[place] for place in going]
        self.logits = self.model.step(column[:, None], self.cache)


def best_continuations(
    log_probs: Float[Tensor, "N V"], scores: Float[Tensor, "B n"], k: int
) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """The k best of scores[b, j] + log_probs[b·n + j, token] for every b, best first, and their places j · V + token.

    The k best lie in the k chunks of tokens with the best maxima, and finding maxima costs a CPU a fifth of a top-k.
    """
    (_, vocab), (batch, n) = log_probs.shape, scores.shape
    flat = log_probs.reshape(batch, n * vocab)
    if vocab < WIDE or k > vocab // CHUNK:
        totals = (flat.view(batch, n, vocab) + scores[..., None]).flatten(1)
        top, places = totals.topk(min(k, n * vocab))
        return top, places
    whole = vocab // CHUNK * CHUNK
    best = log_probs[:, :whole].unflatten(1, (-1, CHUNK)).amax(-1)
    if whole < vocab:
        best = torch.cat([best, log_probs[:, whole:].amax(-1, keepdim=True)], 1)
    chunks = best.shape[1]
    chunk = (best.view(batch, n, chunks) + scores[..., None]).flatten(1).topk(k).indices
    beam = chunk // chunks
    token = (chunk % chunks)[..., None] * CHUNK + torch.arange(CHUNK, device=chunk.device)
    places = (beam[..., None] * vocab + token.clamp(max=vocab - 1)).flatten(1)
    totals = flat.gather(1, places) + scores.gather(1, beam).repeat_interleave(CHUNK, 1)
    top, which = totals.masked_fill((token >= vocab).flatten(1), -torch.inf).topk(k)
    return top, places.gather(1, which)
