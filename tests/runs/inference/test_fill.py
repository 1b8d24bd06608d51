"""Masks filled in by masked language models: what `transformers` says of the same texts."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from run_tiny import LANGUAGE_MODEL, write_text
from test_predict_hub import TAGS, named, of_hub, transformers

from qkv.cli import main
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

TEXTS = ["Ada lives in [MASK].", "[MASK] plays the [MASK] , and Ben lives [MASK] Norway", "[MASK]"]


def test_candidates_match_the_pipeline(tmp_path: Path) -> None:
    seen = set()
    for seed in range(3):
        theirs, tokenizer, run = of_hub(tmp_path, "BertForMaskedLM", seed)
        pipeline = transformers.pipeline("fill-mask", model=theirs, tokenizer=tokenizer, top_k=4, device="cpu")
        for text, found in zip(TEXTS, run.fill(TEXTS, top_k=4), strict=True):
            wanted = pipeline(text)
            masks = wanted if text.count("[MASK]") > 1 else [wanted]
            assert [[(one.id, one.token) for one in mask] for mask in found.masks] == [
                [(one["token"], one["token_str"]) for one in mask] for mask in masks
            ]
            for ours, mask in zip(found.masks, masks, strict=True):
                assert [one.probability for one in ours] == pytest.approx([one["score"] for one in mask], rel=1e-4)
            if len(masks) == 1:
                assert found.text == wanted[0]["sequence"]
            seen |= {mask[0].token for mask in found.masks}
    assert len(seen) > 2


def test_each_mask_of_a_text_is_filled_by_its_likeliest_token(tmp_path: Path) -> None:
    *_, run = of_hub(tmp_path, "BertForMaskedLM")
    text, (first, *_) = TEXTS[1], run.fill([TEXTS[1]])
    best = [mask[0].token for mask in first.masks]
    ids = run.tokenizer.encode(text, control=True) if run.tokenizer is not None else []
    assert len(best) == ids.count(4) == 3 and all(len(mask) == 5 for mask in first.masks)
    assert run.fill([text, "[MASK]"])[0].masks[0][0].probability == pytest.approx(first.masks[0][0].probability)
    assert len(run.fill(["[MASK]"], top_k=1000)[0].masks[0]) == run.model.vocab_size


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    *_, run = of_hub(tmp_path, "BertForMaskedLM")
    assert main(["fill", str(tmp_path), "--top-k", "2", "--json", *TEXTS[:2], " "]) == 0
    one, two, blank = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["text"], one["filled"]) == (TEXTS[0], run.fill(TEXTS)[0].text)
    assert [len(mask) for mask in two["masks"]] == [2, 2, 2]
    assert set(two["masks"][0][0]) == {"token", "id", "probability"}
    assert blank == {"text": " ", "filled": None, "masks": []}
    lines = f"{TEXTS[0]}\n\n{TEXTS[1]}\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(["fill", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.split("\n")
    assert printed[0].endswith(f"\t{one['filled']}") and printed[1] == "" and len(printed) == 1 + 1 + 3 + 1
    for given, said in (
        ("no mask", "text 1, 'no mask': it has no mask; write [MASK] in place of a token"),
        ("[MASK] ada" * 40, "context of 32"),
    ):
        assert main(["fill", str(tmp_path), given]) == 2
        assert said in capsys.readouterr().err
    assert main(["fill", str(tmp_path), "[MASK]", "", "no"]) == 2
    told = capsys.readouterr()
    assert "text 3, 'no': it has no mask" in told.err and not told.out
    assert main(["fill", str(tmp_path), "[MASK]", "--top-k", "0"]) == 2
    assert "top_k must be at least 1, not " in capsys.readouterr().err


def test_a_run_trained_here_fills_its_own_mask(tmp_path: Path) -> None:
    own = [one for one in LANGUAGE_MODEL if not one.startswith(("tokenizer.bos", "generation", "model"))]
    sizes = ["model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=16", "model.max_positions=64"]
    data = [f"data={{kind: text, path: {write_text(tmp_path)}, documents: line}}", "task.next_sentence=false"]
    train(Recipe.load("bert", [*own, *sizes, *data]), tmp_path / "run", device="cpu")
    run = load(tmp_path / "run", device="cpu")
    assert run.tokenizer is not None
    mask = run.tokenizer.roles["mask"]
    (found,) = run.fill([f"the {mask} is 3 years old"], top_k=3)
    shares = [one.probability for one in found.masks[0]]
    assert len(shares) == 3 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1


def test_other_models_fill_nothing(tmp_path: Path) -> None:
    *_, run = of_hub(tmp_path, "BertForTokenClassification", **named(TAGS))
    with pytest.raises(ValueError, match="fills in no masks; use `qkv predict` or `qkv embed`"):
        run.fill(TEXTS)
