from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import qkv
from qkv.cli import main
from qkv.core.batch import IGNORE
from qkv.data.synthetic.shapes import Scenes
from qkv.data.task import Item, RandomContext
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.words_chars_bytes import Word
from qkv.io.families import preset
from qkv.nn.layers.patches import Patches
from qkv.runs.tasks.captioning.joint import MARKER, See

PICTURE = np.full((3, 20, 30), 99, np.uint8)
SIZES: dict[str, Any] = {"image": (16, 16), "patch": (8, 8), "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(Word(special=(MARKER,)), ["what color is it ?", "a red circle", "a blue square"])


def task(tokenizer: Tokenizer, **fields: Any) -> See:
    inputs = preset("joint", vocab_size=tokenizer.vocab_size, **SIZES).output.embedding
    return See(mean=(0.0,) * 3, std=(1.0,) * 3, **fields).resolve(Scenes(), tokenizer, inputs)


def item(see: See, tokenizer: Tokenizer, question: str, answer: str) -> Item:
    example = {"image": PICTURE, "question": question, "answer": answer}
    (made,) = see.items([example], tokenizer, RandomContext(np.random.default_rng(0), True))
    assert isinstance(made, Item)
    return made


@pytest.mark.parametrize(("question", "before"), [("what color ?", 0), ("what <image> color ?", 1)])
@pytest.mark.parametrize("learns", ["answer", "all"])
def test_the_picture_stands_before_the_question_or_at_its_place(
    tokenizer: Tokenizer, question: str, before: int, learns: str
) -> None:
    see = task(tokenizer, learns=learns)
    place, end, words = see.place, tokenizer.eos_id, tokenizer.encode("what color ?")
    assert (
        place is not None
        and see.tokens == 4
        and see.model_changes(tokenizer) == {"decoder.embedding.media.0.token": place}
    )
    made = item(see, tokenizer, question, "red")
    start = end if tokenizer.bos_id is None else tokenizer.bos_id
    asked = [*words[:before], *[place] * 4, *words[before:]]
    answer = [*tokenizer.encode("red"), end]
    assert made.arrays["ids"].tolist() == [start, *asked, end, *answer[:-1]]
    known = [IGNORE if token == place else token for token in [*asked, end]]
    learned = known if learns == "all" else [IGNORE] * len(known)
    assert made.labels is not None and np.asarray(made.labels).tolist() == [*learned, *answer]
    assert made.media["image"].shape == (1, 3, 16, 16)


def test_a_picture_alone_is_prompted_as_for_a_caption(tokenizer: Tokenizer) -> None:
    see = task(tokenizer)
    caption, place = see.prompt([], tokenizer), see.place
    assert see.prompt([place], tokenizer) == caption == [caption[0], *[place] * 4]
    assert see.framed([place], tokenizer) == [caption[0], place]
    asked = tokenizer.encode("what color ?")
    assert see.framed([place, *asked], tokenizer) == see.framed(asked, tokenizer)


def test_pictures_of_a_batch_stand_one_after_the_other(tokenizer: Tokenizer) -> None:
    see = task(tokenizer)
    items = [item(see, tokenizer, question, "a blue square") for question in ("what color is it ?", "")]
    batch = see.collate(items, 0).batch({})
    assert batch.inputs["media"]["image"].shape == (2, 3, 16, 16)
    assert [len(prompt) for prompt in see.prompts_of(batch)] == [
        len(see.prompt(tokenizer.encode("what color is it ?"), tokenizer)),
        5,
    ]
    assert see.pictures_of(batch).shape[0] == 2


def test_models_and_tokenizers_that_see_nothing_are_refused(tokenizer: Tokenizer) -> None:
    see, seen = See(mean=(0.0,) * 3, std=(1.0,) * 3), Patches(image=(16, 16), patch=(8, 8))
    with pytest.raises(ValueError, match="needs a model whose decoder reads pictures"):
        see.resolve(Scenes(), tokenizer, seen)
    inputs = preset("joint", vocab_size=9, **SIZES).output.embedding
    with pytest.raises(ValueError, match="the tokenizer has no token <image>"):
        see.resolve(Scenes(), train(Word(), ["a"]), inputs)
    with pytest.raises(ValueError, match="2 <image> and one picture"):
        task(tokenizer).prompt(tokenizer.encode("<image> a <image>"), tokenizer)


def test_a_tower_gives_as_many_tokens_as_its_patches() -> None:
    spec = preset("joint", vocab_size=9, tower_layers=2, **SIZES)
    assert spec.output.embedding.media[0].reads.n_tokens == 4


@pytest.mark.slow
def test_a_recipe_makes_gpt2_read_pictures_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[4] / "docs" / "modalities.md").read_text(encoding="utf-8")
    (block,) = [block for block in re.findall(r"```text\n(.*?)```", page, re.S) if "preset: gpt2" in block]
    train, generate = (shlex.split(line)[1:] for line in block.strip().splitlines())
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30), "red").save("scene.png")
    few = ["data.train=16", "data.validation=4", "data.test=4", "training.max_steps=2", "training.eval_every=2"]
    assert main([*train, *few, "evaluation.examples=4", "evaluation.test_examples=4"]) == 0, capsys.readouterr().err
    run = qkv.load("runs/see")
    assert run.model.spec.output.blocks[0].attention.pattern == qkv.preset("gpt2").output.blocks[0].attention.pattern
    assert run.media[0].token == run.words.raw.token_to_id(MARKER) != 0
    capsys.readouterr()
    assert main([*generate, "--min-new-tokens", "2", "--max-new-tokens", "2"]) == 0
    said = capsys.readouterr().out.strip()
    assert said and said == run.generate(generate[-1], images="scene.png", min_new_tokens=2, max_new_tokens=2).strip()
