"""Text in, text out: a model with its tokenizer, for texts of any lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..directories.run_config import Use, start_of
from ..generation import Generated, Generation, generate, row_seed
from ..generation.logits_processors import Processor
from ..generation.stopping import StopStrings, cut_at
from ..hub.generation import Ids
from ..models.build import AnyModel
from ..tokenizers.tokenizer import Tokenizer

SLOTS = 8192  # tokens (beams and new ones included) computed at once


@dataclass(frozen=True)
class Output:
    """One output for a text.

    tokens:    its pieces as the tokenizer shows them, the end-of-sequence token included where it came.
    ended:     what ended it: "eos", "stop", "length" or "stuck".
    score:     of the whole, see `Generated.scores`; log_probs: of each token (nats). None where not asked for.
    """

    text: str
    tokens: tuple[str, ...]
    ended: str
    score: float | None = None
    log_probs: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Known:
    """Only the first `size` tokens: a model may have room for more than its tokenizer has, which mean nothing."""

    size: int

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        known = logits.clone()
        known[:, self.size :] = -torch.inf
        return known


@dataclass(frozen=True)
class TextModel:
    """What reads and writes texts: a model, its tokenizer, and the task that it was trained for.

    `ids` are the tokens with roles of a model of the Hub; then its tokenizer also puts its own tokens around a text. So it
    does where its `frame` says what an encoder–decoder was trained on.
    """

    model: AnyModel
    tokenizer: Tokenizer
    task: Use
    ids: Ids | None = None

    @property
    def start(self) -> int | None:
        """The token that a decoder starts from."""
        own = None if self.ids is None else self.ids.start
        return start_of(self.tokenizer, self.task) if own is None else own

    @property
    def ends(self) -> list[int]:
        """The tokens that end an output."""
        own = [] if self.tokenizer.eos_id is None else [self.tokenizer.eos_id]
        return own if self.ids is None else sorted({*own, *self.ids.ends})

    @property
    def reader(self) -> Tokenizer:
        """The tokenizer of what the model reads; where sources have one of their own, it is another than that of outputs."""
        return self.tokenizer.sources if self.task == "translate" else self.tokenizer

    def encode(self, text: str) -> list[int]:
        """What the model reads for a text."""
        if self.ids is not None:
            return self.tokenizer.with_template([text])[0].ids
        tokenizer = self.reader
        frame = tokenizer.frame
        if frame is not None:
            return [*frame.before, *tokenizer.encode(text), *frame.after]
        bos = self.task != "translate" and tokenizer.bos_id is not None
        return tokenizer.encode(text, bos=bos, eos=self.task != "continue")

    def outputs(
        self,
        texts: Sequence[str],
        settings: Generation,
        *,
        stop: Sequence[str] = (),
        scores: bool = False,
        longest: int | None = None,
    ) -> list[list[Output]]:
        """`settings.num_samples` outputs for each text, in the order of the texts; similar lengths are decoded together.

        A language model's outputs are what it adds to the text. An output ends before the first of the `stop` texts in
        it. `longest` cuts what is read of a text to so many tokens.
        """
        prompts = [self.encode(text)[:longest] for text in texts]
        return self.outputs_of(prompts, settings, stop=stop, scores=scores)

    def outputs_of(
        self,
        prompts: Sequence[Sequence[int]],
        settings: Generation,
        *,
        stop: Sequence[str] = (),
        scores: bool = False,
    ) -> list[list[Output]]:
        """As `outputs`, for prompts that are ids."""
        seed = settings.seed if settings.seed is not None else int(torch.randint(2**62, ()))
        rows = settings.num_beams if settings.num_beams > 1 else settings.num_samples
        made: list[list[Output]] = [[] for _ in prompts]
        for group in batches([len(prompt) for prompt in prompts], rows, settings.max_new_tokens):
            found = self._generate(
                [prompts[i] for i in group], settings, stop, seeds=[row_seed(seed, i) for i in group], scores=scores
            )
            for place, i in enumerate(group):
                made[i] = self._read(found, place, prompts[i], stop)
        return made

    def stream(self, text: str, settings: Generation, emit: Callable[[str], None], *, stop: Sequence[str] = ()) -> None:
        """Generate one output and hand its text to `emit` in pieces, as tokens come."""
        self.stream_of(self.encode(text), settings, emit, stop=stop)

    def stream_of(
        self, prompt: Sequence[int], settings: Generation, emit: Callable[[str], None], *, stop: Sequence[str] = ()
    ) -> None:
        """As `stream`, for a prompt that is ids."""
        hold = max((len(item) for item in stop), default=1) - 1  # characters that may yet turn out to begin a stop text
        new: list[int] = []
        told = 0

        def tell(row: int, token: int) -> None:
            nonlocal told
            new.append(token)
            so_far = cut_at(self._text(prompt, new), stop)
            ready = len(so_far.rstrip("\ufffd")) - hold  # a character whose bytes are not all there is none yet
            if ready > told:
                emit(so_far[told:ready])
                told = ready

        self._generate([prompt], settings, stop, stream=tell)
        emit(cut_at(self._text(prompt, new), stop)[told:])

    def _generate(
        self,
        prompts: Sequence[Sequence[int]],
        settings: Generation,
        stop: Sequence[str],
        *,
        seeds: Sequence[int] | None = None,
        scores: bool = False,
        stream: Callable[[int, int], None] | None = None,
    ) -> Generated:
        return generate(
            self.model,
            prompts,
            settings=settings,
            bos_id=self.start,
            eos_id=self.ends,
            stop=StopStrings(self.tokenizer.decode, stop) if stop else None,
            stream=stream,
            processors=self._processors(prompts, settings),
            seeds=seeds,
            scores=scores,
        )

    def _processors(self, prompts: Sequence[Sequence[int]], settings: Generation) -> Sequence[Processor]:
        """What is done to logits besides the settings: as a model of the Hub does, and none but the tokenizer's tokens."""
        size = self.tokenizer.vocab_size
        known: list[Processor] = [Known(size)] if size < self.model.vocab_size else []
        if self.ids is None:
            return known
        width = 1 if self.task == "translate" else max(map(len, prompts))
        return [*known, *self.ids.processors(width, settings.max_new_tokens)]

    def _text(self, prompt: Sequence[int], new: Sequence[int]) -> str:
        """The text of new tokens: where words are joined by spaces, one that goes on with a text begins with one."""
        alone = self.tokenizer.decode(list(new))
        if self.task != "continue":
            return alone
        before, whole = self.tokenizer.decode(list(prompt)), self.tokenizer.decode([*prompt, *new])
        return whole[len(before) :] if whole.startswith(before) else alone

    def _read(self, found: Generated, row: int, prompt: Sequence[int], stop: Sequence[str]) -> list[Output]:
        return [
            Output(
                text=cut_at(self._text(prompt, ids), stop),
                tokens=tuple(self.tokenizer.tokens(ids)),
                ended=found.reasons[row][n],
                score=found.scores[row][n] if found.scores else None,
                log_probs=tuple(found.log_probs[row][n]) if found.log_probs else None,
            )
            for n, ids in enumerate(found.sequences[row])
        ]


def batches(lengths: Sequence[int], rows: int = 1, more: int = 0, padded: bool = True) -> Iterator[list[int]]:
    """Numbers of texts to compute together: alike in length, or of one length where they may not be `padded`; and with
    `rows` of `more` tokens each within `SLOTS`."""
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        full = (len(group) + 1) * rows * (lengths[i] + more) > SLOTS
        if group and (full or not (padded or lengths[i] == lengths[group[0]])):
            yield group
            group = []
        group.append(i)
    if group:
        yield group
