"""Prompt templates: texts with a place for the name of a class, such as "a photo of a {}"."""

from __future__ import annotations

from collections.abc import Sequence

from ....core.spec import brief

PLACE = "{}"


def check_template(template: str, name: str = "the template") -> str:
    """Return a template. Raises ValueError unless it has one place {} for a class and no other braces."""
    if not isinstance(template, str) or template.count(PLACE) != 1 or set("{}") & set(template.replace(PLACE, "")):
        raise ValueError(
            f"{name} needs {{}} once, where the class stands, such as 'a photo of a {{}}', not {brief(template)}"
        )
    return template


def prompts(classes: Sequence[str], templates: Sequence[str]) -> list[list[str]]:
    """The prompts of each class. Raises ValueError for fewer than two classes, an empty one, or one named twice."""
    names = [name.strip() for name in classes]
    if len(names) < 2:
        named = f"only {brief(names[0])}" if names and names[0] else "none"
        raise ValueError(f"zero-shot classification chooses among classes, and there is {named}; name two at least")
    if "" in names:
        raise ValueError(f"class {names.index('') + 1} of {len(names)} has no name; leave it out")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the class {brief(twice)} is named twice; name it once")
    return [[check_template(template).format(name) for template in templates] for name in names]
