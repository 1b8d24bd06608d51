"""Text in, text out: generation with a tokenizer on both sides, whatever the lengths of the texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..data.tokenizer import Tokenizer
from ..generate import Generated, Generation, generate, row_seed

SLOTS = 8192  # tokens (beams and new ones included) decoded at once


@dataclass(frozen=True)
class Output:
    """One output for a text.

    tokens:    its pieces as the tokenizer shows them, the end-of-sequence token included where it came.
    score:     of the whole, see `Generated.scores`; log_probs: of each token (nats). None where not asked for.
    ended:     what ended it: "eos", "stop", "length" or "stuck".
    """

    text: str
    tokens: tuple[str, ...]
    ended: str
    score: float | None = None
    log_probs: tuple[float, ...] | None = None


def outputs(
    model: Any,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    settings: Generation,
    *,
    stop: Sequence[str] = (),
    scores: bool = False,
) -> list[list[Output]]:
    """`settings.num_samples` outputs for each text, in the order of the texts; similar lengths are decoded together.

    A language model's outputs are what it adds to the text. An output ends before the first of the `stop` texts in it.
    """
    prompts = [encode(model, tokenizer, text) for text in texts]
    seed = settings.seed if settings.seed is not None else int(torch.randint(2**62, ()))
    made: list[list[Output]] = [[] for _ in texts]
    rows = settings.num_beams if settings.num_beams > 1 else settings.num_samples
    for group in batches([len(prompt) for prompt in prompts], rows, settings.max_new_tokens):
        found = generate(
            model,
            [prompts[i] for i in group],
            settings=settings,
            bos_id=tokenizer.bos_id,
            eos_id=tokenizer.eos_id,
            stop=_stopper(tokenizer, stop),
            seeds=[row_seed(seed, i) for i in group],
            scores=scores,
        )
        for place, i in enumerate(group):
            before = () if model.is_encoder_decoder else prompts[i]
            made[i] = _read(tokenizer, found, place, before, stop)
    return made


def encode(model: Any, tokenizer: Tokenizer, text: str) -> list[int]:
    """What the model reads for a text: a source with its end, or the beginning of a text to go on with."""
    if model.is_encoder_decoder:
        return tokenizer.encode(text, eos=True)
    return tokenizer.encode(text, bos=tokenizer.bos_id is not None)


def batches(lengths: Sequence[int], rows: int = 1, more: int = 0) -> Iterator[list[int]]:
    """Numbers of texts to compute together: alike in length, and with `rows` of `more` tokens each within `SLOTS`."""
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if group and (len(group) + 1) * rows * (lengths[i] + more) > SLOTS:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def stream(
    model: Any,
    tokenizer: Tokenizer,
    text: str,
    settings: Generation,
    emit: Callable[[str], None],
    *,
    stop: Sequence[str] = (),
) -> None:
    """Generate one output and hand its text to `emit` in pieces, as tokens come."""
    prompt = encode(model, tokenizer, text)
    before = [] if model.is_encoder_decoder else prompt
    hold = max((len(item) for item in stop), default=1) - 1  # characters that may yet turn out to begin a stop text
    new: list[int] = []
    told = 0

    def tell(row: int, token: int) -> None:
        nonlocal told
        new.append(token)
        so_far = _cut(continuation(tokenizer, before, new), stop)
        ready = len(so_far.rstrip("\ufffd")) - hold  # a character whose bytes are not all there is no character yet
        if ready > told:
            emit(so_far[told:ready])
            told = ready

    generate(
        model,
        [prompt],
        settings=settings,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        stop=_stopper(tokenizer, stop),
        stream=tell,
    )
    emit(_cut(continuation(tokenizer, before, new), stop)[told:])


def continuation(tokenizer: Tokenizer, before: Sequence[int], new: Sequence[int]) -> str:
    """The text that new tokens add to those before them: where words are joined by spaces, that begins with one."""
    if not before:
        return tokenizer.decode(list(new))
    start, whole = tokenizer.decode(list(before)), tokenizer.decode([*before, *new])
    return whole[len(start) :] if whole.startswith(start) else tokenizer.decode(list(new))


def _stopper(tokenizer: Tokenizer, stop: Sequence[str]) -> Callable[[list[int]], bool] | None:
    if not stop:
        return None
    if not all(stop):
        raise ValueError("a stop text is empty; give the text at which an output is to end")
    return lambda tokens: any(item in tokenizer.decode(tokens) for item in stop)


def _cut(text: str, stop: Sequence[str]) -> str:
    return text[: min((at for item in stop if (at := text.find(item)) >= 0), default=len(text))]


def _read(
    tokenizer: Tokenizer, found: Generated, row: int, before: Sequence[int], stop: Sequence[str]
) -> list[Output]:
    scores = found.scores[row] if found.scores else [None] * len(found.sequences[row])
    log_probs = found.log_probs[row] if found.log_probs else [None] * len(found.sequences[row])
    return [
        Output(
            _cut(continuation(tokenizer, before, ids), stop),
            tuple(tokenizer.tokens(ids)),
            reason,
            score,
            None if values is None else tuple(values),
        )
        for ids, reason, score, values in zip(
            found.sequences[row], found.reasons[row], scores, log_probs, strict=True
        )
    ]
