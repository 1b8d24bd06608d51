"""Names that other libraries use: their options in recipes and settings, and tasks and data sets for recipes."""

from __future__ import annotations

import inspect
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from ...core import several
from ...core.spec import Spec, brief
from ...core.synonyms import both, same
from ...core.synonyms.table import SAME
from ...io import families
from . import overrides
from .keys import spec_at
from .model_choice import PRESET

_RECIPES = {
    "classify": "sentiment imdb sst2 sst-2 spam intent intents topic emotion toxicity nli mnli text-classification "
    "sequence-classification classification classifier labels",
    "tag": "ner pos conll conll2003 tagging token-classification entities named-entities chunking",
    "answer": "qa squad question-answering extractive-qa reading-comprehension",
    "choose": "multiple-choice swag hellaswag copa",
    "similarity": "sts stsb embedding embeddings sentence-similarity sentence-transformers sbert retrieval bi-encoder",
    "translate": "translation translator mt nmt machine-translation wmt multi30k iwslt",
    "summarize": "summary summarization summarisation cnn-dailymail xsum paraphrase text2text",
    "chat": "sft instruct instruction instructions instruction-tuning dialog dialogue assistant alpaca sharegpt chatbot",
    "lm": "text language-model language-modeling causal-lm clm text-generation wikitext finetune",
    "nanogpt": "shakespeare tinyshakespeare char-lm charlm",
    "bert": "mlm masked-lm fill-mask",
    "vit": "image images pictures image-classification cifar cifar10 mnist imagenet",
    "detect": "detection object-detection detr yolo coco boxes",
    "segment": "segmentation semantic-segmentation mask masks",
    "restore": "denoise image-denoising image-restoration deblur deblurring inpainting",
    "upscale": "super-resolution superresolution upscaling image-to-image",
    "caption": "captioning captions image-captioning image-to-text",
    "see": "vqa visual-question-answering multimodal vision-language vlm llava paligemma image-text-to-text",
    "omni": "omni-modal any-to-text audio-text-to-text video-text-to-text several-modalities multimodality",
    "speech": "sound sounds audio audio-classification speech-commands keyword-spotting",
    "video": "videos video-classification action-recognition",
    "music": "midi melody",
    "forecast": "time-series timeseries series forecasting prediction",
    "protein": "proteins secondary-structure",
    "scaling": "scaling-laws chinchilla",
}

RECIPES = {name: recipe for recipe, names in _RECIPES.items() for name in names.split()}
"""Recipes by the names of tasks and data sets."""


def recipe_for(name: str) -> str | None:
    """A clause that names the recipe for a task or a data set; None if the name is unknown."""
    found = RECIPES.get(name.lower().replace("_", "-"))
    return None if found is None else f"the recipe for it is {brief(found)}"


def tree_in_ours(tree: dict[str, Any], root: type[Spec]) -> dict[str, Any]:
    """Return a recipe's tree by qkv's names: options of other libraries that mean the same are taken.

    root: the spec of the tree. Raises ValueError if an option is given by two names.
    """
    return _renamed(tree, [], tree, root)


def key_in_ours(key: str, tree: dict[str, Any], root: type[Spec]) -> str:
    """Return the key of a setting by qkv's names, as `tree_in_ours` does."""
    *path, last = key.split(".")
    return _in_ours(last, path, tree, root) or key


def settings_in_ours(tree: dict[str, Any], settings: str | Iterable[str], root: type[Spec]) -> list[str]:
    """Return the settings of a recipe's tree by qkv's names: `learning_rate=0.1` is `training.optimizer.lr=0.1`."""
    settings, result = several.texts(settings, "settings"), list[str]()
    parsed = [overrides.parse(setting) for setting in settings]
    changed = _with(tree, parsed)
    names: dict[str, str] = {}
    for setting, (key, value) in zip(settings, parsed, strict=True):
        ours = key_in_ours(key, changed, root)
        if (other := names.setdefault(ours, key)) != key:
            raise ValueError(both(other, key, ours))
        renamed = _renamed(value, ours.split("."), changed, root) if isinstance(value, dict) else value
        kept = setting if ours == key else f"{ours}={setting.partition('=')[2]}"
        result.append(kept if renamed == value else overrides.as_setting(ours, renamed))
    return result


def _with(tree: dict[str, Any], settings: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The tree with settings, as far as they fit: it says of which kinds the parts are."""
    for key, value in settings:
        try:
            tree = overrides.put(tree, key, value)
        except ValueError:  # `overrides.apply` says why
            continue
    return tree


def _renamed(node: dict[str, Any], path: Sequence[str], tree: dict[str, Any], root: type[Spec]) -> dict[str, Any]:
    """Return the part of the tree at `path` by qkv's names."""
    moved: dict[str, str] = {}
    result: dict[str, Any] = {}
    for key, value in node.items():
        if (place := _in_ours(key, path, tree, root)) is not None:
            moved[key] = place.removeprefix("".join(f"{part}." for part in path))
        else:
            result[key] = _renamed(value, [*path, key], tree, root) if isinstance(value, dict) else value
    for key, place in moved.items():
        if _has(result, place.split(".")):
            other = next((name for name, at in moved.items() if at == place and name != key), place)
            raise ValueError(both(key, other, ".".join([*path, place])))
        result = overrides.put(result, place, node[key])
    return result


def _in_ours(name: object, path: Sequence[str], tree: dict[str, Any], root: type[Spec]) -> str | None:
    """The setting that another library's name at a path means; None for qkv's own names and for those that are not taken."""
    if not isinstance(name, str) or name not in SAME or name in _known(path, tree, root):
        return None
    place = same(name, ".".join(path))
    if place is None:
        return None
    *parent, last = place.split(".")
    return place if last in _known(parent, tree, root) else None


def _known(path: Sequence[str], tree: dict[str, Any], root: type[Spec]) -> Container[str]:
    """The names that a recipe has at a path; in the model, the sizes of its preset."""
    if list(path) != ["model"]:
        return spec_at(tree, list(path), root).model_fields
    model = tree.get("model")
    preset = model.get(PRESET) if isinstance(model, dict) else model
    found = families.presets().get(preset) if isinstance(preset, str) else None
    return () if found is None else inspect.signature(found[0]).parameters


def _has(node: Any, path: Sequence[str]) -> bool:
    for part in path:
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return True
