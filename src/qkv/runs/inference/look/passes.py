"""Forward passes to look into: what a run reads for a text or a file, ready to be run with a tap on its attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ....core.layout import Grid, Layout
from ....core.spec import brief
from ....data.media.png import png_bytes
from ....data.tokenizers.tokenizer import Tokenizer
from ....generation import Generation, trace
from ....generation.prompts import marks_prompts, with_prompts
from ....look.view.labels import token_labels
from ....look.view.panels import Panel
from ....nn.attention.own_calls import hooked
from ....nn.layers.patches import PatchEmbedding, unpatchify
from ....nn.models.heads.language_model import LanguageModel
from ....nn.models.joint import JointIds
from ....nn.models.stack import StackModule
from ....nn.models.transformer import Transformer
from ...tasks.media import TextWithFiles
from .. import unknown_words
from ..classify import inputs_of
from ..fill import fill, rows_with_masks
from ..loaded import LoadedModel, has_towers
from ..score import target_ids
from ..uses import advice, commands, fills, kind_of, reads_text
from .trace_panels import ENDINGS, search_panels

if TYPE_CHECKING:
    from ...tasks.captioning.task import Caption
    from .joint import JointPass

MOST_GENERATED = 64  # tokens of an output that is generated to be looked at
_FILES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".wav", ".flac", ".mp3", ".ogg", ".mp4", ".mid", ".midi")


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """The tokens that a stack reads: ids with their tokenizer, the patches of a picture with their grid, or neither.

    next:    the tokens that a decoder is to write after each token; empty if it continues freely.
    written: whether the tokens are named by what is written after them, because the decoder is recurrent.
    masks:   indices of tokens whose prediction is shown; None for all.
    """

    name: str
    total: int
    ids: tuple[int, ...] = ()
    tokenizer: Tokenizer | None = None
    grid: Grid | None = None
    picture: bytes | None = None
    next: tuple[int, ...] = ()
    written: bool = False
    masks: frozenset[int] | None = None


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """A forward pass over one input.

    run:       runs it; returns hidden states (1, T, M) for `logits`, or None.
    sequences: by stack, "encoder" or "decoder".
    facts:     (name, value) to show: the prediction or the output.
    logits:    the head of a language model, from hidden states (1, N, M); None for other models.
    inputs:    arguments and options of the model for the same pass; None if it was recorded during a prediction.
    panels:    of the search that generated the output.
    joint:     the text and its media, if the sequence has some.
    """

    run: Callable[[], Tensor | None]
    sequences: dict[str, TokenSequence]
    facts: tuple[tuple[str, str], ...] = ()
    logits: Callable[[Tensor], Tensor] | None = None
    inputs: tuple[tuple[Tensor, ...], dict[str, Any]] | None = None
    panels: tuple[Panel, ...] = ()
    joint: JointPass | None = None


def forward_pass(
    run: LoadedModel,
    item: str | Path,
    *,
    target: str | None = None,
    generate: int = 0,
    settings: Generation | None = None,
) -> ForwardPass:
    """Return the forward pass that shows what a run does with a text, or the file at a path.

    An encoder–decoder reads `target` as its output, by default what it generates; a language model continues the text by
    `generate` tokens. Raises ValueError for an empty text and for a file if the run reads texts.
    """
    text = item if isinstance(item, str) else str(item)
    if not text.strip():
        raise ValueError("the text is empty, so there is nothing to look at; give some words")
    if run.media and (isinstance(text, TextWithFiles) or "predict" in commands(run)):
        if target is not None or generate:
            raise ValueError(f"{run.name} writes an answer itself; leave target and generate out")
        return _joint(run, text)
    if reads_text(run) and Path(text).suffix.lower() in _FILES and Path(text).is_file():
        raise ValueError(f"{text} is a file, and {run.name} is {kind_of(run)}, which reads texts; give it a text")
    usable = commands(run)
    writes = "generate" in usable and "predict" not in usable
    if target is not None and not (writes and run.model.is_encoder_decoder):
        raise ValueError(f"a target is for encoder–decoders, and {run.name} is {kind_of(run)}; leave it out")
    if generate and not (writes and not run.model.is_encoder_decoder):
        raise ValueError(f"generate is for language models, and {run.name} is {kind_of(run)}; leave it out")
    if "predict" in usable:
        return _predicted(run, text)
    if fills(run):
        return _masked(run, text)
    if writes and run.model.is_encoder_decoder:
        return _translated(run, text, target, settings or run.generation)
    if writes:
        return _continued(run, text, generate, settings or run.generation)
    if reads_text(run):
        return _encoded(run, text)
    raise ValueError(f"{run.name} is {kind_of(run)}, which reads neither texts nor files; {advice(run)}")


# -- texts -------------------------------------------------------------------------------------------------------------


def _encoded(run: LoadedModel, text: str) -> ForwardPass:
    """An encoder without a head."""
    ids = run.encode(text)
    sequence = TokenSequence("text", len(ids), tuple(ids), run.reader)
    inputs = _ids(run, ids)
    if not run.model.is_encoder_decoder:
        return ForwardPass(lambda: _hidden(run, inputs), _both(sequence))
    start = _ids(run, [run.start or 0])
    return ForwardPass(lambda: _hidden(run, inputs, start), {"encoder": sequence})


def _masked(run: LoadedModel, text: str) -> ForwardPass:
    """A masked language model: the likeliest token is shown at every mask."""
    tokenizer = run.words
    ((ids, types),) = rows_with_masks(run, [text])
    masks = frozenset(i for i, token in enumerate(ids) if token == tokenizer.mask_id)
    sequence = TokenSequence("text", len(ids), tuple(ids), tokenizer, masks=masks)
    inputs = inputs_of(run, [(ids, types)])
    facts: tuple[tuple[str, str], ...] = ()
    if masks:
        filled = fill(run, [text], top_k=3)[0]
        best = "  |  ".join("  ".join(f"{c.token.strip()} {c.probability:.3f}" for c in mask) for mask in filled.masks)
        facts = (("masks", best),)
    return ForwardPass(lambda: run.model.hidden(**inputs), _both(sequence), facts, _head(run), ((), inputs))


def _continued(run: LoadedModel, text: str, count: int, settings: Generation) -> ForwardPass:
    """A language model: the text, and `count` tokens that continue it."""
    ids = prompt = run.encode(text)
    unknown_words.warn(run, [text], [ids])
    facts: tuple[tuple[str, str], ...] = ()
    panels: list[Panel] = []
    if count:
        new, ended, panels = _searched(run, ids, settings, count)
        facts = (("continuation", run.words.decode(new)), ended)
        ids = [*ids, *new]
    sequence = TokenSequence("text", len(ids), tuple(ids), run.words)
    inputs, options = _ids(run, ids), dict[str, Any]()
    if marks_prompts(run.model):
        whole = Layout.full(len(ids), device=inputs.device)
        options["layout"] = with_prompts(run.model, whole, [len(prompt)])
    passing = ForwardPass(
        lambda: _hidden(run, inputs, **options), _both(sequence), facts, _head(run), ((inputs,), options)
    )
    return replace(passing, panels=tuple(panels))


def _translated(run: LoadedModel, text: str, target: str | None, settings: Generation) -> ForwardPass:
    """An encoder–decoder: the source, and a given or generated output."""
    source = run.encode(text)
    unknown_words.warn(run, [text], [source])
    if target is None:
        most = min(settings.max_new_tokens, MOST_GENERATED)
        written, ended, panels = _searched(run, source, settings, most)
        facts = [("output", run.words.decode(written)), ended]
    else:
        written, panels = target_ids(run, target), []
        facts = [("target", run.words.decode(written))]
    if not written:
        raise ValueError(f"{run.name} writes nothing for {brief(text)}; give an output as target")
    read = [run.start or 0, *written[:-1]]
    inputs, outputs = _ids(run, source), _ids(run, read)
    recurrent = not isinstance(run.model.spec, Transformer)
    sequences = {
        "encoder": TokenSequence("source", len(source), tuple(source), run.reader),
        "decoder": TokenSequence("output", len(read), tuple(read), run.words, next=tuple(written), written=recurrent),
    }
    pair = (inputs, outputs)
    passing = ForwardPass(lambda: _hidden(run, *pair), sequences, tuple(facts), _head(run), (pair, {}))
    return replace(passing, panels=tuple(panels))


def _searched(
    run: LoadedModel, prompt: Sequence[int], settings: Generation, most: int
) -> tuple[list[int], tuple[str, str], list[Panel]]:
    """The new tokens for a prompt, why they end, and the panels of the search."""
    once = settings.replace({"max_new_tokens": most, "num_samples": 1})
    with trace.record() as search:
        generated = run.generated([prompt], once)
    new, reason = generated.sequences[0][0], generated.reasons[0][0]
    size = run.words.vocab_size

    def label(token: int) -> str:
        return token_labels(run.words, [token])[0] if token < size else f"#{token}"

    return new, ("ended by", ENDINGS[reason]), search_panels(search, label, new)


def _both(sequence: TokenSequence) -> dict[str, TokenSequence]:
    """The only sequence of a model with one stack, whatever that is called."""
    return {"encoder": sequence, "decoder": sequence}


def _ids(run: LoadedModel, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=run.model.device)


def _hidden(run: LoadedModel, *ids: Tensor, **options: Any) -> Tensor:
    """The last hidden states, or the outputs of a model that has none to give."""
    hidden = getattr(run.model, "hidden", run.model)
    out: Tensor = hidden(*ids, **options)
    return out


def _head(run: LoadedModel) -> Callable[[Tensor], Tensor] | None:
    """The head that predicts tokens from hidden states."""
    model = run.model
    if not isinstance(getattr(model.spec, "head", None), LanguageModel) or not hasattr(model, "hidden"):
        return None
    return cast(Callable[[Tensor], Tensor], model.head)


def tower_of(run: LoadedModel, items: Sequence[str | Path]) -> tuple[LoadedModel, Callable[..., ForwardPass]]:
    """The run and the function that gives its forward passes. Of a dual encoder it is the tower that reads the inputs.

    Raises ValueError for texts and pictures at once, which two towers read.
    """
    if not has_towers(run):
        return run, forward_pass
    from ...tasks.image_text_retrieval.towers import is_picture
    from ..towers import of_image, of_text, towers_of

    pictures = [is_picture(str(item)) for item in items]
    if not any(pictures):
        return of_text(run), forward_pass
    if not all(pictures):
        raise ValueError(f"{run.name} reads pictures and texts by two towers; look at one kind at a time")
    towers, tower = towers_of(run), of_image(run)

    def seen(_: LoadedModel, item: str | Path, **options: Any) -> ForwardPass:
        if any(options.values()):
            raise ValueError(
                f"a target and generate are for models that write, and {run.name} does not; leave them out"
            )
        pixels = torch.from_numpy(towers.picture(str(item)))[None].to(tower.model.device)
        with recorded_calls(tower.model) as calls:
            tower.model.hidden(pixels)
        sequence = sequence_of(tower, next(iter(calls.values())))
        return ForwardPass(lambda: _hidden(tower, pixels), _both(sequence))

    return tower, seen


# -- what tasks read ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Call:
    """A call of a stack during a prediction."""

    name: str
    stack: StackModule
    args: tuple[Any, ...]
    options: dict[str, Any]


def _predicted(run: LoadedModel, text: str) -> ForwardPass:
    """What a task's model reads for an input, recorded while it predicts: the first call of each stack."""
    from ...tasks.captioning.task import Caption  # imported here: a report that draws attention does without
    from ..predict import predict

    with recorded_calls(run.model) as calls:
        (prediction, *_) = predict(run, [text])
    if not calls:
        raise ValueError(f"{run.name} is {kind_of(run)} without Transformer layers to look into")
    sequences = {name: sequence_of(run, call) for name, call in calls.items()}
    shown = prediction.text.removeprefix(f"{text}: ").removesuffix(f"\t{text}")
    facts = (("prediction", shown),)
    task = run.trained_on
    if isinstance(task, Caption) and "decoder" not in calls:
        return _captioned(run, task, calls["encoder"], str(prediction.fields["output"]), text)
    if len(sequences) == 1:
        sequences = _both(next(iter(sequences.values())))

    def again() -> None:
        for call in calls.values():
            call.stack(*call.args, **call.options)

    return ForwardPass(again, sequences, facts)


def _captioned(run: LoadedModel, task: Caption, call: _Call, output: str, line: str) -> ForwardPass:
    """A picture, and the text that was generated for it."""
    tokenizer, decoder = run.words, run.model.decoder
    assert isinstance(decoder, StackModule)
    question = line.partition("\t")[2].strip()
    prompt = task.prompt(tokenizer.encode(question) if question else [], tokenizer)
    ids = [*prompt, *tokenizer.encode(output)]
    read = _ids(run, ids)
    layout = call.args[1]

    def again() -> Tensor:
        memory = call.stack(*call.args, **call.options)
        hidden: Tensor = decoder(read, Layout.full(len(ids), device=read.device), memory, layout)
        return hidden

    sequences = {
        "encoder": sequence_of(run, call),
        "decoder": TokenSequence("output", len(ids), tuple(ids), tokenizer),
    }
    return ForwardPass(again, sequences, (("output", output),), _head(run))


def _joint(run: LoadedModel, text: str) -> ForwardPass:
    """A text with pictures and sounds, which a decoder read as one sequence, and the text that it generated."""
    from .joint import joint_pass

    made = joint_pass(run, text)
    sequence = TokenSequence("text", len(made.ids), made.ids, run.words)
    return ForwardPass(made.run, {"decoder": sequence}, (("output", made.output),), _head(run), joint=made)


@contextmanager
def recorded_calls(model: nn.Module) -> Iterator[dict[str, _Call]]:
    """Record the first call without a cache of each stack of a model inside the block."""
    calls: dict[str, _Call] = {}

    def hook(name: str) -> Callable[..., None]:
        def keep(stack: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
            assert isinstance(stack, StackModule)
            if options.get("cache") is None:
                calls.setdefault(name, _Call(name, stack, args, options))

        return keep

    stacks = [(getattr(model, name, None), hook(name)) for name in ("encoder", "decoder")]
    with hooked(
        [(stack, own) for stack, own in stacks if isinstance(stack, StackModule)], before=True, with_kwargs=True
    ):
        yield calls


def sequence_of(run: LoadedModel, call: _Call) -> TokenSequence:
    """The first sequence that a stack read."""
    inputs, layout = call.args[:2]
    embedding = call.stack.embedding
    total = int(layout.valid[0].sum()) if layout.padding == "right" else layout.shape[1]
    if isinstance(embedding, PatchEmbedding):
        whole = layout.grid if layout.grid is not None and layout.grid.tokens == total else None
        reads = getattr(run.trained_on, "reads", "")
        name = reads if reads in ("sound", "video") else "picture"
        picture = None if whole is None else _picture(inputs[:1], whole, embedding)
        return TokenSequence(name, total, grid=whole, picture=picture)
    inputs = inputs.ids if isinstance(inputs, JointIds) else inputs
    if inputs.dtype == torch.int64 and inputs.ndim == 2 and run.tokenizer is not None:
        name = "output" if call.name == "decoder" and run.model.is_encoder_decoder else "text"
        return TokenSequence(name, total, tuple(inputs[0, :total].tolist()), run.reader)
    return TokenSequence("input", total)


def _picture(inputs: Float[Tensor, "1 N P"] | Float[Tensor, "1 C H W"], grid: Grid, embedding: PatchEmbedding) -> bytes:
    """What a stack over patches read, as a PNG file: contrast stretched, more than three channels averaged."""
    pixels = inputs if inputs.ndim == 4 else unpatchify(inputs, grid, embedding.spec.patch)
    values = pixels[0].float().cpu().numpy()
    values = values if len(values) in (1, 3) else values.mean(0, keepdims=True)
    low, high = float(values.min()), float(values.max())
    return png_bytes(np.round((values - low) / max(high - low, 1e-9) * 255))
