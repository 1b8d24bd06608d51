"""`qkv.load`: a run directory as a `Run`, which takes texts and gives texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from ..core.spec import SCHEMA
from ..data.tokenizer import Tokenizer
from ..generate import Generation
from ..model.transformer import Transformer, TransformerModel
from . import device as devices
from . import weights
from .directory import CONFIG, GENERATION, RECIPE, TOKENIZER, WEIGHTS, State, read_json, write_json, write_text
from .embed import Pooling, embed
from .recipe import Recipe
from .score import Score, score
from .text import Output, Task, TextModel

MODEL_TYPE = "qkv"


@dataclass(frozen=True)
class Run:
    """A trained model with everything that its use needs.

    model:      in evaluation mode.
    tokenizer:  the one that it was trained with.
    generation: how outputs are made where a call does not say otherwise.
    task:       what the model does with a text, see `qkv.run.text.Task`.
    recipe:     how it came about; None where the directory has no `recipe.yaml`.
    path:       where it was loaded from.
    """

    model: TransformerModel
    tokenizer: Tokenizer
    generation: Generation = field(default_factory=Generation)
    task: Task = "continue"
    recipe: Recipe | None = None
    path: Path | None = None

    def __post_init__(self) -> None:
        check_fit(self.tokenizer, self.model.spec, str(self.path or "this run"))

    @property
    def text_model(self) -> TextModel:
        return TextModel(self.model, self.tokenizer, self.task)

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
        return self.text_model.outputs(_texts(texts), settings, stop=stop, scores=scores)

    def stream(
        self, prompt: str, emit: Callable[[str], None], settings: Generation | None = None, *, stop: Sequence[str] = ()
    ) -> None:
        """Hand one output to `emit` piece by piece, as it comes."""
        self.text_model.stream(prompt, settings or self.generation, emit, stop=stop)

    def score(self, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[Score]:
        """The log-likelihood of texts (language model), or of targets given texts, token by token and in all."""
        return score(self.text_model, _texts(texts), targets and _texts(targets))

    def embed(self, texts: Sequence[str], pooling: Pooling = "mean") -> list[Tensor]:
        """Last hidden states, see `qkv.run.embed.embed`: (M,) a text, or (T, M) where pooling is "none"."""
        return embed(self.text_model, _texts(texts), pooling)

    def save(self, path: Path | str) -> Path:
        """Write a directory that `load` reads back: each file beside, then renamed; the configuration last."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save(folder / TOKENIZER)
        weights.save(self.model, folder / WEIGHTS)
        write_settings(folder, self.model.spec, self.task, self.generation, self.recipe)
        return folder


def write_settings(folder: Path, spec: Transformer, task: Task, generation: Generation, recipe: Recipe | None) -> None:
    """`generation_config.json`, `recipe.yaml` and `config.json`."""
    write_json(folder / GENERATION, generation.to_dict())
    if recipe is not None:
        write_text(folder / RECIPE, recipe.to_yaml())
    write_json(folder / CONFIG, {"model_type": MODEL_TYPE, "task": task, "qkv": {"schema": SCHEMA, **spec.to_dict()}})


def load(path: Path | str, device: str | torch.device = "auto") -> Run:
    """The run in a directory.

    Raises ValueError, with the file's name, where the directory is no run or an unfinished one, a file is damaged or a
    pickle, the weights are not those of the model's spec (nothing is allocated then), or the tokenizer is another's.
    """
    folder, where = Path(path), devices.choose(device)
    _check_complete(folder)
    spec, task = read_config(folder / CONFIG)
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    check_fit(tokenizer, spec, str(folder))
    recipe = Recipe.load(folder / RECIPE) if (folder / RECIPE).is_file() else None
    model = weights.load(spec, folder / WEIGHTS, where)
    return Run(model, tokenizer, _generation(folder / GENERATION), task, recipe, folder)


def read_config(path: Path) -> tuple[Transformer, Task]:
    """The model's spec and its task, by a `config.json`."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("model_type") != MODEL_TYPE or not isinstance(data.get("qkv"), dict):
        found = data.get("model_type") if isinstance(data, dict) else None
        raise ValueError(f"{path} is not qkv's: its model_type is {found!r}, not {MODEL_TYPE!r}")
    try:
        spec = Transformer.from_dict(data["qkv"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    task = data.get("task", "translate" if spec.is_encoder_decoder else "continue")
    if task not in get_args(Task) or (task == "translate") != spec.is_encoder_decoder:
        raise ValueError(f"{path}: the task {task!r} is not one for this model; there is {', '.join(get_args(Task))}")
    return spec, task


def check_fit(tokenizer: Tokenizer, spec: Transformer, where: str) -> None:
    """That the model has a place for each of the tokenizer's tokens."""
    if tokenizer.vocab_size > spec.vocab_size:
        raise ValueError(
            f"{where}: the tokenizer has {tokenizer.vocab_size:,} tokens and the model a vocabulary of "
            f"{spec.vocab_size:,}, so they don't belong together"
        )


def _check_complete(folder: Path) -> None:
    if not folder.exists():
        raise ValueError(f"there is no run directory {folder}; `qkv train` makes one")
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; a run is a directory")
    missing = [name for name in (CONFIG, TOKENIZER, WEIGHTS) if not (folder / name).is_file()]
    if not missing:
        return
    if State.of(folder) is State.STARTED:
        raise ValueError(
            f"the run in {folder} is not finished (it has no {missing[0]}); go on with `qkv train {folder} --resume`"
        )
    raise ValueError(f"{folder} is not a run directory: it has no {missing[0]}")


def _generation(path: Path) -> Generation:
    if not path.is_file():
        return Generation()
    data = read_json(path)
    try:
        return Generation.from_dict(data)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def _texts(texts: Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        raise ValueError("texts are a list of strings; put a single one into a list: [text]")
    return texts
