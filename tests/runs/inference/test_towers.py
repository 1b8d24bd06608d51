"""CLIP and SigLIP of a directory beside transformers: vectors of pictures and texts, zero-shot classes, search, saving; and
directories that qkv wrote, which are trained further."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from comparing import save_clip, save_siglip, save_siglip2
from PIL import Image
from safetensors.torch import load_file
from small_recipes import FEW, prepared

import qkv
from qkv.cli import main
from qkv.io.directories.preprocessor import config_of
from qkv.runs.inference.run import Run
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

TEXTS = ["A photo of a Cat", "two dogs' EDGE, blue  circle", " the picture zebra é", "dog"]
PAGE = Path(__file__).parents[3] / "docs" / "modalities.md"
SENTENCES = Path(__file__).parents[2] / "data" / "tokenizers" / "sentencepiece" / "models" / "t5.model"


def pictures(folder: Path) -> list[str]:
    """Four picture files: of several shapes, one with transparent pixels and one turned by its camera."""
    draw, names = np.random.default_rng(0), []
    for i, (shape, mode) in enumerate((((20, 31), "RGB"), ((40, 9), "RGB"), ((8, 8), "RGBA"), ((15, 11), "L"))):
        pixels = draw.integers(0, 256, (*shape, len(mode)), np.uint8)
        names.append(str(folder / f"{i}.png"))
        Image.fromarray(pixels.squeeze()).save(names[-1])
    return names


def features(theirs: Any, processor: Any, family: str, files: list[str], texts: list[str]) -> Any:
    """What transformers gives; SigLIP reads texts filled to their full length, without a mask, as it was trained."""
    fill = "max_length" if family == "siglip" else True
    made = processor(
        text=texts, images=list(map(Image.open, files)), padding=fill, truncation=True, return_tensors="pt"
    )
    if family == "siglip":
        made.pop("attention_mask", None)
    with torch.no_grad():
        return theirs(**made)


@pytest.fixture(scope="module", params=["clip", "clip of 2021", "siglip"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Any, Any]:
    family, folder = request.param.partition(" ")[0], tmp_path_factory.mktemp("towers")
    if family == "siglip":
        return family, folder, *save_siglip(folder, SENTENCES)
    return family, folder, *save_clip(folder, eos=2 if " " in request.param else None)


@pytest.mark.slow
def test_vectors_and_classes_are_those_of_transformers(both: tuple[str, Path, Any, Any], tmp_path: Path) -> None:
    family, folder, theirs, processor = both
    run, files = qkv.load(folder), pictures(tmp_path)
    out = features(theirs, processor, family, files, TEXTS)
    torch.testing.assert_close(torch.stack(run.embed(images=files)), out.image_embeds, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.stack(run.embed(TEXTS)), out.text_embeds, rtol=1e-5, atol=1e-6)
    prompts = [template.format(name) for name in ("cat", "dog") for template in ("a photo of a {}", "the {}")]
    asked = features(theirs, processor, family, files, prompts)
    of_class = torch.nn.functional.normalize(asked.text_embeds.unflatten(0, (2, 2)).mean(1), dim=-1)
    scores = theirs.logit_scale.exp() * asked.image_embeds @ of_class.T
    shares = (scores + theirs.logit_bias).sigmoid() if family == "siglip" else scores.softmax(-1)
    found = run.classify_files(files, "cat, dog", ["a photo of a {}", "the {}"])
    for one, row in zip(found, shares.tolist(), strict=True):
        assert [one.probabilities[name] for name in ("cat", "dog")] == pytest.approx(row, rel=1e-4, abs=1e-6)
    (nearest,) = run.predict([TEXTS[0]], among=files, top=2)
    best = (out.image_embeds @ out.text_embeds[0]).topk(2)
    assert [name for name, _ in nearest.value] == [files[i] for i in best.indices.tolist()]


@pytest.mark.slow
def test_pictures_of_any_shape_are_read_by_siglip_2_as_in_transformers(tmp_path: Path) -> None:
    theirs, images, tokenizer = save_siglip2(tmp_path / "model", SENTENCES)
    run, files = qkv.load(tmp_path / "model"), [file for file in pictures(tmp_path) if "2.png" not in file]
    tokens = tokenizer(TEXTS, padding="max_length", truncation=True, return_tensors="pt")
    pixels = images([Image.open(file).convert("RGB") for file in files], return_tensors="pt")
    with torch.no_grad():
        out = theirs(input_ids=tokens["input_ids"], **pixels)
    assert len(pixels["spatial_shapes"].unique(dim=0)) == 3
    torch.testing.assert_close(torch.stack(run.embed(images=files)), out.image_embeds, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.stack(run.embed(TEXTS)), out.text_embeds, rtol=1e-5, atol=1e-6)
    again = qkv.load(run.save(tmp_path / "saved", "hub"))
    torch.testing.assert_close(torch.stack(again.embed(images=files)), out.image_embeds, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_saved_directory_is_one_of_transformers_with_its_processor(
    both: tuple[str, Path, Any, Any], tmp_path: Path
) -> None:
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    family, folder, theirs, processor = both
    saved, files = qkv.load(folder).save(tmp_path / "saved", "hub"), pictures(tmp_path)
    out = features(theirs, processor, family, files, TEXTS)
    tokens = AutoTokenizer.from_pretrained(saved)(
        TEXTS, padding="max_length" if family == "siglip" else True, truncation=True, return_tensors="pt"
    )
    pixels = AutoImageProcessor.from_pretrained(saved, backend="pil")(list(map(Image.open, files)), return_tensors="pt")
    with torch.no_grad():
        again = AutoModel.from_pretrained(saved)(input_ids=tokens["input_ids"], **pixels)
    torch.testing.assert_close(again.logits_per_image, out.logits_per_image)
    own = qkv.load(folder).save(tmp_path / "own", "qkv")
    torch.testing.assert_close(
        torch.stack(qkv.load(own).embed(TEXTS)), torch.stack(qkv.load(folder).embed(TEXTS)), rtol=0, atol=0
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the recipe `clip`, converted to the Hub's format."""
    folder = tmp_path_factory.mktemp("trained")
    recipe, tokenizer, model, _ = prepared("retrieve")
    Run(model, tokenizer, recipe=recipe).save(folder / "hub", "hub")
    return folder / "hub"


def test_a_run_in_the_hubs_format_says_where_texts_end_and_how_pictures_are_read(trained: Path) -> None:
    config, run = json.loads((trained / "config.json").read_text()), qkv.load(trained)
    assert config["model_type"] == "clip" and config["architectures"] == ["CLIPModel"]
    assert config["text_config"]["eos_token_id"] == run.words.eos_id == run.model.spec.end
    settings, _ = config_of(trained)
    assert settings["image_processor_type"] == "CLIPImageProcessor" and settings["size"] == {"shortest_edge": 32}


def test_a_directory_is_used_from_the_command_line(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = pictures(tmp_path)
    main(["classify", str(trained), files[0], "--classes", "red circle,blue square", "--template", "a small {}"])
    assert capsys.readouterr().out.startswith(("red circle", "blue square"))
    main(["predict", str(trained), "a red circle", "--among", str(tmp_path), "--top", "2"])
    assert capsys.readouterr().out.count(".png") == 2
    main(["embed", str(trained), files[0], "a red circle", "--out", str(tmp_path / "vectors.npy")])
    assert np.load(tmp_path / "vectors.npy").shape == (2, 8)


def test_a_directory_is_converted_and_back(trained: Path, tmp_path: Path) -> None:
    main(["convert", str(trained), str(tmp_path / "own"), "--to", "qkv"])
    main(["convert", str(tmp_path / "own"), str(tmp_path / "hub"), "--to", "hub"])
    for name in ("config.json", "preprocessor_config.json"):
        assert json.loads((tmp_path / "hub" / name).read_text()) == json.loads((trained / name).read_text())
    before, after = (load_file(folder / "model.safetensors") for folder in (trained, tmp_path / "hub"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_the_commands_of_the_page_run(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Zero-shot classes, a search and vectors, as docs/modalities.md shows them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    shutil.copytree(trained, tmp_path / "runs" / "clip")
    (tmp_path / "pictures").mkdir()
    shutil.copy(pictures(tmp_path / "pictures")[0], tmp_path / "picture.png")
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    shown = [line for line in lines if line.startswith("qkv ") and " runs/clip " in line]
    assert len(shown) == 3
    for line in shown:
        main(shlex.split(line)[1:])
        assert capsys.readouterr().out.strip()


@pytest.mark.slow
def test_a_directory_is_trained_further(both: tuple[str, Path, Any, Any], tmp_path: Path) -> None:
    """The run keeps the tokenizer and how pictures are scaled; its directory in the Hub's format is that of transformers."""
    from transformers import AutoModel

    family, folder, theirs, _ = both
    settings = ["training.max_steps=2", "training.eval_every=2", "training.save_every=2", "batching.tokens=400"]
    objective = ["objective=siglip"] if family == "siglip" else []
    recipe = Recipe.load("clip", [f"model={folder}", *settings, *FEW, *objective, "training.schedule.warmup=1"])
    trained = train(recipe, tmp_path / "run")
    run = qkv.load(trained.folder)
    assert run.words.encode("a photo of a cat") == qkv.load(folder).words.encode("a photo of a cat")
    assert run.trained_on.mean == pytest.approx(config_of(folder)[0]["image_mean"])
    assert not torch.equal(
        run.model.text.encoder.embedding.weight, qkv.load(folder).model.text.encoder.embedding.weight
    )
    saved = run.save(tmp_path / "hub", "hub")
    again = AutoModel.from_pretrained(saved)
    assert type(again) is type(theirs)
    for name, tensor in qkv.load(saved).model.state_dict().items():
        assert torch.equal(tensor, run.model.state_dict()[name]), name
