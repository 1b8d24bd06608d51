"""The best continuations among all beams and all tokens, without sorting vocabularies."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 64  # tokens whose best is found first
WIDE = 4096  # a vocabulary worth searching by chunks


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
