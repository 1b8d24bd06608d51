"""What a finished run says of new inputs is what its evaluation said of the same examples."""

from __future__ import annotations

import base64
import gzip
import io
import json
import math
import re
import sys
import wave as wavefile
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from qkv.cli import main
from qkv.data.media import images, midi
from qkv.data.media.note_names import text_to_frames
from qkv.data.readers.segmentation_masks import read_mask
from qkv.data.readers.time_series import SeriesSource, TimeSeries
from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.detection import metric as located
from qkv.runs.train.train import train

SHORT = [
    *("training.max_steps=6", "training.eval_every=6", "training.save_every=6", "training.schedule.warmup=1"),
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=16", "training.final=last"),
    *("evaluation.examples=2", "evaluation.test_examples=2", "evaluation.samples=20"),
]
Train = Callable[..., Run]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """A run of a recipe, cut short; the same one for the same settings."""
    made: dict[tuple[str, ...], Run] = {}

    def run(name: str, *settings: str) -> Run:
        if (name, *settings) not in made:
            out = tmp_path_factory.mktemp(name) / "run"
            train(Recipe.load(name, [*SHORT, *settings]), out, device="cpu")
            made[name, *settings] = load(out, device="cpu")
        return made[name, *settings]

    return run


def examples(run: Run, count: int = 12) -> list[dict[str, Any]]:
    """Some of a run's test examples."""
    assert run.recipe is not None
    return [one for one, _ in zip(run.recipe.data.examples("test"), range(count), strict=False)]


def samples(run: Run, count: int = 12) -> list[dict[str, Any]]:
    """The samples of an evaluation of these; pictures in their order."""
    return evaluate_run(run, "test", max_examples=count).samples


def evaluated(run: Run) -> dict[str, dict[str, Any]]:
    """The same by their source."""
    return {sample["source"]: sample for sample in samples(run)}


TEXTS = ("data.train=300", "tokenizer.vocab_size=300", "batching.tokens=1024", "training.optimizer.lr=0.01")


# -- texts ---------------------------------------------------------------------------------------------------------


def test_tags_match_the_evaluation(trained: Train) -> None:
    run = trained("tag", "data.train=300", "task.longest=16")  # so short that sentences become several rows
    told = evaluated(run)
    texts = [one["text"] for one in examples(run)]
    made = run.predict(texts)
    assert {one.input: one.text for one in made} == {text: sample["output"] for text, sample in told.items()}
    assert len({tag for one in made for tag in one.value}) > 1
    for one in made:
        words, tags = one.fields["words"], one.fields["tags"]
        assert words == one.input.split() and len(tags) == len(words)
        for entity in one.fields["entities"]:
            assert entity["text"] == " ".join(words[entity["start"] : entity["stop"]])
            assert tags[entity["start"]] == f"B-{entity['type']}"
    assert run.predict([f"  {texts[0]} "])[0].value == made[0].value


def test_symbols_have_tags_where_words_are_symbols(trained: Train) -> None:
    run = trained("protein", "data.train=200")
    told = evaluated(run)
    made = run.predict([one["text"] for one in examples(run)])
    assert {one.input: one.text for one in made} == {text: sample["output"] for text, sample in told.items()}
    assert [one.value for one in run.predict([made[0].input] * 2)] == [made[0].value] * 2  # one text, asked twice
    assert "entities" not in made[0].fields and len(made[0].fields["tags"]) == len(made[0].input)


@pytest.mark.parametrize("margin", [0.0, -5.0, 1e3])
def test_answers_match_the_evaluation(trained: Train, margin: float) -> None:
    run = trained("answer", "data.train=300", "task.longest=40", "task.overlap=8", f"task.margin={margin}")
    told = evaluated(run)
    made = run.predict([f"{one['question']}\t{one['context']}" for one in examples(run)])
    assert {one.input.replace("\t", "\n"): one.text for one in made} == {k: one["output"] for k, one in told.items()}
    for one in made:
        found, context = one.value, one.input.split("\t")[1]
        assert found.answer is None or context[found.start :].startswith(found.answer)
        assert (found.answer is None) == (found.none - found.score > margin) == (one.text == "(no answer)")


def test_choices_match_the_evaluation(trained: Train) -> None:
    run = trained("choose", *TEXTS)
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
def test_scores_match_the_evaluation(trained: Train, settings: tuple[str, ...]) -> None:
    run = trained("similarity", *TEXTS, *settings)
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


def test_classes_match_the_evaluation(trained: Train) -> None:
    run = trained("classify", *TEXTS)
    told = evaluated(run)
    made = run.predict([one["text"] for one in examples(run)])
    assert {one.input: one.value.label for one in made} == {text: one["output"] for text, one in told.items()}
    assert made[0].fields["probabilities"] == run.classify([made[0].input])[0].probabilities


# -- pictures ------------------------------------------------------------------------------------------------------

PICTURES = ("data.train=24", "data.validation=4", "data.test=4")


def files(run: Run, folder: Path) -> list[Path]:
    """The test pictures of a run in files."""
    return [picture(one, folder) for one in examples(run)]


def picture(example: dict[str, Any], folder: Path) -> Path:
    path = folder / f"{len(list(folder.glob('*.png')))}.png"
    pixels = example["image"]
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(path)
    return path


def clip(example: dict[str, Any], folder: Path) -> Path:
    """An animated file that keeps every pixel."""
    path = folder / f"{len(list(folder.glob('*.webp')))}.webp"
    first, *others = [Image.fromarray(frame[0]).convert("RGB") for frame in example["video"]]
    first.save(path, save_all=True, append_images=others, lossless=True)
    return path


def test_boxes_match_the_evaluation(trained: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained("detect", *PICTURES, "data.size=[40,56]")  # a shape that is not the model's
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


def test_a_picture_with_its_boxes_is_a_file(trained: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("detect", *PICTURES, "data.size=[40,56]")
    paths, out = files(run, tmp_path), tmp_path / "deep" / "out"
    asked = ["predict", str(run.path), "--threshold", "0.2", "--json", "--out", str(out)]
    assert main([*asked, *map(str, paths[:2])]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(path.name for path in out.iterdir()) == ["0.boxes.svg", "1.boxes.svg"]
    for line, path in zip(lines, sorted(out.iterdir()), strict=True):
        drawn = ElementTree.parse(path).getroot()
        assert len(drawn.findall("{http://www.w3.org/2000/svg}rect")) == len(line["objects"])
    before = sorted(tmp_path.rglob("*"))
    for read, written, said in (
        (paths[0].parent, paths[0].parent, "is the directory of the input, which stays as it is"),
        (paths[0].parent, paths[0].parent / "new", "lies in the directory of the input"),
        (paths[0], paths[0].parent, "is the directory of the input, which stays as it is"),
        (paths[0], run.path, "is a run, and no other files are written into it"),
    ):
        assert main(["predict", str(run.path), str(read), "--out", str(written), "--overwrite"]) == 2
        assert said in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("size", [(48, 48), (70, 101), (30, 60)])  # the model's, of several tiles, smaller than a tile
def test_masks_match_the_evaluation(trained: Train, tmp_path: Path, size: tuple[int, int]) -> None:
    run = trained("segment", *PICTURES, "training.max_steps=12")
    assert run.recipe is not None
    changed = replace(run, recipe=run.recipe.change([f"data.size=[{size[0]},{size[1]}]"]))
    # Made pictures have no "where" by which an evaluation knows the tiles of one: there is one picture.
    told = evaluate_run(changed, "test", max_examples=1).samples[0]["picture"]
    path = files(changed, tmp_path)[0]
    (one,) = run.predict([path])
    assert one.value.shape == size and (one.value == values(base64.b64decode(told["made"]))).all()
    assert len(np.unique(one.value)) > 1
    assert sum(one.fields["shares"].values()) == pytest.approx(1) and one.fields["size"] == list(size)
    written = one.write(tmp_path / "out")
    assert [path.name for path in written] == ["0.mask.png", "0.classes.png"]
    assert (read_mask(written[0]) == one.value).all()
    assert images.read(written[1]).shape == (3, *size)


def values(content: bytes) -> Any:
    """The numbers in a PNG."""
    return np.asarray(Image.open(io.BytesIO(content)))


def test_captions_and_answers_match_the_evaluation(trained: Train, tmp_path: Path) -> None:
    run = trained(
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


@pytest.mark.parametrize("name", ["vit", "speech", "video"])
def test_classes_of_files(trained: Train, tmp_path: Path, name: str) -> None:
    run = trained(name, *(() if name == "vit" else PICTURES))
    assert run.recipe is not None
    told = [one["output"] for one in samples(run)]
    written = {"vit": picture, "speech": wave, "video": clip}[name]
    paths = [written(one, tmp_path) for one in examples(run)]
    made = run.predict(paths)
    assert [one.value.label for one in made] == told
    assert [one.value for one in made] == run.classify_files(paths)


def wave(example: dict[str, Any], folder: Path) -> Path:
    """A WAV file of 16 bits."""
    path = folder / f"{len(list(folder.iterdir()))}.wav"
    with wavefile.open(str(path), "wb") as file:
        file.setparams((1, 2, example["rate"], 0, "NONE", ""))
        file.writeframes((np.clip(example["audio"], -1, 1) * 32767).astype("<i2").tobytes())
    return path


# -- series --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalized", ["true", "false"])
def test_forecasts_match_the_evaluation(trained: Train, tmp_path: Path, normalized: str) -> None:
    run = trained("forecast", "data.length=600", "data.stride=24", f"task.normalized={normalized}")
    assert run.recipe is not None and isinstance(run.recipe.data, SeriesSource)
    values, names = run.recipe.data.values()
    center, spread = run.recipe.data.scaling()
    for sample in samples(run)[::4]:
        name, *rows = re.fullmatch(r"(.*), rows (\d+) to (\d+)", sample["source"]).groups()  # type: ignore[union-attr]
        until, column = int(rows[1]) - 24, names.index(name)
        path = table(tmp_path / "series.csv", names, values[:until])
        (one,) = run.predict([path])
        assert one.value.shape == (24, 3)
        wanted = np.array(sample["picture"]["made"]) * spread[column] + center[column]
        assert one.value[:, column] == pytest.approx(wanted, abs=1e-4)


def table(path: Path, names: Sequence[str], values: Any) -> Path:
    """A CSV file with dates before the numbers."""
    rows = ("".join(f",{float(value)!r}" for value in row) for row in values)
    path.write_text("date," + ",".join(names) + "\n" + "".join(f"day {i}{row}\n" for i, row in enumerate(rows)))
    return path


def test_a_forecast_is_in_the_files_units_whatever_these_are(trained: Train, tmp_path: Path) -> None:
    run = trained("forecast", "data.length=600", "data.stride=24", "task.normalized=true")
    assert run.recipe is not None and isinstance(run.recipe.data, SeriesSource)
    values, names = run.recipe.data.values()
    known = run.predict([table(tmp_path / "known.csv", names, values)])[0]
    other = run.predict([table(tmp_path / "other.csv", ["a", "b", "c"], 1000 * values + 50)])[0]
    assert other.value == pytest.approx(1000 * known.value + 50, rel=1e-3, abs=1)
    (written,) = other.write(tmp_path / "out")
    assert written.name == "other.forecast.csv" and written.read_text() == other.text + "\n"
    again, columns = TimeSeries(path=str(written)).values()
    assert columns == ("a", "b", "c") and again == pytest.approx(other.value, rel=1e-5)
    plain = trained("forecast", "data.length=600", "data.stride=24", "task.normalized=false")
    with pytest.raises(ValueError, match="has a column 'a', and the run knows the scale of wave 1, wave 2, wave 3"):
        plain.predict([tmp_path / "other.csv"])
    with pytest.raises(ValueError, match="has 50 rows, and a forecast looks back on 96"):
        run.predict([table(tmp_path / "short.csv", names, values[:50])])
    with pytest.raises(ValueError, match=r"there is no file 'no\.csv'"):
        run.predict(["no.csv"])


def hourly(path: Path, names: Sequence[str], hours: int = 1, rows: int = 130, gap: bool = False) -> Path:
    """A table of waves with a time every few hours; the ending tells the form."""
    begin = datetime(2024, 3, 1)
    table = {
        "time": [begin + timedelta(hours=hours * i) for i in range(rows)],
        **{name: [math.sin(i / 5 + j) for i in range(rows)] for j, name in enumerate(names)},
    }
    if path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.table(table), path)
        return path
    lines = [f"time,{','.join(names)}", *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    if gap:
        lines[12] = f"{lines[12].split(',')[0]},,0"
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_a_forecast_reads_what_training_reads_and_tells_what_is_unlike(
    trained: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = hourly(tmp_path / "known.csv", ["load", "temp"], rows=600)
    run = trained("forecast", f"data={{kind: series, path: {known}}}", "data.stride=24")
    assert run.recipe is not None and run.recipe.task is not None and getattr(run.recipe.task, "step", None) == 3600

    def said(name: str, names: Sequence[str], *more: str, hours: int = 1, gap: bool = False) -> tuple[int, str, str]:
        status = main(["predict", str(run.path), str(hourly(tmp_path / name, names, hours, gap=gap)), *more])
        return status, *capsys.readouterr()

    same = said("same.csv", ["load", "temp"])
    assert same[0] == 0 and not same[2] and len(same[1].splitlines()) == 25
    for name in ("a.parquet", "b.csv.gz"):
        assert said(name, ["load", "temp"]) == same
    with pytest.warns(UserWarning, match="its rows are 2:00:00 apart, and those of the training 1:00:00"):
        assert run.predict(hourly(tmp_path / "slow.csv", ["load", "temp"], 2)).text + "\n" == same[1]
    with pytest.warns(UserWarning, match=r"training had no column Load, Temp \(but load, temp\)"):
        run.predict(hourly(tmp_path / "case.csv", ["Load", "Temp"]))
    status, _, err = said("gap.csv", ["load", "temp"], gap=True)
    assert status == 2 and "for a forecast such settings are given as --data gaps=fill" in err
    assert said("gap.csv", ["load", "temp"], "--data", "gaps=fill", gap=True) == same
    assert said("gap.csv", ["load", "temp"], "--data", "data.columns=[temp]", gap=True)[1].splitlines()[0] == "temp"
    assert run.predict(tmp_path / "gap.csv", data="gaps=fill").text + "\n" == same[1]
    status, _, err = said("a.parquet", ["load", "temp"], "--column", "load")
    assert status == 2 and "choose a series' columns by --data columns=[NAME,…]" in err
    lines = (tmp_path / "same.csv").read_text().splitlines()[1:]
    rows = [dict(zip(("time", "load", "temp"), line.split(","), strict=True)) for line in lines]
    numbers = [{**row, "load": float(row["load"]), "temp": float(row["temp"])} for row in rows]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbers))
    assert run.predict(tmp_path / "x.jsonl").text + "\n" == same[1]


# -- music ---------------------------------------------------------------------------------------------------------


def test_music_continues_as_in_the_evaluation(
    trained: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained("music", "data.train=100", "task.prompt=6", "task.goes_on=5")
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


def test_the_command_prints_a_line_an_input_or_its_json(trained: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained("tag", "data.train=300", "task.longest=16")
    texts = ["Kavera Lon works here .", "It rained ."]
    assert main(["predict", str(run.path), *texts]) == 0
    assert capsys.readouterr().out.splitlines() == [one.text for one in run.predict(texts)]
    assert main(["predict", str(run.path), "--json", *texts]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["input"] == texts[0] and first["words"] == texts[0].split() and len(first["tags"]) == 5


@pytest.mark.parametrize("json_option", [(), ("--json",)])
def test_a_line_that_can_not_be_read_is_named_and_the_others_are_answered(
    json_option: tuple[str, ...],
    trained: Train,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = trained("answer", "data.train=300", "task.longest=40", "task.overlap=8", "task.margin=0.0")
    boxes = trained("detect", *PICTURES, "data.size=[40,56]")
    picture = str(files(boxes, tmp_path)[0])
    for run, good, bad in ((answers, "who?\tAnn.", "who?"), (boxes, picture, "no.png")):
        lines = "\n".join([good, bad, "", good]).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        assert main(["predict", str(run.path), *json_option]) == 0
        told = capsys.readouterr()
        assert len(told.err.splitlines()) == 1
        assert f"warning: line 2, {bad!r}, is not answered: " in told.err
        text = run.predict([good])[0].text
        if not json_option:
            assert told.out == f"{text}\n\n\n{text}\n"
            continue
        first, *between, last = map(json.loads, told.out.splitlines())
        assert first == last and first["input"] == good and len(first) > 1
        assert between == [{"input": bad}, {"input": ""}]


def test_what_can_not_be_read_is_one_sentence(
    trained: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = trained("tag", "data.train=300", "task.longest=16")
    answers = trained("answer", "data.train=300", "task.longest=40", "task.overlap=8", "task.margin=0.0")
    boxes = trained("detect", *PICTURES, "data.size=[40,56]")
    choices = trained("choose", *TEXTS)
    picture = str(files(boxes, tmp_path)[0])
    (tmp_path / "text.png").write_text("no picture")
    mistakes: list[tuple[Run, list[str], str]] = [
        (tags, ["a", "--out", str(tmp_path / "out")], "these predictions have no files"),
        (answers, ["who?\tAnn.", "who?"], "text 2 is 'who?', and this run reads QUESTION<tab>CONTEXT"),
        (answers, ["who?\t "], "QUESTION<tab>CONTEXT"),
        (choices, ["who?\tAnn"], "text 1 is 'who?\\tAnn', and this run reads CONTEXT<tab>CHOICE<tab>CHOICE"),
        (boxes, ["no.png"], "there is no file 'no.png'"),
        (boxes, [str(tmp_path / "text.png")], "can't be read as a picture"),
        (tags, ["a", "--threshold", "0.7"], "predicts without a threshold; leave it out (detectors use it)"),
        (boxes, [picture, "--seed", "1"], "predicts without a seed; leave it out (music uses it)"),
        (boxes, [picture, "--threshold", "2"], "less than or equal to 1"),
        (boxes, [picture, picture, "--out", str(tmp_path / "twice")], "two inputs are named '0'"),
    ]
    for run, given, wanted in mistakes:
        assert main(["predict", str(run.path), *given]) == 2
        said = capsys.readouterr().err
        assert wanted in said and len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert tags.predict("a").fields == tags.predict(["a"])[0].fields
    with pytest.raises(ValueError, match="input 2 is empty"):
        tags.predict(["a", " "])


def test_a_run_that_can_not_be_asked_says_what_to_use(trained: Train) -> None:
    run = trained("tag", "data.train=300", "task.longest=16")
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
