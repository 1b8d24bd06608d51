"""The use of a run with two towers: embeddings, classes by name, and the nearest candidates."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from qkv.runs.inference.run import Run
from qkv.runs.tasks.image_text_retrieval.towers import candidates


def test_pictures_and_texts_are_embedded_into_one_space(run: Run, pictures: list[str]) -> None:
    images, texts = run.embed(images=pictures), run.embed(["a red circle", "a cross"])
    assert [tuple(one.shape) for one in [*images, *texts]] == [(8,)] * 5
    torch.testing.assert_close(torch.stack([*images, *texts]).norm(dim=-1), torch.ones(5))
    torch.testing.assert_close(run.embed(images=pictures[1]), images[1])
    (one,) = run.predict([(pictures[0], "a cross")])
    assert one.value == pytest.approx(float(images[0] @ texts[1]), abs=1e-5)
    with pytest.raises(ValueError, match="give texts or images, and call embed twice"):
        run.embed("a", images=pictures)  # type: ignore[call-overload]


def test_classes_are_the_softmax_of_scores_with_the_mean_of_their_prompts(run: Run, pictures: list[str]) -> None:
    templates = ("a small {}", "a large {}")
    found = run.classify_files(pictures, "red circle,blue cross", templates)
    prompts = [[run.embed(one.format(name)) for one in templates] for name in ("red circle", "blue cross")]
    means = torch.nn.functional.normalize(torch.stack([sum(both) / 2 for both in prompts]), dim=-1)
    scale = run.model.logit_scale.exp().item()
    for path, one in zip(pictures, found, strict=True):
        wanted = (scale * run.embed(images=path) @ means.T).softmax(-1)
        assert one.probabilities["red circle"] == pytest.approx(float(wanted[0]), abs=1e-5)


def test_the_nearest_are_found_in_a_folder_and_a_file(run: Run, pictures: list[str], tmp_path: Path) -> None:
    (one,) = run.predict(["a red circle"], among=str(Path(pictures[0]).parent), top=2)
    cosines = [float(run.embed("a red circle") @ image) for image in run.embed(images=pictures)]
    assert [value for _, value in one.value] == pytest.approx(sorted(cosines, reverse=True)[:2], abs=1e-5)
    lines = tmp_path / "lines.txt"
    lines.write_text("a cross\n\na circle\n", encoding="utf-8")
    (two,) = run.predict([pictures[0]], among=lines)
    assert {candidate for candidate, _ in two.value} == {"a cross", "a circle"}


@pytest.mark.parametrize(
    ("classes", "templates", "message"),
    [
        ("cat", (), "there is only 'cat'; name two at least"),
        ("cat,cat", (), "the class 'cat' is named twice"),
        ("cat,,dog", (), "class 2 of 3 has no name"),
        ("cat,dog", "a photo", "the template needs {} once"),
        ("", (), "compares pictures with names of classes; name them: --classes cat,dog"),
    ],
)
def test_bad_classes_are_told_in_one_sentence(run, pictures, classes, templates, message) -> None:
    with pytest.raises(ValueError, match=message):
        run.classify_files(pictures[0], classes, templates)


def test_bad_pictures_and_texts_are_told(run: Run, tmp_path: Path) -> None:
    Image.new("RGB", (5000, 1)).save(tmp_path / "narrow.png")
    assert run.embed(images=tmp_path / "narrow.png").shape == (8,)  # small enough when it is enlarged
    (tmp_path / "bad.png").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"bad\.png' can't be read as a picture"):
        run.embed(images=tmp_path / "bad.png")
    with pytest.warns(UserWarning, match="1 text is longer than the 32 tokens that the model reads, and cut there"):
        run.embed("a red circle " * 20)
    with pytest.raises(ValueError, match="text 1 is empty"):
        run.embed(" ")
    with pytest.raises(ValueError, match="holds no pictures and no lines"):
        (tmp_path / "empty").mkdir()
        run.predict(["a cross"], among=str(tmp_path / "empty"))


def test_candidates_in_a_file_are_texts_and_pictures_that_are_there(run: Run, tmp_path: Path) -> None:
    """Names count in the folder of the file too; what is missing is told with its line."""
    Image.new("RGB", (32, 32)).save(tmp_path / "here.png")
    listed = tmp_path / "listed.txt"
    listed.write_text("\ufeffa red circle\nhere.png\n\na cat.png as a text\n", encoding="utf-8")
    assert candidates(listed) == ["a red circle", str(tmp_path / "here.png"), "a cat.png as a text"]
    listed.write_text("a red circle\n\ngone.png\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"listed\.txt, line 3: there is no picture 'gone\.png'"):
        run.predict(["a cross"], among=str(listed))
    listed.write_bytes("ein Kreis\nein grünes Kreuz".encode("latin-1"))
    with pytest.raises(ValueError, match=r"listed\.txt' is not UTF-8: the byte 17 begins no character"):
        run.predict(["a cross"], among=str(listed))
    with pytest.raises(ValueError, match=r"there is no picture 'nowhere\.png'"):
        run.predict(["nowhere.png"], among=["a cross", "a circle"])
