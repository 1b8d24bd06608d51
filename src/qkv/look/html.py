"""One offline page from a template in `page/`: styles inside, nothing fetched, nothing run, every word escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

PAGE = Path(__file__).parent / "page"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.globals["style"] = Markup((PAGE / "style.css").read_text(encoding="utf-8"))
    return made


def render(template: str, **context: object) -> str:
    """The page as text. A name that the template wants and `context` lacks is an error."""
    return _environment().get_template(template).render(**context)
