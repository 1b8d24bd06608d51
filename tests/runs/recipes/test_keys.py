"""Unknown and missing keys are named with the nearest valid ones."""

from __future__ import annotations

import pytest

from qkv.runs.recipes.recipe import Recipe


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("data.langages=[de]", "there is no 'data.langages'; did you mean 'data.languages'"),
        ("training.schedule.warmpu=3", "did you mean 'training.schedule.warmup'"),
        ("trainin.max_steps=3", "did you mean 'training'"),
        ("data.languages=[xx]", "CLDR has no locale 'xx'"),
        ("training.optimizer.kind=adam", "did you mean 'adamw'"),
        ("model.preset=transformr", "did you mean 'transformer'"),
        ("model.dmodel=3", "did you mean 'd_model'"),
        ("model.decoder.positon=alibi", "did you mean 'position'"),
        ("model.decoder.position=alibbi", "did you mean 'alibi'"),
        ("model.d_model=65", "n_heads=4 does not divide d_model=65"),
        ("model.dropout=-0.1", "dropout: input should be greater than or equal to 0, not -0.1"),
        ("generation.num_beams=0", "num_beams: input should be greater than or equal to 1, not 0"),
        ("training.max_time=10x", "10x"),
        ("evaluation.metrics=[blue]", "'bleu'"),
        ("name=../x", "name"),
        ("model=null", "model"),
    ],
)
def test_mistakes_are_one_sentence_that_helps(setting: str, said: str) -> None:
    with pytest.raises(ValueError) as error:
        Recipe.load("localise", [setting]).model.spec(100)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["vit", "classify", "bert", "forecast"])
def test_files_for_made_data_want_their_kind(name: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"data of the kind '.*' has no 'path'; leave 'data\.path' out, or .*kind to one of .*images",
    ) as caught:
        Recipe.load(name, ["data.path=x"])
    assert "labelled" in str(caught.value) and "\n" not in str(caught.value)
