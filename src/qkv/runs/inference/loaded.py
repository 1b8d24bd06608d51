"""`LoadedModel`: a trained model with its tokenizer, generation settings, task and recipe, for inference functions.

It generates texts from texts of any lengths, in batches or as a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ...core import several
from ...core.spec import brief
from ...data.tokenizers.tokenizer import Tokenizer
from ...generation import Generated, Generation, generate, row_seed
from ...generation.logits_processors import Processor
from ...generation.prompts import length_groups
from ...generation.stopping import StopStrings, cut_at
from ...io.directories.locate import name_of
from ...io.directories.origin import Origin
from ...io.directories.run_config import Use, check_fit, check_task, start_of, usual_task
from ...io.hub.generation import Ids
from ...nn.models.build import AnyModel
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.joint import MediaInputs, TimedVideo
from .output import SLOTS, Known, Output

if TYPE_CHECKING:
    from ...data.batching.settings import Batching
    from ...data.source import Source
    from ...data.task import Task
    from ...generation.grammar.rules import Grammar
    from ...nn.models.joint import Medium
    from ..recipes.recipe import Recipe


TextMedia = Mapping[str, Sequence[NDArray[np.generic] | TimedVideo]]
"""Pictures, sounds … of one text as the model reads them, by the names of their media."""


@dataclass(frozen=True, repr=False)
class LoadedModel:
    """A trained model with everything that inference needs.

    model:      in evaluation mode.
    tokenizer:  the one that it was trained with; None if the directory has none, so the model takes and gives ids.
    generation: the default settings of generation.
    task:       what the model does with a text, see `Use`; by default what its stacks are for.
    recipe:     the recipe of its training; None if the directory has no `recipe.yaml`.
    path:       where it was loaded from.
    origin:     the other settings of a Hub directory.
    allow_pickle: whether the weights of sentence-transformers' dense layers in the directory may be pickles.
    grammar:    what outputs may be; anything by default. `constrained` sets it.
    """

    model: AnyModel
    tokenizer: Tokenizer | None
    generation: Generation = field(default_factory=Generation)
    task: Use = ""  # type: ignore[assignment]  # replaced by the usual one
    recipe: Recipe | None = None
    path: Path | None = None
    origin: Origin | None = None
    allow_pickle: bool = False
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        if not self.task:
            object.__setattr__(self, "task", usual_task(self.model.spec))
        check_task(self.task, self.model.spec, self.name)
        if self.tokenizer is not None:
            check_fit(self.tokenizer, self.model.spec, self.name)

    def __repr__(self) -> str:
        """One line: where it is from, what it does, its model and its tokenizer."""
        tokenizer = "no tokenizer" if self.tokenizer is None else self.tokenizer.name
        return f"{type(self).__name__}({self.name}: {self.task}, {self.model.spec!r}, {tokenizer})"

    def _repr_html_(self) -> str:
        tokenizer = (
            ""
            if self.tokenizer is None
            else f"<details><summary>tokenizer</summary>{self.tokenizer._repr_html_()}</details>"
        )
        return f"<p><b>{escape(self.name)}</b>: {escape(self.task)}</p>{self.model.spec._repr_html_()}{tokenizer}"

    @property
    def name(self) -> str:
        """The run's directory, or the name of the model in the package, for messages."""
        return "this run" if self.path is None else name_of(self.path)

    @property
    def title(self) -> str:
        """The name of the run's directory, without the path to it, for pages."""
        return self.name if self.path is None else self.path.absolute().name

    @cached_property
    def warned_about(self) -> set[tuple[str, str]]:
        """("word", …) and ("tag", …) for what `unknown_words.warn` has warned about."""
        return set()

    @property
    def words(self) -> Tokenizer:
        """The tokenizer. Raises ValueError if there is none."""
        if self.tokenizer is None:
            raise ValueError(f"{self.name} has no tokenizer, so it reads no texts; give ids to .model")
        return self.tokenizer

    @property
    def batching(self) -> Batching:
        """How large the batches of its training were."""
        from ...data.batching.settings import Batching  # imported here: generating does without

        return Batching() if self.recipe is None else self.recipe.batching

    @property
    def media(self) -> tuple[Medium, ...]:
        """What the model reads beside tokens."""
        embedding = getattr(getattr(self.model.spec, "output", None), "embedding", None)
        return getattr(embedding, "media", ())

    @property
    def source(self) -> Source | None:
        """The data that it was trained on; None if there is no recipe."""
        return None if self.recipe is None else self.recipe.data

    @property
    def trained_on(self) -> Task | None:
        """The task of the recipe; None if there is no recipe, or it has no task."""
        return None if self.recipe is None else self.recipe.task

    @property
    def ids(self) -> Ids | None:
        """The special tokens of a Hub model, whose tokenizer puts its own tokens around a text."""
        return None if self.origin is None or self.origin.is_ours else self.origin.ids

    @property
    def roles(self) -> Ids:
        """The tokens that end outputs, are forced into them or banned, as the directory says, also if qkv trained its
        model further."""
        return Ids() if self.origin is None else self.origin.ids

    @property
    def start(self) -> int | None:
        """The starting token of the decoder."""
        own = None if self.ids is None else self.ids.start
        return start_of(self.words, self.task) if own is None else own

    def shifted(self, ids: Sequence[int]) -> list[int]:
        """The input of a decoder that reads the encoder's text one token behind: it starts from the starting token or, if
        the family says so (mBART), from the text's last token."""
        from ...io.families import FAMILIES  # imported here: generating does without

        model_type = "" if self.origin is None else str(self.origin.config.get("model_type"))
        wraps = model_type in FAMILIES and FAMILIES[model_type].wraps
        return [ids[-1] if wraps else self.start or 0, *ids[:-1]]

    @property
    def ends(self) -> list[int]:
        """The tokens that end an output."""
        own = [] if self.words.eos_id is None else [self.words.eos_id]
        return own if self.origin is None else sorted({*own, *self.roles.ends})

    @property
    def reader(self) -> Tokenizer:
        """The tokenizer of the model's input, which may be another than that of its output."""
        return self.words.sources if self.task == "translate" else self.words

    def between(self, src_lang: str, tgt_lang: str) -> Self:
        """Return the run that translates from one language into another. Codes are "eng_Latn" in NLLB, "fr" in M2M-100, and
        "fr_XX" in mBART.

        Raises ValueError for a model without language tokens, and for a language that the model lacks.
        """
        from ...io.hub.languages import between

        if self.task != "translate" or self.origin is None:
            raise ValueError(
                f"{self.name} doesn't translate among languages that are chosen; leave out src_lang and tgt_lang"
            )
        tokenizer, ids = between(self.words, self.origin.ids, src_lang, tgt_lang, self.name)
        return replace(self, tokenizer=tokenizer, origin=replace(self.origin, ids=ids))

    def encode(self, text: str, tokenizer: Tokenizer | None = None) -> list[int]:
        """Return the ids that the model reads for a text, or another tokenizer's ids, such as `words.targets`."""
        if self.ids is not None:
            return (tokenizer or self.words).with_template([text])[0].ids
        tokenizer = tokenizer or self.reader
        frame = tokenizer.frame
        if frame is not None:
            return [*frame.before, *tokenizer.encode(text), *frame.after]
        bos = self.task != "translate" and tokenizer.bos_id is not None
        return tokenizer.encode(text, bos=bos, eos=self.task != "continue")

    def outputs_of(
        self,
        prompts: Sequence[Sequence[int]],
        settings: Generation,
        *,
        stop: str | Sequence[str] = (),
        scores: bool = False,
        numbers: Sequence[int] | None = None,
        ends: Sequence[int] = (),
        draft: AnyModel | None = None,
        media: Sequence[TextMedia] = (),
    ) -> list[list[Output]]:
        """Return `settings.num_samples` outputs for each prompt of ids. Prompts of similar lengths are decoded together.

        A language model's outputs are continuations without the prompt. An output ends before the first `stop` string.

        numbers: of the prompts among more of them, on which the seeds of samples depend.
        ends:    tokens that end an output, in addition to the model's.
        draft:   a smaller model with the same tokenizer, for speculative decoding.
        media:   of each prompt: the pictures, sounds … in the places of its placeholder tokens.
        """
        stop = several.texts(stop, "stop strings")
        seed = settings.seed if settings.seed is not None else int(torch.randint(2**62, ()))
        rows = settings.num_beams if settings.num_beams > 1 else settings.num_samples
        outputs: list[list[Output]] = [[] for _ in prompts]
        alike = self.roles.depend_on_length and self.task != "translate"
        lengths = [len(prompt) + settings.max_new_tokens for prompt in prompts]
        for group in length_groups(lengths, SLOTS // rows, padded=not alike):
            seeds = [row_seed(seed, i if numbers is None else numbers[i]) for i in group] if settings.samples else None
            generated = self.generated(
                [prompts[i] for i in group],
                settings,
                stop,
                seeds=seeds,
                scores=scores,
                ends=ends,
                draft=draft,
                media=_together([media[i] for i in group] if media else []),
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
        ends: Sequence[int] = (),
        draft: AnyModel | None = None,
        media: TextMedia | None = None,
    ) -> Output:
        """Generate one output for a prompt of ids, and pass its text to `emit` in pieces, as tokens are generated.

        Other arguments are as in `outputs_of`.
        """
        stop = several.texts(stop, "stop strings")
        held_back = max((len(item) for item in stop), default=1) - 1  # characters that may begin a stop string
        new: list[int] = []
        emitted = 0

        def receive(row: int, token: int) -> None:
            nonlocal emitted
            new.append(token)
            text = cut_at(self.text_of(prompt, new), stop)
            ready = len(text.rstrip("\ufffd")) - held_back  # \ufffd: the bytes of a character are not complete yet
            if ready > emitted:
                emit(text[emitted:ready])
                emitted = ready

        beside = _together([media] if media else [])
        generated = self.generated([prompt], settings, stop, stream=receive, ends=ends, draft=draft, media=beside)
        emit(cut_at(self.text_of(prompt, new), stop)[emitted:])
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
        ends: Sequence[int] = (),
        draft: AnyModel | None = None,
        media: MediaInputs | None = None,
    ) -> Generated:
        """Generate ids for prompts of ids that are decoded together."""
        if self.task != "translate":
            settings = self.roles.bounded(settings, max(map(len, prompts)))
        return generate(
            self.model,
            prompts,
            settings=settings,
            bos_id=self.start,
            eos_id=sorted({*self.ends, *ends}),
            stop=StopStrings(self.words.decode, stop) if stop else None,
            stream=stream,
            processors=self.processors(prompts, settings),
            seeds=seeds,
            scores=scores,
            draft=draft,
            media=media,
        )

    def processors(self, prompts: Sequence[Sequence[int]], settings: Generation) -> Sequence[Processor]:
        """Processors in addition to the settings: one that allows only the tokenizer's tokens, and a Hub model's
        processors."""
        size = self.words.vocab_size
        allowed: list[Processor] = [Known(size)] if size < self.model.vocab_size else []
        width = 1 if self.task == "translate" else max(map(len, prompts))
        own = [*allowed, *self.roles.processors(width, settings.max_new_tokens)]
        if self.grammar is None:
            return own
        return [*own, self.grammar.processor(self.words, self.model.vocab_size, self.ends, width)]

    def text_of(self, prompt: Sequence[int], new: Sequence[int]) -> str:
        """The text of new tokens, as the continuation of the prompt's text: it may begin with a space."""
        alone = self.words.decode(list(new))
        if self.task != "continue":
            return alone
        before, together = self.words.decode(list(prompt)), self.words.decode([*prompt, *new])
        return together[len(before) :] if together.startswith(before) else alone

    def _outputs_at(self, place: int, generated: Generated, prompt: Sequence[int], stop: Sequence[str]) -> list[Output]:
        return [
            Output(
                text=cut_at(self.text_of(prompt, ids), stop),
                tokens=tuple(self.words.tokens(ids)),
                ended=generated.reasons[place][n],
                score=generated.scores[place][n] if generated.scores else None,
                log_probs=tuple(generated.log_probs[place][n]) if generated.log_probs else None,
                acceptance=generated.acceptance[place][n] if generated.acceptance else None,
            )
            for n, ids in enumerate(generated.sequences[place])
        ]


def _together(media: Sequence[TextMedia]) -> MediaInputs | None:
    """The media of several texts as the model reads them; None if there are none."""
    if not any(media):
        return None
    from ..tasks.media import stacked  # imported here: text alone does without

    return stacked(media)


def in_training(model: AnyModel, tokenizer: Tokenizer, task: Use) -> LoadedModel:
    """A model during its training. If it comes from a Hub directory, its outputs end as that says, but for bounds of whole
    sequences, since a prompt of the data may be longer."""
    origin: Origin | None = getattr(model, "origin", None)
    if origin is None or not origin.is_ours:
        return LoadedModel(model, tokenizer, task=task)
    unbounded = replace(origin, ids=replace(origin.ids, whole=(None, None)))
    return LoadedModel(model, tokenizer, task=task, origin=unbounded)


# -- draft models for speculative decoding ------------------------------------------------------------------------------


def has_towers(run: LoadedModel) -> bool:
    """Whether a run is a dual encoder of pictures and texts."""
    return isinstance(run.model.spec, DualEncoder)


def as_grammar(grammar: Grammar) -> Grammar:
    """The grammar, whose module is imported only with one. Raises ValueError for anything else."""
    if type(grammar).__name__ != "Grammar":
        raise ValueError(f"a grammar is a Grammar, such as Grammar.choices(['yes', 'no']), not {brief(grammar)}")
    return grammar


def draft_for(run: LoadedModel, draft: LoadedModel | None) -> AnyModel | None:
    """Return the draft's model, if there is one. Raises ValueError, naming the difference, for another tokenizer."""
    if draft is None:
        return None
    pairs = {"tokenizer": (run.words, draft.words), "source tokenizer": (run.reader, draft.reader)}
    for name, (mine, theirs) in pairs.items():
        found = difference(mine, theirs)
        if found is not None:
            raise ValueError(
                f"the draft {draft.name} has another {name} than {run.name}: {found}; give a draft with the same "
                "tokenizer"
            )
    return draft.model


def difference(mine: Tokenizer, theirs: Tokenizer) -> str | None:
    """Return the first difference of two vocabularies; None if they are the same."""
    if mine is theirs:
        return None
    own, other = ({i: token for token, i in t.raw.get_vocab(with_added_tokens=True).items()} for t in (mine, theirs))
    if len(own) != len(other):
        return f"its vocabulary has {len(other)} tokens, not {len(own)}"
    for i, token in sorted(own.items()):
        if other.get(i) != token:
            return f"token {i} is {brief(other.get(i))}, not {brief(token)}"
    return None
