"""Render an HTML page from a template in `page/`: inline styles, no scripts, no external files, all text escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

PAGE = Path(__file__).parent / "page"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["style"] = Markup((PAGE / "style.css").read_text(encoding="utf-8"))
    return environment


def render(template: str, **context: object) -> str:
    """Render a template. Raises jinja2.UndefinedError if `context` lacks a name that it uses."""
    return _environment().get_template(template).render(**context)
