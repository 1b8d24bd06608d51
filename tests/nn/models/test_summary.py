"""Models in one line, as a tree and as HTML: short whatever their size, equal blocks folded, nothing of a reader's eaten."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest
from fast_subset import fast

import qkv
from qkv.core.layout import Layout
from qkv.io.families import PRESETS, preset
from qkv.nn.models.summary import one_line, rounded, tree


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("gpt2", "Transformer(gpt2-like: 12 × 768, 12 heads, 124 M)"),
        ("llama-3-8b", "Transformer(llama-like: 32 × 4096, 32 heads, 8 KV heads, 8.03 B)"),
        ("gemma-3-1b", "Transformer(gemma3_text-like: 26 × 1152, 4 heads, 1 KV head, 1 B)"),
        ("transformer", "Transformer(encoder–decoder: 6 + 6 × 512, 8 heads, 63.1 M)"),
        ("albert-base-v2", "Transformer(albert-like: 12 × 768, 12 heads, 11.2 M)"),
        ("rnnsearch", "Recurrent(recurrent: 1 × 1000, 80.5 M)"),
    ],
)
def test_a_model_in_one_line(name: str, line: str) -> None:
    assert repr(preset(name)) == line


def test_what_no_family_can_express_is_called_by_its_stacks() -> None:
    assert repr(preset("gpt2", position="alibi")) == "Transformer(decoder: 12 × 768, 12 heads, 124 M)"


@pytest.mark.parametrize("name", fast(PRESETS, *list(PRESETS)[::6]))
def test_every_preset_is_short_and_soon_shown(name: str) -> None:
    spec, began = preset(name), time.process_time()
    line, lines = one_line(spec), tree(spec).splitlines()
    assert time.process_time() - began < 10
    assert len(line) < 100 and line == lines[0]
    blocks = 12 * 48 if name.startswith("umt5") else 0  # each has its own table of positions
    assert len(lines) < 60 + blocks and all(len(text) < 190 for text in lines)


def test_equal_blocks_are_folded_and_others_are_not() -> None:
    lines = str(preset("gemma-3-1b")).splitlines()
    blocks = [line.strip("│├└─ ") for line in lines if "blocks" in line]
    assert blocks == ["blocks 0–4, 6–10, 12–16, 18–22, 24–25: 22 × Block()", "blocks 5, 11, 17, 23: 4 × Block()"]
    assert any("pattern: Causal() & Window(size=512)" in line for line in lines)
    assert sum("Rotary(base=1000000.0)" in line for line in lines) == 1


def test_a_block_that_differs_in_a_number_names_it() -> None:
    lines = [line.strip("│├└─ ") for line in str(preset("bigbird-roberta-base")).splitlines() if "blocks" in line]
    assert lines[:2] == ["blocks 0: Block(dropout=0.1)", "blocks 1: as blocks 0 with attention.pattern.seed=1"]
    assert len(lines) == 12


def test_a_change_shows() -> None:
    changed = preset("gpt2").replace({"decoder.blocks.3.attention.pattern": qkv.causal() & qkv.window(64)})
    assert "blocks 0–2, 4–11: 11 × Block(dropout=0.1)" in str(changed)
    assert "Causal() & Window(size=64)" in str(changed) and "Window" not in str(preset("gpt2"))


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (7, "7"),
        (999, "999"),
        (1000, "1 k"),
        (12_345, "12.3 k"),
        (999_885_952, "1 B"),
        (124_439_808, "124 M"),
        (2 * 10**12, "2 T"),
    ],
)
def test_numbers_of_parameters(n: int, text: str) -> None:
    assert rounded(n) == text


class Texts(HTMLParser):
    """What a reader sees, and how many branches are open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.depth = self.branches = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.depth += 1
        self.branches += tag == "details"

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_has_the_lines_of_the_tree() -> None:
    spec = preset("t5-small")
    page = Texts(spec._repr_html_())
    assert page.depth == 0 and page.branches > 4
    assert page.texts == [line.lstrip("│├└─ ") for line in str(spec).splitlines()]


def test_patterns_are_written_as_they_are_combined() -> None:
    pattern = qkv.causal() & (qkv.window(64) | qkv.sinks(4))
    assert repr(pattern) == "Causal() & (Window(size=64) | Sinks(count=4))"
    assert repr(~pattern) == f"~({pattern!r})" and repr(~qkv.window(3)) == "~Window(size=3)"
    names = {name: getattr(qkv, name) for name in ("Causal", "Window", "Sinks")}
    for one in (pattern, ~pattern, ~qkv.window(3), qkv.causal() | ~qkv.sinks(2)):
        assert eval(repr(one), names) == one
        assert one._repr_svg_().startswith("<svg") and one.mask(Layout.full(8)).shape == (8, 8)


def test_fields_at_their_defaults_are_left_out() -> None:
    assert repr(qkv.LayerNorm()) == "LayerNorm()"
    assert repr(qkv.Attention(n_heads=2, dropout=0.1)) == "Attention(n_heads=2, dropout=0.1)"


def test_dir_has_what_a_user_looks_for() -> None:
    names = dir(preset("gpt2"))
    assert {"replace", "diff", "to_json", "decoder", "d_model", "n_parameters", "cost"} <= set(names)
    assert not {"parse_obj", "construct", "dict", "json", "schema", "copy", "model_dump", "model_fields_set"} & set(
        names
    )
    assert len(names) == len(set(names))
