"""One window of a sound, which the encoder reads once: its language, whether anything is said, decoding with fallback."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ....core.layout import Layout
from ....generation import Generation, generate
from ....generation.logits_processors import Processor
from ....nn.kv_cache.cache import Cache
from ....nn.models.transformer import TransformerModel
from ..loaded import LoadedModel
from .codes import Codes
from .timestamps import TimestampRules

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class Thresholds:
    """When a text is not trusted, and is decoded again at the next temperature (Radford et al. 2022, §4.5).

    compression:     the most that its bytes shrink by zlib: more is a repetition.
    log_probability: the least mean log-probability of its tokens (nats).
    no_speech:       the probability of silence above which a text below `log_probability` is dropped.

    None turns a threshold off.
    """

    compression: float | None = 2.4
    log_probability: float | None = -1.0
    no_speech: float | None = 0.6


@dataclass(frozen=True)
class Decoded:
    """What a window says: its tokens without the end, and how likely they are.

    log_probability: the mean over the tokens, the end included.
    log_probs:       of each token, among those that were allowed; empty for beams.
    """

    tokens: list[int]
    log_probability: float
    log_probs: list[float]
    no_speech: float | None
    temperature: float
    silent: bool = False


@dataclass
class _Recorder:
    """A processor that changes nothing, and remembers the log-probabilities of the tokens that the others left."""

    steps: list[Tensor] = field(default_factory=list)

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        self.steps.append(logits[0].float().log_softmax(-1))
        return logits


class HeardWindow:
    """A `DecodingModel` of one sound whose encoder has run: it starts from a copy of its cache."""

    def __init__(self, run: LoadedModel, codes: Codes, features: Float[Tensor, "1 mels frames"]) -> None:
        assert isinstance(run.model, TransformerModel)
        self.run, self.codes, self.model = run, codes, run.model
        self.features = features.to(run.model.device)
        with torch.inference_mode():
            self.heard: Cache = run.model.start(source=self.features, cache=run.generation.cache)
        self.is_encoder_decoder, self.vocab_size = True, run.model.vocab_size
        self.max_positions, self.device, self.spec = run.model.max_positions, run.model.device, run.model.spec

    def start(self, batch_size: int | None = None, *, source: Tensor | None = None, **options: Any) -> Cache:
        rows = len(source) if source is not None else batch_size or 1
        return self.heard.fork(torch.zeros(rows, dtype=torch.int64, device=self.device))

    def step(self, ids: Tensor, cache: Cache, layout: Layout | None = None) -> Tensor:
        return self.model.step(ids, cache, layout)

    def modules(self) -> Iterator[nn.Module]:
        return self.model.modules()

    # -- before the text ----------------------------------------------------------------------------------------

    @torch.inference_mode()
    def after(self, ids: Sequence[int]) -> Float[Tensor, " V"]:
        """The probabilities of the next token after some tokens."""
        probabilities: Tensor = (
            self.step(torch.tensor([list(ids)], device=self.device), self.start()).float().softmax(-1)
        )
        return probabilities[0]

    def language(self) -> tuple[str, float]:
        """The likeliest language, and its probability among the languages."""
        codes, numbers = list(self.codes.languages), list(self.codes.languages.values())
        probabilities = self.after([self.codes.start])[numbers]
        best = int(probabilities.argmax())
        return codes[best], float(probabilities[best] / probabilities.sum())

    # -- the text -----------------------------------------------------------------------------------------------

    def decode(
        self,
        prompt: Sequence[int],
        timestamps: bool,
        temperatures: Sequence[float],
        limits: Thresholds,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> Decoded:
        """The text after a prompt, decoded at the first temperature at which it can be trusted, else at the last.

        options: fields of `Generation`, such as `num_beams`.
        """
        no_speech = self._no_speech(prompt)
        for temperature in temperatures:
            decoded = self._decoded(prompt, timestamps, temperature, no_speech, seed, options or {})
            unlikely = limits.log_probability is not None and decoded.log_probability < limits.log_probability
            if unlikely and limits.no_speech is not None and (no_speech or 0.0) > limits.no_speech:
                return Decoded(**{**vars(decoded), "silent": True})
            text = self.text(decoded.tokens)
            if not unlikely and (limits.compression is None or compression(text) <= limits.compression):
                return decoded
        return decoded

    def _no_speech(self, prompt: Sequence[int]) -> float | None:
        """The probability of the token for silence, which follows the start; None for models without timestamps."""
        if self.codes.without is None:
            return None
        begin = prompt.index(self.codes.start)
        return float(self.after(prompt[: begin + 1])[self.codes.without - 1])

    def _decoded(
        self,
        prompt: Sequence[int],
        timestamps: bool,
        temperature: float,
        no_speech: float | None,
        seed: int,
        options: Mapping[str, Any],
    ) -> Decoded:
        sampled = {"do_sample": True, "temperature": temperature, "num_beams": 1, "top_k": None, "seed": seed}
        greedy = {"do_sample": None, "temperature": None}
        settings: Generation = self.run.generation.replace({**options, **(sampled if temperature else greedy)})
        recorder = _Recorder()
        processors = [*self._processors(prompt, timestamps), *([recorder] if settings.num_beams == 1 else [])]
        made = generate(
            self, self.features, target=[list(prompt)], settings=settings, eos_id=self.codes.ends, processors=processors
        )
        tokens = list(made.sequences[0][0])
        log_probs = [float(step[token]) for step, token in zip(recorder.steps, tokens, strict=False)]
        score = sum(log_probs) / max(len(log_probs), 1) if made.scores is None else float(made.scores[0][0] or 0.0)
        if tokens and tokens[-1] in self.codes.ends:
            tokens.pop()
        return Decoded(tokens, score, log_probs, no_speech, temperature)

    def _processors(self, prompt: Sequence[int], timestamps: bool) -> list[Processor]:
        own: list[Processor] = (
            [] if self.run.ids is None else list(self.run.ids.processors(len(prompt), self.vocab_size))
        )
        first = self.codes.first
        if not timestamps or first is None:
            return own
        eos = self.codes.ends[0]
        return [*own, TimestampRules(len(prompt), first, eos, self.codes.without, self.codes.latest)]

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without timestamps and special tokens."""
        first = self.codes.first or self.vocab_size
        return self.run.words.decode([token for token in tokens if token < first])


def compression(text: str) -> float:
    """How many times fewer bytes a text has when zlib compresses it: well above 2 for one that repeats itself."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0
