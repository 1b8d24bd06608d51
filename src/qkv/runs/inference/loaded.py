"""`LoadedModel`: a trained model with its tokenizer, generation settings, task and recipe, for inference functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ...data.tokenizers.tokenizer import Tokenizer
from ...generation import Generation
from ...io.directories.locate import name_of
from ...io.directories.origin import Origin
from ...io.directories.run_config import Use, check_fit, check_task, usual_task
from ...nn.models.build import AnyModel
from .text import TextModel

if TYPE_CHECKING:
    from ...data.task import Task
    from ..recipes.recipe import Recipe
    from ..tasks.prediction import TrainedModel


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
    """

    model: AnyModel
    tokenizer: Tokenizer | None
    generation: Generation = field(default_factory=Generation)
    task: Use = ""  # type: ignore[assignment]  # replaced by the usual one
    recipe: Recipe | None = None
    path: Path | None = None
    origin: Origin | None = None
    allow_pickle: bool = False

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
    def text_model(self) -> TextModel:
        """The model with its tokenizer. Raises ValueError if there is none."""
        if self.tokenizer is None:
            raise ValueError(f"{self.name} has no tokenizer, so it reads no texts; give ids to .model")
        ids = None if self.origin is None or self.origin.is_ours else self.origin.ids
        return TextModel(self.model, self.tokenizer, self.task, ids)

    @property
    def for_task(self) -> TrainedModel:
        """The run as the task's `predict` takes it."""
        from ..tasks.prediction import TrainedModel

        recipe = self.recipe
        if recipe is None:
            return TrainedModel(self.model, self.tokenizer)
        return TrainedModel(self.model, self.tokenizer, recipe.batching, recipe.data)

    @property
    def trained_on(self) -> Task | None:
        """The task of the recipe; None if there is no recipe, or it has no task."""
        return None if self.recipe is None else self.recipe.task
