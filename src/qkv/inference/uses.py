"""What can be asked of a run, and by which commands: so that a question to the wrong kind of run names the right one."""

from __future__ import annotations

from typing import Any

from ..data.task import Task
from ..layers.embedding import Embedding
from ..models.heads.sequence import SequenceClassifier
from ..models.heads.text import LanguageModel
from ..models.heads.vision import ImageClassifier
from ..models.transformer import Transformer
from .loaded import LoadedModel
from .predict_by_head import prediction_of_head

NEEDS = {
    "generate": "a model that writes texts",
    "translate": "an encoder–decoder that writes texts",
    "chat": "a language model with a chat template",
    "score": "a model that writes texts",
    "embed": "a model that reads texts",
    "classify": "a model that tells classes apart",
    "fill": "a masked language model",
    "predict": "a run trained to answer (tags, classes, boxes, numbers …), or a model of the Hub with such a head",
    "eval": "a run that `qkv train` made",
}
"""What each command asks of a run."""


def commands(run: LoadedModel) -> tuple[str, ...]:
    """The commands that serve a run, the usual one first."""
    found = []
    if _answers(run):
        found += ["predict", *(["classify"] if _tells_classes(run) else [])]
    if _writes(run):
        found += ["translate", "generate"] if run.model.is_encoder_decoder else ["generate", *_chats(run)]
        found += ["score"]
    if fills(run):
        found += ["fill"]
    if reads_text(run):
        found += ["embed"]
    return (*found, *(["eval"] if run.recipe is not None else []))


def check(run: LoadedModel, command: str) -> None:
    """Raises ValueError with the commands that serve a run where this one doesn't."""
    if command not in commands(run) and not (
        command == "chat" and "generate" in commands(run)
    ):  # no template: its own word
        raise ValueError(f"{name_of(run)} is {kind_of(run)}, and `qkv {command}` needs {NEEDS[command]}; {advice(run)}")


def advice(run: LoadedModel) -> str:
    """What to do with a run, by command."""
    served = [f"`qkv {command}`" for command in commands(run)]
    if not served:
        return "ask it from Python, with numbers: qkv.load(…).model"
    return f"use {' or '.join([', '.join(served[:-1]), served[-1]] if len(served) > 1 else served)}"


def name_of(run: LoadedModel) -> str:
    return str(run.path or "this run")


def kind_of(run: LoadedModel) -> str:
    """A run in a few words."""
    task, head = _task(run), _head(run)
    words = "" if run.tokenizer is not None else " without a tokenizer"
    if task is not None and _answers(run):
        return f"a model of the task {task.kind!r}"
    if isinstance(head, LanguageModel):
        if not _writes_tokens(run):
            return f"a masked language model{words}"
        return f"an encoder–decoder{words}" if run.model.is_encoder_decoder else f"a language model{words}"
    if _tells_classes(run):
        return f"a classifier{words}"
    return f"an encoder without a head{words}" if head is None else f"a model with the head {head.kind!r}{words}"


def reads_text(run: LoadedModel) -> bool:
    """Whether its first stack reads tokens, and there is a tokenizer."""
    spec = run.model.spec
    if run.tokenizer is None or not isinstance(spec, Transformer):
        return run.tokenizer is not None
    return isinstance((spec.encoder or spec.output).embedding, Embedding)


def fills(run: LoadedModel) -> bool:
    """Whether it says which tokens are hidden in a text."""
    masked = isinstance(_head(run), LanguageModel) and not _writes_tokens(run)
    return masked and reads_text(run) and run.tokenizer is not None and run.tokenizer.mask_id is not None


def _writes(run: LoadedModel) -> bool:
    return reads_text(run) and isinstance(_head(run), LanguageModel) and _writes_tokens(run)


def _writes_tokens(run: LoadedModel) -> bool:
    """Whether it has a decoder, which writes one token after the other."""
    spec = run.model.spec
    return not isinstance(spec, Transformer) or spec.decoder is not None


def _chats(run: LoadedModel) -> list[str]:
    assert run.tokenizer is not None
    try:
        run.tokenizer.chat  # noqa: B018  (made now, where there is a template)
    except ValueError:
        return []
    return ["chat"]


def _answers(run: LoadedModel) -> bool:
    """Whether `predict` has something to say."""
    if run.recipe is not None:
        return run.recipe.task is not None and run.recipe.task.can_predict
    known = prediction_of_head(_head(run))
    return known is not None and (not known.reads_text or reads_text(run))


def _tells_classes(run: LoadedModel) -> bool:
    task, head = _task(run), _head(run)
    if task is not None and task.tells_classes:
        return True
    if isinstance(head, SequenceClassifier):
        return (head.labels or 0) > 1 and reads_text(run)
    return task is None and isinstance(head, ImageClassifier)


def _task(run: LoadedModel) -> Task | None:
    return None if run.recipe is None else run.recipe.task


def _head(run: LoadedModel) -> Any:
    return getattr(run.model.spec, "head", None)
