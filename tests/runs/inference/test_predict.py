"""What a finished run says of new inputs is what its evaluation said of the same examples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from short_runs import PICTURES, TEXTS, Train, evaluated, examples, files, samples

from qkv.cli import main
from qkv.data.media import midi
from qkv.data.media.note_names import text_to_frames
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.detection import metric as located

# -- texts ---------------------------------------------------------------------------------------------------------


def test_choices_match_the_evaluation(short_run: Train) -> None:
    run = short_run("choose", *TEXTS)
    told = evaluated(run)
    made = run.predict(["\t".join((one["text"], *one["choices"])) for one in examples(run)])
    for one in made:
        text, *choices = one.input.split("\t")
        assert choices[one.value] == one.fields["choice"] == told[text]["output"]
        shares = [choice["probability"] for choice in one.fields["choices"]]
        assert sum(shares) == pytest.approx(1) and shares[one.value] == max(shares)
        assert [choice["choice"] for choice in one.fields["choices"]] == choices
    assert len({one.value for one in made}) > 1


@pytest.mark.parametrize(
    "settings",
    [(), ("task.kind=regress", "head.kind=sequence-classifier", "head.pool=first", "objective.kind=labels")],
    ids=["vectors", "together"],
)
def test_scores_match_the_evaluation(short_run: Train, settings: tuple[str, ...]) -> None:
    run = short_run("similarity", *TEXTS, *settings)
    told = evaluated(run)
    made = run.predict([f"{one['text']}\t{one['pair']}" for one in examples(run)])
    for one in made:
        # Samples have two places. Vectors' scores are shown by their label's scale, which is that of cosines.
        assert one.value == pytest.approx(float(told[one.input.replace("\t", " | ")]["output"]), abs=0.00501)
    assert len({one.text for one in made}) > 1
    if settings:
        assert isinstance(run.predict(["the dog"])[0].value, float)
    else:
        with pytest.raises(ValueError, match="text 1 is 'the dog', and this run reads TEXT<tab>TEXT"):
            run.predict(["the dog"])


def test_classes_match_the_evaluation(short_run: Train) -> None:
    run = short_run("classify", *TEXTS)
    told = evaluated(run)
    made = run.predict([one["text"] for one in examples(run)])
    assert {one.input: one.value.label for one in made} == {text: one["output"] for text, one in told.items()}
    assert made[0].fields["probabilities"] == run.classify([made[0].input])[0].probabilities


# -- pictures ------------------------------------------------------------------------------------------------------


def test_boxes_match_the_evaluation(short_run: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = short_run("detect", *PICTURES, "data.size=[40,56]")  # a shape that is not the model's
    monkeypatch.setattr(located, "SHOWN", 0.2)
    told = samples(run)
    made = run.predict(files(run, tmp_path), threshold=0.2)
    for one, sample in zip(made, told, strict=True):
        assert one.fields["size"] == [40, 56] and one.text.splitlines()[0].endswith(f"png: {sample['output']}")
        wanted = sorted(sample["picture"]["made"], key=lambda object: -object["score"])
        assert [found.name for found in one.value] == [object["name"] for object in wanted]
        for found, object in zip(one.value, wanted, strict=True):
            shares = np.divide(found.box, [56, 40, 56, 40])
            assert [found.score, *shares] == pytest.approx([object["score"], *object["box"]], abs=6e-4)
    assert any(one.value for one in made)
    assert not run.predict(files(run, tmp_path), threshold=1.0)[0].value


def test_captions_and_answers_match_the_evaluation(short_run: Train, tmp_path: Path) -> None:
    run = short_run(
        "caption",
        *PICTURES,
        "data.test=12",
        "task.max_length=30",
        "training.optimizer.lr=0.02",
        "training.max_steps=40",
    )
    told = samples(run)
    asked = [
        f"{path}\t{one['question']}" if one["question"] else str(path)
        for path, one in zip(files(run, tmp_path), examples(run), strict=True)
    ]
    made = run.predict(asked)
    assert len({"\t" in one for one in asked}) == 2  # captions and answers
    assert sorted((one.fields["question"], one.value) for one in made) == sorted(
        (s["source"], s["output"]) for s in told
    )
    assert [run.predict([one])[0].value for one in asked] == [one.value for one in made]
    assert any(one.value for one in made)
    with pytest.raises(ValueError, match="question and answer have room for 30; ask a shorter one"):
        run.predict([asked[0].split("\t")[0] + "\t" + "what color is the circle ? " * 9])


# -- music ---------------------------------------------------------------------------------------------------------


def test_music_continues_as_in_the_evaluation(
    short_run: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = short_run("music", "data.train=100", "task.prompt=6", "task.goes_on=5")
    told = samples(run, 3)
    begun = [text_to_frames(sample["source"]) for sample in told]
    (tmp_path / "begun.json").write_text(json.dumps(begun))
    made = run.predict([tmp_path / "begun.json"])  # each by the seed of its number, as samples are
    assert [one.fields["output"] for one in made] == [sample["output"] for sample in told]
    assert [one.name for one in made] == ["begun-1.continued", "begun-2.continued", "begun-3.continued"]
    (tmp_path / "one.mid").write_bytes(midi.to_midi(begun[0]))
    (alone,) = run.predict([tmp_path / "one.mid"])
    assert alone.value == made[0].value and len(alone.value) <= 5
    (written,) = alone.write(tmp_path / "out")
    assert written.name == "one.continued.mid"
    assert written.read_bytes() == midi.to_midi([*begun[0], *alone.value])
    (tmp_path / "long.json").write_text(json.dumps([begun[0] * 200]))  # more than the model's context
    assert len(run.predict([tmp_path / "long.json"])[0].value) <= 5
    assert main(["predict", str(run.path), "--seed", "3", "--out", str(tmp_path / "new")]) == 0
    assert text_to_frames(capsys.readouterr().out.strip()) == run.predict([], seed=3)[0].value
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["piece.mid"]


# -- the command -----------------------------------------------------------------------------------------------------


def test_a_run_that_can_not_be_asked_says_what_to_use(short_run: Train) -> None:
    run = short_run("tag", "data.train=300", "task.longest=16")
    assert run.recipe is not None
    kinds = [
        ("bert", "task 'masked-language-model', which leaves nothing to predict; use `qkv embed` or `qkv eval`"),
        ("mae", "task 'masked-patches', which leaves nothing to predict; use `qkv eval`"),
        ("reverse", "on texts without a task, which leaves nothing to predict; use `qkv embed`"),
    ]
    for name, wanted in kinds:
        recipe = run.recipe.model_copy(update={"task": Recipe.load(name).task})
        other = replace(run, recipe=recipe, tokenizer=None if name == "mae" else run.tokenizer)
        with pytest.raises(ValueError, match=wanted):
            other.predict(["a"])
    (unnamed,) = replace(run, recipe=None).predict(["a b"])  # by its head
    assert len(unnamed.value) == 2 and all(tag.startswith("LABEL_") for tag in unnamed.value)
    assert run.predict([]) == []
