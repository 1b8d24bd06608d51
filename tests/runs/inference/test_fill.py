"""Masks filled in by masked language models: what `transformers` says of the same texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_tiny import LANGUAGE_MODEL, write_text
from test_predict_by_head import TAGS, named, of_hub, transformers

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
