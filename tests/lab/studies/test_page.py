"""The report of a study: its sections and facts, without those that are missing, and links to its files."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from qkv.lab.studies.page import file_list, write_report
from qkv.runs.report.story import Section


def test_a_page_has_its_sections_and_escapes_text(tmp_path: Path) -> None:
    sections = [Section("Results", Markup("<b>1</b>"), "a note"), None]
    facts = [("best", "4 %", "trial 3")]
    path = write_report(
        tmp_path / "report.html", "tuning", "a < b", sections, lead="why", warning="one failed", facts=facts
    )
    page = path.read_text(encoding="utf-8")
    assert path == tmp_path / "report.html" and page.count("<section") == 1
    assert all(
        text in page for text in ("a &lt; b", "<b>1</b>", "a note", "tuning", "why", "one failed", "4 %", "trial 3")
    )


def test_files_are_links() -> None:
    assert file_list(["a&b.csv"]) == '<ul><li><a href="a&amp;b.csv">a&amp;b.csv</a></li></ul>'
