"""`qkv.load`: a directory, a run's or the Hub's, as a `Run`, which takes texts and gives texts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import torch
from torch import Tensor

from ..core import device as devices
from ..core.spec import SCHEMA, nearest
from ..directories import hub, sharded, weights
from ..directories import sentence_transformers as sentences
from ..directories.layout import (
    CONFIG,
    GENERATION,
    RECIPE,
    TOKENIZER,
    WEIGHTS,
    State,
    read_json,
    read_text,
    write_json,
    write_text,
)
from ..directories.lock import owner_of
from ..generation import Generation
from ..hub import huggingface
from ..models.base import ModelSpec
from ..models.build import AnyModel
from ..models.electra import published
from ..models.heads.text import LanguageModel
from ..models.transformer import Transformer, TransformerModel
from ..recipes.recipe import Recipe
from ..tokenizers.chat.conversations import Messages
from ..tokenizers.readers.hub_config import save_for_hub
from ..tokenizers.tokenizer import Tokenizer
from . import unseen
from .chat import chat
from .classify import Classified, classify, similarity
from .embed import Pooling, embed
from .fill import Filled, fill
from .score import Score, score
from .text import Output, TextModel, Use

if TYPE_CHECKING:
    from .predict import Prediction

T = TypeVar("T")

TOKENIZERS = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model"),
    *("source.spm", "*.tiktoken"),
)
BESIDE = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    "preprocessor_config.json",
)


@dataclass(frozen=True)
class Run:
    """A trained model with everything that its use needs.

    model:      in evaluation mode.
    tokenizer:  the one that it was trained with; None where the directory has none, and only ids go in and out.
    generation: how outputs are made where a call does not say otherwise.
    task:       what the model does with a text, see `qkv.inference.text.Use`; by default what its stacks are for.
    recipe:     how it came about; None where the directory has no `recipe.yaml`.
    path:       where it was loaded from.
    origin:     what the directory said besides, where it was one of the Hub's.
    """

    model: AnyModel
    tokenizer: Tokenizer | None
    generation: Generation = field(default_factory=Generation)
    task: Use = ""  # type: ignore[assignment]  # what such a model usually does
    recipe: Recipe | None = None
    path: Path | None = None
    origin: hub.Origin | None = None

    def __post_init__(self) -> None:
        if not self.task:
            object.__setattr__(self, "task", usual_task(self.model.spec))
        _check_task(self.task, self.model.spec, self.path or "this run")
        if self.tokenizer is not None:
            check_fit(self.tokenizer, self.model.spec, str(self.path or "this run"))

    @property
    def text_model(self) -> TextModel:
        """The model with its tokenizer. Raises ValueError where there is none."""
        if self.tokenizer is None:
            raise ValueError(
                f"{self.path or 'this run'} has no tokenizer, so texts mean nothing to it; give ids to .model"
            )
        made_here = self.origin is None or "task" in self.origin.own
        ids = None if made_here or self.origin is None else self.origin.ids
        return TextModel(self.model, self.tokenizer, self.task, ids)

    def settings(self, **options: Any) -> Generation:
        """The run's `Generation` with changes. Raises ValueError for an option that there is not, or out of range."""
        return self.generation.replace(options)

    def generate(
        self, texts: Sequence[str], *, stop: Sequence[str] = (), **options: Any
    ) -> list[str] | list[list[str]]:
        """One output a text, or a list of `num_samples` outputs a text where that is more than one.

        An encoder–decoder translates; a language model gives what it adds to the text. Options are the fields of
        `Generation`; `stop` are texts before which an output ends. Texts of any lengths share batches.
        """
        settings = self.settings(**options)
        made = self.outputs(_texts(texts), settings, stop=stop)
        if settings.num_samples > 1:
            return [[output.text for output in outputs] for outputs in made]
        return [outputs[0].text for outputs in made]

    def outputs(
        self,
        texts: Sequence[str],
        settings: Generation | None = None,
        *,
        stop: Sequence[str] = (),
        scores: bool = False,
    ) -> list[list[Output]]:
        """As `generate`, with tokens, what ended each output and, where `scores`, log-probabilities."""
        settings = settings or self.generation
        text_model = self.text_model
        unseen.warn(self, _texts(texts))
        return text_model.outputs(texts, settings, stop=stop, scores=scores)

    def stream(
        self, prompt: str, emit: Callable[[str], None], settings: Generation | None = None, *, stop: Sequence[str] = ()
    ) -> None:
        """Hand one output to `emit` piece by piece, as it comes."""
        unseen.warn(self, [prompt])
        self.text_model.stream(prompt, settings or self.generation, emit, stop=stop)

    def chat(
        self,
        messages: Messages,
        emit: Callable[[str], None] | None = None,
        *,
        stop: Sequence[str] = (),
        **options: Any,
    ) -> str:
        """The assistant's reply to a conversation, see `qkv.inference.chat.chat`."""
        return chat(self, messages, emit, stop=stop, **options)

    def score(self, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[Score]:
        """The log-likelihood of texts (language model), or of targets given texts, token by token and in all."""
        unseen.warn(self, _texts(texts))
        return score(self.text_model, texts, targets and _texts(targets))

    def embed(self, texts: Sequence[str], pooling: Pooling | None = None) -> list[Tensor]:
        """Last hidden states, see `qkv.inference.embed.embed`: (M,) a text, or (T, M) where pooling is "none".

        By default pooled as a directory of sentence-transformers says, else by the mean. Raises ValueError where it asks
        for what is not known here.
        """
        said = sentences.read(self.path) if pooling is None and self.path is not None else None
        return embed(self.text_model, _texts(texts), pooling, said)

    def fill(self, texts: Sequence[str], top_k: int = 5) -> list[Filled]:
        """The likeliest tokens for each mask in each text, see `qkv.inference.fill.fill`."""
        return fill(self, _texts(texts), top_k)

    def classify(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[Classified]:
        """The class of each text, or of each text beside its pair, with the probability of every class."""
        unseen.warn(self, [*_texts(texts), *(_texts(pairs) if pairs else ())])
        return classify(self, texts, pairs)

    def classify_files(self, paths: Sequence[str | Path]) -> list[Classified]:
        """The class of the picture, the sound or the video in each file, with the probability of every class."""
        from .classify_files import classify_files

        return classify_files(self, paths)

    def predict(self, inputs: Sequence[str | Path], **options: Any) -> list[Prediction]:
        """What the run says of new inputs, by its task or, where it is a model of the Hub, by its head, see
        `qkv.inference.predict.predict`."""
        from .predict import predict

        return list(predict(self, _texts(inputs), **options))

    def similarity(self, a: Sequence[str], b: Sequence[str]) -> list[float]:
        """How alike a[i] and b[i] are, see `qkv.inference.classify.similarity`."""
        unseen.warn(self, [*_texts(a), *_texts(b)])
        return similarity(self, a, b)

    def save(
        self,
        path: Path | str,
        to: Literal["hub", "qkv"] | None = None,
        *,
        max_shard_size: int | str = sharded.MAX_SHARD_SIZE,
    ) -> Path:
        """Write a directory that `load` reads back: each file beside, then renamed; the configuration last.

        "hub" writes what `transformers` loads, and raises ValueError where no family of the Hub is this model; "qkv"
        writes our own model type. By default it is the Hub's where there is a family, else ours, with a warning that
        says why. The Hub's weights are one file, or several where `max_shard_size` (bytes, or "5GB") is less.
        """
        if to not in (None, "hub", "qkv"):
            raise ValueError(f"a directory is saved to 'hub' or 'qkv', not {to!r}")
        size = sharded.parsed(max_shard_size)
        model = self.model
        if to != "qkv" and isinstance(model, TransformerModel) and (kept := published(model)) is not model:
            return replace(self, model=kept).save(path, to, max_shard_size=max_shard_size)
        folder = Path(path)
        if to != "qkv" and (why := self._refusal()) is not None:
            if to == "hub":
                raise ValueError(why)
            warnings.warn(f"{folder} is saved under the model type {hub.MODEL_TYPE!r}: {why}", stacklevel=2)
            to = "qkv"
        folder.mkdir(parents=True, exist_ok=True)
        self._save_words(folder, to)
        if to == "qkv" or not isinstance(model, TransformerModel):
            weights.save(model, folder / WEIGHTS)
            write_settings(folder, self.model.spec, self.task, self.generation, self.recipe, self.tokenizer is not None)
        else:
            if self.recipe is not None:
                write_text(folder / RECIPE, self.recipe.to_yaml())
            hub.save(folder, model, self.generation.to_dict(), self._said(), size)
        return folder

    def _refusal(self) -> str | None:
        """Why no family of the Hub can say this model, or None where one can."""
        spec = self.model.spec
        if not isinstance(spec, Transformer):
            return "no Hub family is recurrent"
        try:
            hub.config_of(spec, self.model.dtype, self.origin)
        except ValueError as error:
            return str(error)
        return None

    def _said(self) -> hub.Origin:
        """What the directory says besides the model: what it was loaded with; for a model made here, its task and ids."""
        if self.origin is not None:
            return self.origin
        tokens = {}
        if self.tokenizer is not None:
            tokens = {f"{role}_token_id": getattr(self.tokenizer, f"{role}_id") for role in ("bos", "eos", "pad")}
            if self.model.is_encoder_decoder:
                tokens["decoder_start_token_id"] = self.text_model.start
        return hub.Origin({**tokens, **self._labels(), "qkv": {"task": self.task}})

    def _labels(self) -> dict[str, Any]:
        """What the Hub is told of the classes or tags that the model's head tells apart."""
        task = None if self.recipe is None else self.recipe.task
        names: tuple[str, ...] = getattr(task, "classes", None) or getattr(task, "tags", None) or ()
        if not names or getattr(self.model.spec.head, "labels", None) != len(names):
            return {}
        return {
            "id2label": {str(i): name for i, name in enumerate(names)},
            "label2id": {name: i for i, name in enumerate(names)},
        }

    @property
    def _reads_whole(self) -> bool:
        """Whether texts were read whole in training here, and so with what stands around them."""
        head = getattr(self.model.spec, "head", None)
        of_tokens = head is None or isinstance(head, LanguageModel)
        return self.text_model.ids is None and (self.task == "read" or not of_tokens)

    def _save_words(self, folder: Path, to: str | None) -> None:
        """The tokenizer, and the files about it that only other libraries read."""
        if self.tokenizer is not None and to == "qkv":
            self.tokenizer.save(folder / TOKENIZER)
        elif self.tokenizer is not None:
            words = self.tokenizer.templated() if self._reads_whole else self.tokenizer
            save_for_hub(words, folder, self.model.max_positions, self._reads_whole and _segments(self.model.spec) > 1)
        for name in BESIDE:
            if self.origin is not None and self.path is not None and (self.path / name).is_file():
                write_text(folder / name, read_text(self.path / name))
        if self.origin is not None and self.path is not None:
            sentences.copy(self.path, folder)


def _segments(spec: ModelSpec) -> int:
    """How many kinds of segments a model tells apart."""
    first = (spec.encoder or spec.output).embedding if isinstance(spec, Transformer) else None
    return int(getattr(first, "token_types", 0))


def write_settings(
    folder: Path, spec: ModelSpec, task: Use, generation: Generation, recipe: Recipe | None, words: bool = True
) -> None:
    """`generation_config.json`, `recipe.yaml` and `config.json`; `words` says that there is a tokenizer."""
    write_json(folder / GENERATION, generation.to_dict())
    if recipe is not None:
        write_text(folder / RECIPE, recipe.to_yaml())
    config = {"model_type": hub.MODEL_TYPE, "task": task, "qkv": {"schema": SCHEMA, **spec.to_dict()}}
    write_json(folder / CONFIG, config if words else {**config, "tokenizer": None})


def load(
    path: Path | str,
    device: str | torch.device = "auto",
    *,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> Run:
    """The run in a directory, or the model in a directory of the Hub, or of that name on the Hub.

    Weights keep the file's `dtype` unless another is given. `revision` is a branch, tag or commit of a name on the Hub.
    Weights that are pickles are read only where `allow_pickle`, and then as nothing but tensors. Code in a directory is
    never run.

    Raises ValueError, with the file's name, where the directory is no model or an unfinished run, a file is damaged or a
    pickle, the configuration has a key that means something unknown, the weights are not those of the model's spec
    (nothing is allocated then), or the tokenizer is another's.
    """
    folder, where = locate(path, revision, allow_pickle), devices.choose(device)
    numbers = _dtype(dtype)
    if is_hub(folder):
        return _load_hub(folder, where, numbers, allow_pickle)
    _check_complete(folder)
    spec, task = read_config(folder / CONFIG)
    tokenizer = Tokenizer.load(folder / TOKENIZER) if _has_words(folder) else None
    if tokenizer is not None:
        check_fit(tokenizer, spec, str(folder))
    recipe = _recipe(folder)
    model = weights.load(spec, folder / WEIGHTS, where, numbers)
    return Run(model, tokenizer, _generation(folder / GENERATION), task, recipe, folder)


def is_hub(folder: Path) -> bool:
    """Whether a directory's configuration is the Hub's rather than ours."""
    if not (folder / CONFIG).is_file():
        return False
    data = read_json(folder / CONFIG)
    return not (isinstance(data, dict) and data.get("model_type") == hub.MODEL_TYPE)


def has_tokenizer(folder: Path) -> bool:
    """Whether some library's tokenizer lies in a folder."""
    return any(path.is_file() for name in TOKENIZERS for path in folder.glob(name))


def _load_hub(folder: Path, device: torch.device, dtype: torch.dtype | None, allow_pickle: bool) -> Run:
    tokenizer = Tokenizer.load(folder) if has_tokenizer(folder) else None
    model, origin, fields = hub.load(folder, device, dtype, allow_pickle)
    try:
        generation = Generation.from_dict(fields)
    except ValueError as error:
        raise ValueError(f"{folder / GENERATION}: {error}") from None
    task = origin.own.get("task", usual_task(model.spec))
    _check_task(task, model.spec, folder / CONFIG)
    return Run(model, tokenizer, generation, task, _recipe(folder), folder, origin)


def usual_task(spec: ModelSpec) -> Use:
    """What a model does with a text where nothing says otherwise."""
    if spec.is_encoder_decoder:
        return "translate"
    return "read" if isinstance(spec, Transformer) and spec.decoder is None else "continue"


RUNS = "runs"  # where `qkv train` puts runs: no owner on the Hub


def locate(path: Path | str, revision: str | None = None, allow_pickle: bool = False) -> Path:
    """The directory that is meant: the one of that name, else the Hub's, in the cache."""
    folder = Path(path)
    named = str(path)
    if folder.exists() or not huggingface.is_id(named) or folder.parts[0] == RUNS or Path(folder.parts[0]).exists():
        return folder
    return huggingface.download(named, revision, allow_pickle)


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if not isinstance(dtype, str):
        return dtype
    known = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    if dtype not in known:
        raise ValueError(f"there is no dtype {dtype!r} for weights; {nearest(dtype, known)}")
    return known[dtype]


def _recipe(folder: Path) -> Recipe | None:
    return Recipe.load(folder / RECIPE) if (folder / RECIPE).is_file() else None


def read_config(path: Path) -> tuple[Any, Use]:
    """The model's spec and its task, by the `config.json` of a run."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("model_type") != hub.MODEL_TYPE or not isinstance(data.get("qkv"), dict):
        found = data.get("model_type") if isinstance(data, dict) else None
        raise ValueError(f"{path} is not qkv's: its model_type is {found!r}, not {hub.MODEL_TYPE!r}")
    try:
        spec = ModelSpec.from_dict(data["qkv"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}{_from_outside(error)}") from None
    task = data.get("task", usual_task(spec))
    _check_task(task, spec, path)
    return spec, task


def _from_outside(error: ValueError) -> str:
    """What to do where a kind is not known because nobody has defined it here."""
    if "there is no " not in str(error):
        return ""
    return (
        "; a part of your own has to be defined first: in Python, import the module that defines it, then call qkv.load"
    )


def _check_task(task: Any, spec: ModelSpec, where: Path | str) -> None:
    if task not in get_args(Use) or (task == "translate") != spec.is_encoder_decoder:
        fits = [use for use in get_args(Use) if (use == "translate") == spec.is_encoder_decoder]
        raise ValueError(f"{where}: the task {task!r} is not one for this model; there is {', '.join(fits)}")


def check_fit(tokenizer: Tokenizer, spec: ModelSpec, where: str) -> None:
    """That the model has a place for each of the tokenizer's tokens."""
    if tokenizer.vocab_size > spec.vocab_size:
        raise ValueError(
            f"{where}: the tokenizer has {tokenizer.vocab_size:,} tokens and the model a vocabulary of "
            f"{spec.vocab_size:,}, so they don't belong together"
        )
    places = getattr(spec, "source_vocab_size", None) or spec.vocab_size
    if tokenizer.sources.vocab_size > places:
        raise ValueError(
            f"{where}: the tokenizer of sources has {tokenizer.sources.vocab_size:,} tokens and the model a vocabulary of "
            f"{places:,} for them, so they don't belong together"
        )


def _check_complete(folder: Path) -> None:
    if not folder.exists():
        raise ValueError(
            f"there is no run directory {folder}; `qkv train` makes one, and a model of the Hub is named owner/name, such "
            "as openai-community/gpt2"
        )
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; a run is a directory")
    wanted = (CONFIG, TOKENIZER, WEIGHTS) if _has_words(folder) else (CONFIG, WEIGHTS)
    missing = [name for name in wanted if not (folder / name).is_file()]
    if not missing:
        return
    owner = owner_of(folder)
    if owner is not None:
        raise ValueError(f"the run in {folder} is being trained by {owner} and has delivered nothing yet; wait for it")
    if State.of(folder) is State.STARTED:
        raise ValueError(
            f"the run in {folder} is not finished (it has no {missing[0]}); go on with `qkv train {folder} --resume`"
        )
    raise ValueError(f"{folder} is not a run directory: it has no {missing[0]}")


def _has_words(folder: Path) -> bool:
    """Whether a run has a tokenizer; one without says so."""
    data = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    return not (isinstance(data, dict) and "tokenizer" in data and data["tokenizer"] is None)


def _generation(path: Path) -> Generation:
    if not path.is_file():
        return Generation()
    data = read_json(path)
    try:
        return Generation.from_dict(data)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def _texts(texts: Sequence[T]) -> Sequence[T]:
    if isinstance(texts, str):
        raise ValueError("texts are a list of strings; put a single one into a list: [text]")
    return texts
