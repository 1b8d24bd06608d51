"""Pages are found by number and name, and split into text and cells."""

from __future__ import annotations

import pytest

from qkv.learn.tour.pages import CodeCell, find, pages


def test_pages_are_numbered_in_order() -> None:
    assert [page.number for page in pages()] == list(range(1, len(pages()) + 1))
    assert all(page.path.is_file() and page.text.startswith(f"# {page.number}. {page.title}") for page in pages())


@pytest.mark.parametrize("name", ["3", "attention", "03-attention"])
def test_a_page_is_found(name: str) -> None:
    assert find(name).name == "03-attention"


def test_an_unknown_page_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="no page 'atention'; did you mean 'attention'"):
        find("atention")


def test_parts_are_the_whole_page() -> None:
    for page in pages():
        joined = "".join(
            f"```python\n{part.code}```\n" + (f"\n```text\n{part.output}```\n" if part.output else "")
            if isinstance(part, CodeCell)
            else part
            for part in page.parts()
        )
        assert joined == page.text
