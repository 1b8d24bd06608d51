"""Pictures of attention: what is kept, what is drawn, what is cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from qkv.look.attention_maps import AttentionMap
from qkv.look.attention_picture import MOST_TOKENS, Picture, load, save


def _picture(heads: int = 2, rows: int = 2, columns: int = 3, layers: int = 2) -> Picture:
    generator = torch.Generator().manual_seed(0)
    maps = [
        AttentionMap(f"decoder.blocks.{i}.cross", torch.rand(1, heads, rows, columns, generator=generator).softmax(-1))
        for i in range(layers)
    ]
    return Picture.of("<de> one", [f"r{i}" for i in range(rows)], [f"c{i}" for i in range(columns)], maps)


def _heads(drawn: str) -> list[tuple[int, int]]:
    """The (layer, head) of each small picture, by its description."""
    found = re.findall(r'aria-label="layer (\d+), head (\d+)"', drawn)
    return [(int(layer), int(head)) for layer, head in found]


def test_saved_pictures_come_back(tmp_path: Path):
    pictures = [_picture(), _picture(heads=1)]
    save(tmp_path / "attention.json", pictures)
    assert load(tmp_path / "attention.json") == pictures
    assert load(tmp_path / "absent.json") == []


@pytest.mark.parametrize("text", ["{", '[{"title": "x"}]', "[1]", '{"a": 1}'])
def test_another_file_is_refused_by_name(tmp_path: Path, text: str):
    (tmp_path / "attention.json").write_text(text)
    with pytest.raises(ValueError, match=r"attention\.json does not hold attention pictures"):
        load(tmp_path / "attention.json")


def test_the_large_picture_is_the_mean_of_the_last_layers_heads():
    picture = _picture()
    a, b = (torch.tensor(w) for w in picture.layers[-1]["weights"])
    torch.testing.assert_close(torch.tensor(picture.mean()), (a + b) / 2)


def test_every_layer_and_head_is_drawn_small():
    drawn = _picture(heads=3, layers=2).draw()
    assert _heads(drawn) == [(layer, head) for layer in (1, 2) for head in (1, 2, 3)]
    assert "&lt;de&gt; one" in drawn


def test_of_many_layers_and_heads_some_are_drawn_the_last_layer_among_them():
    heads = _heads(_picture(heads=12, layers=30).draw())
    assert len(heads) == len(set(heads)) == 64
    assert heads[0] == (1, 1) and heads[-1] == (30, 8)


def test_one_layer_of_one_head_needs_no_second_picture():
    assert _heads(_picture(heads=1, layers=1).draw()) == []


def test_very_long_sequences_are_cut():
    picture = _picture(rows=3, columns=MOST_TOKENS + 20)
    assert len(picture.columns) == MOST_TOKENS == len(picture.mean()[0])
    assert picture.note == f"The first {MOST_TOKENS} of {MOST_TOKENS + 20} tokens are drawn"


def test_each_head_enlarges_and_names_how_many_are_drawn():
    drawn = _picture(heads=12, layers=2).draw("a")
    assert drawn.count("<details") == drawn.count('<div class="enlarged">') == 16
    assert "8 of 12 heads, each in shades" in drawn and "Every layer" not in drawn
    assert 'id="a-labels"' in drawn and drawn.count('href="#a-labels"') == 16
