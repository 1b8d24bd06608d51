"""`Ablation`: a recipe, the variants to train, their seeds and their budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast, get_args

from pydantic import Field

from ...core import several, yamls
from ...core.spec import Spec, brief, short
from ...runs.compare import by_length, complexity  # noqa: F401  (registers their kinds of measures)
from ...runs.compare.measures import Measure
from ...runs.recipes.overrides import warn_of_overruled, without_replaced
from ...runs.recipes.recipe import ABLATE, BESIDE, COMPARE, MEASURE, Recipe, override, tree
from ...runs.recipes.synonyms import settings_in_ours
from .drops import PARTS, check_parts, drop
from .grid import GridAxis, as_text, folders, grid, in_full, labels, one_at_a_time

BASELINE = "baseline"
SEEDS = 3
Budget = Literal["steps", "tokens", "flops", "time"]


def removed(budget: Budget) -> tuple[str, ...]:
    """The settings that trainings of equal budgets do without, see `budget.equalized`."""
    limits = ("training.max_steps", "training.max_epochs") if budget == "time" else ("training.max_time",)
    return ("training.patience", *limits)


def as_budget(name: str) -> Budget:
    """The budget of this name. Raises ValueError for another name."""
    known = get_args(Budget)
    if name not in known:
        raise ValueError(f"--budget is {', '.join(known[:-1])} or {known[-1]}, not {brief(name)}")
    return cast(Budget, name)


class AblationSettings(Spec):
    """The key `ablate` of a recipe's file: what `qkv ablate` varies if the command line doesn't say.

    vary:     by key, its values; by default, all combinations are trained.
    variants: by name, the settings that a variant changes. Each is combined with all of `vary`.
    drop:     parts to remove, one at a time (`drops.PARTS`).
    one_at_a_time: change a single key of `vary` in each variant.
    seeds:    trainings of each variant.
    budget:   what is equal for all variants, see `budget.equalized`.
    """

    vary: dict[str, Any] = Field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    drop: tuple[str, ...] = ()
    one_at_a_time: bool = False
    seeds: Annotated[int, Field(ge=1)] = SEEDS
    budget: Budget = "steps"


class Variant(Spec):
    """A description for tables, and the `key=value` settings that a variant changes."""

    label: str
    settings: tuple[str, ...] = ()


class Ablation(Spec):
    """A study: every variant of a recipe is trained once with each seed.

    recipe:   the tree of the recipe that all variants share.
    variants: by the name of their folder.
    baseline: the folder of the variant that the others are compared with: the unchanged recipe if it is among them, else
              the first.
    measure:  a further measure of every run, with the curves of the report; None if the recipe names none.
    """

    recipe: dict[str, Any]
    variants: dict[str, Variant]
    baseline: str
    seeds: tuple[int, ...]
    budget: Budget = "steps"
    measure: Measure | None = None

    @classmethod
    def load(
        cls,
        name: str | Path,
        settings: Iterable[str] = (),
        *,
        vary: str | Sequence[str] = (),
        parts: str | Sequence[str] = (),
        seeds: int | None = None,
        budget: Budget | None = None,
        sample: int | None = None,
        alone: bool = False,
    ) -> Self:
        """Load a study from a recipe. What `vary` and `parts` (to drop) leave open is taken from the recipe's `ablate`; if
        that is missing too, every part that the model has is dropped in turn.

        sample: train this many combinations of the values, chosen at random.
        alone:  change one key at a time instead of combining values.

        Raises ValueError for a key that does not exist, a variant that is not a valid recipe, and variants that are equal.
        """
        vary, parts, data = several.texts(vary, "vary"), several.texts(parts, "parts"), tree(name)
        settings = settings_in_ours(data, settings, Recipe)
        data = override(data, settings)
        plan = AblationSettings.from_dict(data.get(ABLATE) or {})
        if data.get(COMPARE) and not plan.variants:
            plan = plan.replace(variants={n: changes or {} for n, changes in data[COMPARE].items()})
        shared = {key: value for key, value in data.items() if key not in BESIDE}
        recipe = Recipe.from_tree(shared)
        alone = alone or (plan.one_at_a_time and not vary and sample is None)
        if alone and sample is not None:
            raise ValueError("--random chooses from the grid and --one-at-a-time leaves the grid; give one of them")
        asked = bool(vary or parts)
        if sample is not None and not (vary or (plan.vary and not asked)):
            raise ValueError(f"--random {sample} chooses from a grid; say what to vary with --vary KEY=VALUE,VALUE")
        axes = [GridAxis.parse(text) for text in vary] if asked else [GridAxis.of(*item) for item in plan.vary.items()]
        axes = [in_full(axis, recipe) for axis in axes]
        _check_keys(axes)
        dropped = parts if asked else list(plan.drop)
        check_parts(dropped)
        named = {} if asked else plan.variants
        if not (axes or dropped or named):
            dropped = _droppable(recipe)
        entries = _entries(recipe, axes, dropped, named, sample, alone)
        number = seeds or plan.seeds
        measure = Measure.from_dict(data[MEASURE]) if data.get(MEASURE) else None
        budget = budget or plan.budget
        varied = {entry.label: entry.settings for entry in entries if not (dropped or alone)}
        warn_of_overruled(settings, varied, "what is varied")
        warn_of_overruled(settings, {"": removed(budget)}, "an ablation, which gives all variants the same budget,")
        return cls(
            recipe=shared,
            **_distinct(shared, entries),
            seeds=tuple(range(recipe.seed, recipe.seed + number)),
            budget=budget,
            measure=measure,
        )

    @property
    def name(self) -> str:
        return str(self.recipe.get("name"))

    @property
    def runs(self) -> list[tuple[str, int]]:
        """(variant, seed) of every run, all variants with the first seed first, so a table is early complete."""
        return [(variant, seed) for seed in self.seeds for variant in self.variants]

    def variant(self, folder: str, seed: int | None = None) -> Recipe:
        """The recipe of a variant. Raises ValueError, naming the variant, if it is not valid."""
        recipe = recipe_of(self.recipe, self.variants[folder], self.seeds[0] if seed is None else seed)
        return recipe.model_copy(update={"name": f"{self.name}-{folder}"})

    def to_yaml(self) -> str:
        return yamls.dump(self.to_dict())


def _check_keys(axes: Sequence[GridAxis]) -> None:
    """Raise ValueError if a key is varied twice."""
    keys = [axis.key for axis in axes]
    for i, key in enumerate(keys):
        if key in keys[:i]:
            raise ValueError(f"--vary {key} is given twice; write all its values after one --vary")


def _droppable(recipe: Recipe) -> list[str]:
    """The parts that the recipe's model has."""
    parts = []
    for part in PARTS:
        try:
            drop(recipe, part)
        except ValueError:
            continue
        parts.append(part)
    if not parts:
        raise ValueError(
            f"the model of {recipe.name} has none of the parts {', '.join(PARTS)}; say what to vary with "
            "--vary KEY=VALUE,VALUE"
        )
    return parts


def _entries(
    recipe: Recipe,
    axes: Sequence[GridAxis],
    dropped: Sequence[str],
    named: dict[str, dict[str, Any]],
    sample: int | None,
    alone: bool,
) -> list[Variant]:
    """All variants, the unchanged recipe first if they change one thing each."""
    combined = one_at_a_time(axes) if alone else grid(axes, sample)
    entries = [Variant(label=BASELINE)] if dropped or alone else []
    if named:
        rest = list(zip(labels(combined), combined, strict=True)) or [("", ())]
        for name, changes in named.items():
            own = _as_settings(changes)
            entries += [Variant(label=", ".join(filter(None, (name, label))), settings=(*own, *s)) for label, s in rest]
    else:
        entries += [Variant(label=label, settings=s) for label, s in zip(labels(combined), combined, strict=True)]
    entries += [Variant(label=f"without {part}", settings=_as_settings(drop(recipe, part))) for part in dropped]
    return entries


def _as_settings(changes: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={as_text(value)}" for key, value in changes.items())


def _distinct(shared: dict[str, Any], entries: Sequence[Variant]) -> dict[str, Any]:
    """`variants` and `baseline` of an ablation. A variant that equals the baseline before it is left out; raises ValueError
    if other variants are equal, or if none is left to compare."""
    contents = [content_of(recipe_of(shared, entry)) for entry in entries]
    unchanged = content_of(recipe_of(shared, Variant(label=BASELINE)))
    kept: dict[str, int] = {}
    for i, content in enumerate(contents):
        if content not in kept:
            kept[content] = i
        elif entries[kept[content]].label != BASELINE:
            raise ValueError(
                f"{entries[kept[content]].label} and {entries[i].label} are the same recipe; leave one of them out"
            )
    if len(kept) == 1:
        raise ValueError(
            f"{entries[-1].label} changes nothing in the recipe, so there is nothing to compare; give other values"
            if len(entries) > 1
            else f"{entries[0].label} is the only variant, so there is nothing to compare; give more values"
        )
    chosen = [entries[i] for i in kept.values()]
    names = folders([entry.label for entry in chosen])
    baseline = names[list(kept).index(unchanged)] if unchanged in kept else names[0]
    return {"variants": dict(zip(names, chosen, strict=True)), "baseline": baseline}


def recipe_of(shared: dict[str, Any], variant: Variant, seed: int | None = None) -> Recipe:
    """The recipe of a variant. Raises ValueError, beginning with its label, if it is not valid."""
    seeds = [] if seed is None else [f"seed={seed}"]
    try:
        recipe = Recipe.from_tree(override(shared, [*without_replaced(variant.settings, seeds), *seeds]))
        recipe.spec()
        return recipe
    except ValueError as error:
        raise ValueError(f"{short(variant.label)}: {error}") from None


def content_of(recipe: Recipe) -> str:
    """What a recipe trains, to tell whether two are equal: its settings, and the model's spec for what `model` says."""
    return recipe.model_copy(update={"model": None}).to_json() + recipe.spec().to_json()
