"""The generated reference of the site: Python, command line, recipes and spec schema, as Markdown pages made at build.

`pages()` returns every page by its path; the hook of the site adds them. Nothing here is written by hand, so that the
reference says what the code says.
"""

from __future__ import annotations

from . import commands, kinds, python, recipes

FOLDER = "reference"


def pages() -> dict[str, str]:
    """The Markdown of every page of the reference, by its path below docs/."""
    parts = {
        "index.md": _index(),
        "commands.md": commands.page(),
        "recipes.md": recipes.page(),
        **python.pages(),
        **kinds.pages(),
    }
    return {f"{FOLDER}/{name}": text for name, text in parts.items()}


def navigation() -> list[dict[str, object]]:
    """The entries of the section in the site's navigation."""
    packages = [{name: f"{FOLDER}/python/{name}.md"} for name in python.packages()]
    roles = [{name: f"{FOLDER}/kinds/{name}.md"} for name in kinds.roles()]
    return [
        {"Overview": f"{FOLDER}/index.md"},
        {"Command line": f"{FOLDER}/commands.md"},
        {"Recipes": f"{FOLDER}/recipes.md"},
        {"Python": [f"{FOLDER}/python/index.md", *packages]},
        {"Kinds": [f"{FOLDER}/kinds/index.md", *roles]},
    ]


def _index() -> str:
    return (
        "# Reference\n\n"
        "These pages are generated from the code when the site is built.\n\n"
        "- [Command line](commands.md): every command with its options and an example.\n"
        "- [Recipes](recipes.md): every recipe that comes with qkv, with its settings.\n"
        "- [Python](python/index.md): every public class and function, by package.\n"
        "- [Kinds](kinds/index.md): every kind of every role of a spec, with its fields and their defaults: what a\n"
        "  recipe or the JSON of a model may hold.\n"
    )
