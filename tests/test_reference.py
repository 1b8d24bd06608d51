"""The generated reference of the site: complete, from the code, and with documented examples."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from qkv.core.spec import Spec
from qkv.runs.recipes.packaged import packaged

SITE = Path(__file__).parents[1] / "docs" / "site"
sys.path.insert(0, str(SITE))
from reference import commands, docstrings, kinds, python, recipes  # noqa: E402


def test_every_command_has_its_options_and_an_example() -> None:
    page, found = commands.page(), dict(commands.all_commands())
    assert ("train",) in found and ("tokenizer", "train") in found and ("cost", "predict") in found
    for path, command in found.items():
        section = page.split(f"{{ #qkv-{'-'.join(path)} }}", 1)[1].split("\n## ", 1)[0]
        for option in (one for one in command.params if one.param_type_name == "option" and not one.hidden):
            assert f"`{option.opts[0]}" in section, (path, option.opts)
        assert hasattr(command, "list_commands") or "```sh\nqkv " in section, f"no document shows qkv {' '.join(path)}"


def test_every_recipe_is_there_with_its_file() -> None:
    page = recipes.page()
    assert all(f"## {name} {{ #{name} }}" in page and text.rstrip() in page for name, text in packaged().items())


@pytest.mark.parametrize("role", kinds.roles())
def test_every_kind_is_there_with_its_fields(role: str) -> None:
    page = kinds.pages()[f"kinds/{role}.md"]
    for kind, cls in kinds.kinds(role).items():
        section = page.split(f"\n## {kind} {{ #{kind} }}\n", 1)[1].split("\n## ", 1)[0]
        assert cls.__name__ in section
        assert all(f"| `{name}` |" in section for name in cls.model_fields)
        assert issubclass(cls, Spec)


def test_public_names_are_on_the_page_of_their_package() -> None:
    page = python.package_page("nn.positions")
    for name in ("Rotary", "ALiBi", "Sinusoidal", "PositionModule"):
        assert re.search(rf"^### {name} {{ #qkv\.nn\.positions\.\w+\.{name} }}$", page, re.MULTILINE)
    assert "class Rotary(Position, kind='rotary')" in page and "_" not in re.findall(r"^### (.)", page, re.MULTILINE)


def test_docstrings_become_markdown() -> None:
    doc = """Scale by `1/√d`, as in *that* paper <et al. 2017>. More.

    a list of what it takes:
    rate:    how fast
             it learns
    a, b:    sides

        x = [1, 2]

    x_i and _y.

    **A warning** about *it*:

    Args:
        size: how large
            it is
        depth: how deep
    """
    assert docstrings.first(doc) == r"Scale by `1/√d`, as in \*that\* paper &lt;et al. 2017>."
    assert docstrings.entries(doc) == {"rate": "how fast it learns", "a": "sides", "b": "sides"}
    text = docstrings.markdown(doc)
    assert "- **rate**: how fast it learns\n- **a, b**: sides" in text
    assert "```text\nx = [1, 2]\n```" in text and r"x_i and \_y." in text
    assert r"**A warning** about \*it\*:" in text
    assert "Arguments:\n\n- **size**: how large it is\n- **depth**: how deep" in text


def test_defaults_and_types_match_the_fields() -> None:
    attention = kinds.pages()["kinds/attention.md"]
    assert "| `n_heads` | whole number | required |" in attention
    assert "| `pattern` | [pattern](pattern.md) | `full` |" in attention
    assert '| `sink` | `none` or `zero` or `learned` | `"none"` |' in attention
