"""A model with its tokenizer, generation settings, task and recipe, as plain data: what inference functions take."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..data.task import Task
from ..directories.origin import Origin
from ..directories.run_config import Use, check_fit, check_task, usual_task
from ..generation import Generation
from ..models.build import AnyModel
from ..recipes.recipe import Recipe
from ..tasks.prediction import TrainedModel
from ..tokenizers.tokenizer import Tokenizer
from .text import TextModel


@dataclass(frozen=True)
class LoadedModel:
    """A trained model with everything that its use needs.

    model:      in evaluation mode.
    tokenizer:  the one that it was trained with; None where the directory has none, and only ids go in and out.
    generation: how outputs are generated where a call does not say otherwise.
    task:       what the model does with a text, see `Use`; by default what its stacks are for.
    recipe:     what it was trained by; None where the directory has no `recipe.yaml`.
    path:       where it was loaded from.
    origin:     what the directory said besides, where it was one of the Hub.
    """

    model: AnyModel
    tokenizer: Tokenizer | None
    generation: Generation = field(default_factory=Generation)
    task: Use = ""  # type: ignore[assignment]  # what such a model usually does
    recipe: Recipe | None = None
    path: Path | None = None
    origin: Origin | None = None

    def __post_init__(self) -> None:
        if not self.task:
            object.__setattr__(self, "task", usual_task(self.model.spec))
        check_task(self.task, self.model.spec, self.path or "this run")
        if self.tokenizer is not None:
            check_fit(self.tokenizer, self.model.spec, str(self.path or "this run"))

    @cached_property
    def warned_about(self) -> set[tuple[str, str]]:
        """("word", …) and ("tag", …) for what `unknown_words.warn` has warned about."""
        return set()

    @property
    def text_model(self) -> TextModel:
        """The model with its tokenizer. Raises ValueError where there is none."""
        if self.tokenizer is None:
            raise ValueError(f"{self.path or 'this run'} has no tokenizer, so it reads no texts; give ids to .model")
        ids = None if self.origin is None or self.origin.is_ours else self.origin.ids
        return TextModel(self.model, self.tokenizer, self.task, ids)

    @property
    def for_task(self) -> TrainedModel:
        """What the task needs of it to predict."""
        recipe = self.recipe
        if recipe is None:
            return TrainedModel(self.model, self.tokenizer)
        return TrainedModel(self.model, self.tokenizer, recipe.batching, recipe.data)

    @property
    def trained_on(self) -> Task | None:
        """The task of the recipe; None where there is no recipe or it has none."""
        return None if self.recipe is None else self.recipe.task
