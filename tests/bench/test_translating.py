"""`python -m bench translating`: its models, its batches and its table."""

import gzip
import json
from pathlib import Path

import pytest
from bench.translating import work
from bench.translating.command import OFFERED, main, merged, other_rows, table
from bench.translating.peer import LIBRARIES

import qkv
from bench import corpora, machine
from qkv.io.families.marian import marian


def test_every_library_can_be_called() -> None:
    assert set(OFFERED) == set(LIBRARIES)


def test_lengths_match_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "multi30k").mkdir()
    (tmp_path / "multi30k" / work.SENTENCES).write_bytes(gzip.compress(b"A man, asleep.\nTwo dogs\nThree\n"))
    monkeypatch.setenv(corpora.VARIABLE, str(tmp_path))
    assert work.lengths(2) == [6, 3]


def test_rows_keep_their_lengths_and_a_batch_has_one_number_of_new_tokens() -> None:
    first, second = work.batches([*range(40, 4, -1)], vocab_size=512)
    assert [len(row) for row in first["rows"]] == [*range(5, 37)] and first["new"] == 20
    assert [len(row) for row in second["rows"]] == [37, 38, 39, 40] and second["new"] == 38
    assert all(row[-1] == work.END and all(1 < i < 511 for i in row[:-1]) for row in first["rows"])


@pytest.mark.parametrize("shape", work.SHAPES)
def test_a_model_gives_each_row_the_asked_number_of_tokens(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "FOLDER", tmp_path)
    folder = work.model(shape, tiny=True)
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "marian" and config["decoder_start_token_id"] == config["vocab_size"] - 1
    translate = LIBRARIES["qkv"][0](str(folder), "fp32", 1)
    rows = [[5, 9, 0], [7, 8, 200, 100, 0]]
    greedy = translate(rows, 7, 1)
    assert [len(row) for row in greedy + translate(rows, 7, 4)] == [7] * 4
    assert work.END not in [token for row in greedy for token in row[:-1]]


def test_weights_are_spread_and_the_vector_of_padding_is_zero() -> None:
    spec = marian(vocab_size=64, d_model=16, n_layers=1, n_heads=2, d_ff=32, max_positions=16)
    before, after = qkv.build(spec, seed=0), qkv.build(spec, seed=0)
    work.spread(after, pad=63)
    old, new = dict(before.named_parameters()), dict(after.named_parameters())
    assert not new["encoder.embedding.weight"][63].any()
    changed = {
        "encoder.embedding.weight": 2.0,
        "encoder.blocks.0.attention.q.weight": 6.0,
        "decoder.blocks.0.cross.k.weight": 6.0,
        "decoder.blocks.0.cross.out.weight": 4.0,
        "encoder.blocks.0.attention.v.weight": 1.0,
        "decoder.blocks.0.feedforward.up.weight": 1.5,
    }
    for name, factor in changed.items():
        assert new[name][:8].equal(old[name][:8] * factor), name


def test_missing_data_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(corpora.VARIABLE, str(tmp_path))
    with pytest.raises(SystemExit, match="2"):
        main(["--quick"])
    assert f"{tmp_path / 'multi30k'} is missing: set {corpora.VARIABLE}" in capsys.readouterr().err


def test_the_table_says_ratios_other_tokens_and_who_is_missing() -> None:
    rates = {"qkv": [40.0, 44.0, 42.0], "CTranslate2": [42.0]}
    case = {"shape": "Marian", "beams": 4, "precision": "fp32", "date": "2026-11-27", "machine": machine.describe()}
    case |= {"code": {"commit": "abc"}, "load_before": 0.0, "threads": 2, "versions": {"qkv": "torch 2"}, "rounds": 3}
    case |= {
        "tokens_per_s": rates,
        "sentences": 256,
        "new_tokens": 3000,
        "failed": {"Hugging Face": "no interpreter given"},
    }
    case |= {"other_rows": other_rows({"qkv": [[1], [2]], "CTranslate2": [[1], [3]]})}
    text = table({"cases": [case]})
    assert "| Marian | 4 beams | fp32 | qkv | 42 | | |" in text
    assert "CTranslate2, other tokens in 1 of 256 | 42 | 1.00 | ≥ 1.2: **not reached** |" in text
    assert "| Hugging Face: no interpreter given | | | |" in text
    newer = {**case, "date": "2026-11-28"}
    greedy = {**case, "beams": 1}
    assert merged([case, greedy], [newer]) == [greedy, newer]
