"""Which commands can use a run, and messages that name them when another command is given."""

from __future__ import annotations

from typing import Any

from ...nn.layers.embedding import Embedding
from ...nn.layers.frames import Frames
from ...nn.layers.patches import Patches
from ...nn.layers.waveform import Waveform
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.vision import ImageClassifier
from ...nn.models.transformer import Transformer
from .loaded import LoadedModel, has_towers

NEEDS = {
    "generate": "a model that generates texts",
    "translate": "an encoder–decoder that generates texts",
    "chat": "a language model with a chat template",
    "score": "a model that generates texts",
    "embed": "a model that reads texts",
    "classify": "a classifier",
    "transcribe": "a model of speech, such as Whisper",
    "fill": "a masked language model",
    "predict": "a run trained to predict (tags, classes, boxes, numbers …), or a Hub model with such a head",
    "eval": "a run that `qkv train` made",
}
"""The kind of run that each command needs."""


def commands(run: LoadedModel) -> tuple[str, ...]:
    """Return the commands that can use a run, the usual one first."""
    names = []
    if has_towers(run):
        return ("predict", "classify", "embed", *(["eval"] if run.recipe is not None else []))
    if _predicts(run):
        names += ["predict", *(["classify"] if _classifies(run) else [])]
    if _generates_text(run):
        names += ["translate", "generate"] if run.model.is_encoder_decoder else ["generate", *_chats(run)]
        names += ["score"]
    if transcribes(run):
        names += ["transcribe"]
    if fills(run):
        names += ["fill"]
    if reads_text(run):
        names += ["embed"]
    return (*names, *(["eval"] if run.recipe is not None else []))


def check(run: LoadedModel, command: str) -> None:
    """Raise ValueError, naming the commands that can use a run, if this one can't."""
    usable = commands(run)
    if command == "chat" and "generate" in usable:
        return  # a missing chat template has its own error message
    if command not in usable:
        raise ValueError(f"{run.name} is {kind_of(run)}, and `qkv {command}` needs {NEEDS[command]}; {advice(run)}")


def advice(run: LoadedModel) -> str:
    """Name the commands that can use a run."""
    usable = [f"`qkv {command}`" for command in commands(run)]
    if not usable:
        return "call it from Python, with numbers: qkv.load(…).model"
    return f"use {' or '.join([', '.join(usable[:-1]), usable[-1]] if len(usable) > 1 else usable)}"


def kind_of(run: LoadedModel) -> str:
    """Describe the kind of a run in a few words."""
    task, head = run.trained_on, _head(run)
    if has_towers(run):
        return "a dual encoder of pictures and texts"
    words = "" if run.tokenizer is not None else " without a tokenizer"
    if task is not None and _predicts(run):
        return f"a model of the task {task.kind!r}"
    if isinstance(head, LanguageModel) or _decodes(run):
        if not _has_decoder(run):
            return f"a masked language model{words}"
        return f"an encoder–decoder{words}" if run.model.is_encoder_decoder else f"a language model{words}"
    if _classifies(run):
        return f"a classifier{words}"
    return f"an encoder without a head{words}" if head is None else f"a model with the head {head.kind!r}{words}"


def reads_text(run: LoadedModel) -> bool:
    """Whether the first stack reads tokens, and there is a tokenizer."""
    spec = run.model.spec
    if run.tokenizer is None or not isinstance(spec, Transformer):
        return run.tokenizer is not None
    return isinstance((spec.encoder or spec.output).embedding, Embedding)


def kind_of_files(run: LoadedModel) -> str | None:
    """Return the kind of files that a run reads, "image", "sound" or "video"; None if it reads no files, or series."""
    reads: str | None = getattr(run.trained_on, "reads", None)
    spec = run.model.spec
    if reads is not None or has_towers(run):
        return reads or "image"
    embedding = (spec.encoder or spec.output).embedding if isinstance(spec, Transformer) else None
    if isinstance(embedding, Frames | Waveform):
        return "sound"
    return "image" if isinstance(embedding, Patches) else None


def fills(run: LoadedModel) -> bool:
    """Whether the run is a masked language model with a mask token."""
    masked = isinstance(_head(run), LanguageModel) and not _has_decoder(run)
    return masked and reads_text(run) and run.tokenizer is not None and run.tokenizer.mask_id is not None


def hears(run: LoadedModel) -> bool:
    """Whether the model is an encoder–decoder from frames of sound to a tokenizer's tokens."""
    spec = run.model.spec
    if not isinstance(spec, Transformer) or spec.encoder is None or spec.decoder is None or run.tokenizer is None:
        return False
    return isinstance(spec.encoder.embedding, Frames) and isinstance(spec.head, LanguageModel)


def transcribes(run: LoadedModel) -> bool:
    """Whether a run writes what is said in a sound: Whisper, or a run of speech recognition."""
    return (hears(run) and run.ids is not None) or hasattr(run.trained_on, "transcribed")


def _generates_text(run: LoadedModel) -> bool:
    return reads_text(run) and ((isinstance(_head(run), LanguageModel) and _has_decoder(run)) or _decodes(run))


def _decodes(run: LoadedModel) -> bool:
    """Whether the model is defined outside qkv, with `start` and `step` but without a `head` in its spec."""
    spec, model = run.model.spec, run.model
    other = not isinstance(spec, Transformer) and not hasattr(spec, "head")
    return other and hasattr(model, "start") and hasattr(model, "step")


def _has_decoder(run: LoadedModel) -> bool:
    spec = run.model.spec
    return not isinstance(spec, Transformer) or spec.decoder is not None


def _chats(run: LoadedModel) -> list[str]:
    assert run.tokenizer is not None
    try:
        run.tokenizer.chat  # noqa: B018  (built here, to see whether there is a template)
    except ValueError:
        return []
    return ["chat"]


def _predicts(run: LoadedModel) -> bool:
    """Whether `qkv predict` can use the run."""
    if run.recipe is not None:
        return run.recipe.task is not None and run.recipe.task.can_predict
    head = _head(run)
    if type(head) is LanguageModel:
        return False
    from .predict_by_head import prediction_of_head

    prediction = prediction_of_head(head)
    return prediction is not None and (not prediction.reads_text or reads_text(run))


def _classifies(run: LoadedModel) -> bool:
    task, head = run.trained_on, _head(run)
    if task is not None and task.tells_classes:
        return True
    if isinstance(head, SequenceClassifier):
        return (head.labels or 0) > 1 and reads_text(run)
    return task is None and isinstance(head, ImageClassifier)


def _head(run: LoadedModel) -> Any:
    return getattr(run.model.spec, "head", None)
