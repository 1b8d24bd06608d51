"""Tables of reports."""

from __future__ import annotations

from qkv.runs.report.table import table


def test_rows_and_columns_have_headers_and_text_is_escaped() -> None:
    html = table("run", ["<loss>"], [("a", ["1"])], "Numbers")
    assert '<th scope="col">&lt;loss&gt;</th>' in html and '<th scope="row">a</th><td>1</td>' in html
    assert 'role="region" aria-label="Numbers" tabindex="0"' in html
