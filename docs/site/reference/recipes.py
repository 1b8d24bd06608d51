"""The reference of recipes: each that comes with qkv, with its description, how to call it, and its file."""

from __future__ import annotations

from .docstrings import escaped, table


def page() -> str:
    from qkv.core import yamls
    from qkv.runs.recipes.packaged import packaged

    texts = dict(sorted(packaged().items()))
    about = {name: str(yamls.load(text, name)["description"]) for name, text in texts.items()}
    rows = [(f"[`{name}`](#{name})", escaped(line)) for name, line in about.items()]
    parts = [
        "# Recipes",
        "`qkv train NAME` trains one; `qkv show NAME` shows all of its settings, defaults included. "
        "[Recipes](../recipes.md) says what to expect of them.",
        table(("recipe", ""), rows),
    ]
    for name, text in texts.items():
        parts.append(f"## {name} {{ #{name} }}\n\n{escaped(about[name])}\n\n```yaml\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
