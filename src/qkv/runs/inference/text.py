"""`TextModel`: a model with its tokenizer, which generates texts from texts of any lengths, in batches or as a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import several
from ...data.tokenizers.tokenizer import Tokenizer
from ...generation import Acceptance, Generated, Generation, generate, row_seed
from ...generation.logits_processors import Processor
from ...generation.prompts import length_groups
from ...generation.stopping import StopStrings, cut_at
from ...io.directories.run_config import Use, start_of
from ...io.hub.generation import Ids
from ...nn.models.build import AnyModel

SLOTS = 8192  # the most tokens of a batch, beams and new tokens included


@dataclass(frozen=True)
class Output:
    """One output for a text.

    tokens:    its pieces as the tokenizer shows them, with the end-of-sequence token if it was generated.
    ended:     why it ended: "eos", "stop", "length" or "stuck".
    score:     see `Generated.scores`; log_probs: of each token (nats). None unless requested.
    acceptance: how speculative decoding went; None without it.
    """

    text: str
    tokens: tuple[str, ...]
    ended: str
    score: float | None = None
    log_probs: tuple[float, ...] | None = None
    acceptance: Acceptance | None = None


@dataclass(frozen=True)
class Known:
    """Allow the first `size` tokens only: a model's vocabulary may be larger than its tokenizer's."""

    size: int
    reads_ids = False

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        known = logits.clone()
        known[:, self.size :] = -torch.inf
        return known


@dataclass(frozen=True)
class TextModel:
    """A model, its tokenizer, and the task that it was trained for.

    `ids` are the special tokens of a Hub model, whose tokenizer puts its own tokens around a text. So does a tokenizer
    with a `frame`, that of the encoder–decoder that it came with. `draft` is a smaller model with the same tokenizer, for
    speculative decoding.
    """

    model: AnyModel
    tokenizer: Tokenizer
    task: Use
    ids: Ids | None = None
    draft: AnyModel | None = None

    @property
    def start(self) -> int | None:
        """The starting token of the decoder."""
        own = None if self.ids is None else self.ids.start
        return start_of(self.tokenizer, self.task) if own is None else own

    @property
    def ends(self) -> list[int]:
        """The tokens that end an output."""
        own = [] if self.tokenizer.eos_id is None else [self.tokenizer.eos_id]
        return own if self.ids is None else sorted({*own, *self.ids.ends})

    @property
    def reader(self) -> Tokenizer:
        """The tokenizer of the model's input, which may be another than that of its output."""
        return self.tokenizer.sources if self.task == "translate" else self.tokenizer

    def encode(self, text: str) -> list[int]:
        """Return the ids that the model reads for a text."""
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
        stop: str | Sequence[str] = (),
        scores: bool = False,
        longest: int | None = None,
    ) -> list[list[Output]]:
        """Return `settings.num_samples` outputs for each text, in the order of the texts.

        A language model's outputs are continuations without the text. An output ends before the first `stop` string in
        it. `longest` truncates texts to that many tokens.
        """
        prompts = [self.encode(text)[:longest] for text in texts]
        return self.outputs_of(prompts, settings, stop=stop, scores=scores)

    def outputs_of(
        self,
        prompts: Sequence[Sequence[int]],
        settings: Generation,
        *,
        stop: str | Sequence[str] = (),
        scores: bool = False,
        numbers: Sequence[int] | None = None,
    ) -> list[list[Output]]:
        """As `outputs`, for prompts of ids. Prompts of similar lengths are decoded together.

        numbers: of the prompts among more of them, on which the seeds of samples depend.
        """
        stop = several.texts(stop, "stop strings")
        seed = settings.seed if settings.seed is not None else int(torch.randint(2**62, ()))
        rows = settings.num_beams if settings.num_beams > 1 else settings.num_samples
        outputs: list[list[Output]] = [[] for _ in prompts]
        for group in length_groups([len(prompt) + settings.max_new_tokens for prompt in prompts], SLOTS // rows):
            seeds = [row_seed(seed, i if numbers is None else numbers[i]) for i in group] if settings.samples else None
            generated = self.generated(
                [prompts[i] for i in group],
                settings,
                stop,
                seeds=seeds,
                scores=scores,
            )
            for place, i in enumerate(group):
                outputs[i] = self._outputs_at(place, generated, prompts[i], stop)
        return outputs

    def stream_of(
        self,
        prompt: Sequence[int],
        settings: Generation,
        emit: Callable[[str], None],
        *,
        stop: str | Sequence[str] = (),
    ) -> Output:
        """Generate one output for a prompt of ids, and pass its text to `emit` in pieces, as tokens are generated."""
        stop = several.texts(stop, "stop strings")
        held_back = max((len(item) for item in stop), default=1) - 1  # characters that may begin a stop string
        new: list[int] = []
        emitted = 0

        def receive(row: int, token: int) -> None:
            nonlocal emitted
            new.append(token)
            text = cut_at(self._text(prompt, new), stop)
            ready = len(text.rstrip("\ufffd")) - held_back  # \ufffd: the bytes of a character are not complete yet
            if ready > emitted:
                emit(text[emitted:ready])
                emitted = ready

        generated = self.generated([prompt], settings, stop, stream=receive)
        emit(cut_at(self._text(prompt, new), stop)[emitted:])
        return self._outputs_at(0, generated, prompt, stop)[0]

    def generated(
        self,
        prompts: Sequence[Sequence[int]],
        settings: Generation,
        stop: Sequence[str] = (),
        *,
        seeds: Sequence[int] | None = None,
        scores: bool = False,
        stream: Callable[[int, int], None] | None = None,
    ) -> Generated:
        """Generate ids for prompts of ids that are decoded together."""
        return generate(
            self.model,
            prompts,
            settings=settings,
            bos_id=self.start,
            eos_id=self.ends,
            stop=StopStrings(self.tokenizer.decode, stop) if stop else None,
            stream=stream,
            processors=self.processors(prompts, settings),
            seeds=seeds,
            scores=scores,
            draft=self.draft,
        )

    def processors(self, prompts: Sequence[Sequence[int]], settings: Generation) -> Sequence[Processor]:
        """Processors in addition to the settings: one that allows only the tokenizer's tokens, and a Hub model's
        processors."""
        size = self.tokenizer.vocab_size
        allowed: list[Processor] = [Known(size)] if size < self.model.vocab_size else []
        if self.ids is None:
            return allowed
        width = 1 if self.task == "translate" else max(map(len, prompts))
        return [*allowed, *self.ids.processors(width, settings.max_new_tokens)]

    def _text(self, prompt: Sequence[int], new: Sequence[int]) -> str:
        """The text of new tokens, as the continuation of the prompt's text: it may begin with a space."""
        alone = self.tokenizer.decode(list(new))
        if self.task != "continue":
            return alone
        before, together = self.tokenizer.decode(list(prompt)), self.tokenizer.decode([*prompt, *new])
        return together[len(before) :] if together.startswith(before) else alone

    def _outputs_at(self, place: int, generated: Generated, prompt: Sequence[int], stop: Sequence[str]) -> list[Output]:
        return [
            Output(
                text=cut_at(self._text(prompt, ids), stop),
                tokens=tuple(self.tokenizer.tokens(ids)),
                ended=generated.reasons[place][n],
                score=generated.scores[place][n] if generated.scores else None,
                log_probs=tuple(generated.log_probs[place][n]) if generated.log_probs else None,
                acceptance=generated.acceptance[place][n] if generated.acceptance else None,
            )
            for n, ids in enumerate(generated.sequences[place])
        ]
