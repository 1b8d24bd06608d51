"""HTML pages hold everything, link to each other and to the documents, and request nothing."""

from __future__ import annotations

import re
from pathlib import Path

from qkv.learn.tour import site
from qkv.learn.tour.pages import pages


def test_the_site_has_every_page(tmp_path: Path) -> None:
    index = site.write(tmp_path / "tour", "https://example.org")
    written = {path.name for path in index.parent.iterdir()}
    assert written == {"index.html", *(f"{page.name}.html" for page in pages())}
    for page in pages():
        shown = (
            (index.parent / f"{page.name}.html")
            .read_text(encoding="utf-8")
            .count('<img src="data:image/svg+xml;base64,')
        )
        assert shown == page.text.count(".svg)") > 0, page.name
    for path in index.parent.iterdir():
        text = path.read_text(encoding="utf-8")
        local = [link for link in re.findall(r'href="([^"#]+)', text) if "://" not in link]
        assert set(local) <= written, path.name
        assert not re.findall(r'src="(?!data:)', text)
        assert "![" not in text
        assert "```" not in text and "default-src 'none'" in text
