"""Models of the Hub without a recipe, asked by their heads: what `transformers` says of the same inputs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from PIL import Image
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from qkv.cli import main
from qkv.data.tokenizers.tokenizer import Tokenizer
from qkv.runs.inference.predict_by_head import _in_words
from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

transformers = pytest.importorskip("transformers", reason="answers are compared with Hugging Face's transformers")

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] ada ben lives in os ##lo and nor ##way plays the tu ##ba who where . , ? ' s"
SIZES = {
    "vocab_size": len(WORDS.split()),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TEXTS = [
    "Ada lives in Oslo, and Ben's tuba in Norway.",
    "  who ?",
    "Oslo Norway Ada Ben tuba xyz lives",
    "Ada\tplays\n",
]


def of_hub(folder: Path, cls: str, seed: int = 5, **config: Any) -> tuple[Any, Any, Run]:
    """A BERT of random numbers, far apart, with its tokenizer: theirs, and ours from the directory."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(seed)
    theirs = getattr(transformers, cls)(transformers.BertConfig(**{**SIZES, **config})).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) if parameter.ndim > 1 else 0)
    theirs.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS.split()))
    return theirs, transformers.BertTokenizer(str(folder / "vocab.txt")), load(folder, device="cpu")


def named(labels: tuple[str, ...]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


def test_tags_and_entities_match_the_pipeline(tmp_path: Path) -> None:
    seen = set()
    for seed in range(6):
        theirs, tokenizer, run = of_hub(tmp_path, "BertForTokenClassification", seed, **named(TAGS))
        pipeline = transformers.pipeline(
            "token-classification", model=theirs, tokenizer=tokenizer, aggregation_strategy="first", device="cpu"
        )
        for text, one in zip(TEXTS, run.predict(TEXTS), strict=True):
            wanted = [(group["entity_group"], text[group["start"] : group["end"]]) for group in pipeline(text)]
            assert [(entity["type"], entity["text"]) for entity in one.fields["entities"]] == wanted
            words, tags = one.fields["words"], one.fields["tags"]
            assert "".join(words) == "".join(text.split()) and one.text.split() == [
                word if tag == "O" else f"{word}/{tag}" for word, tag in zip(words, tags, strict=True)
            ]
            seen |= set(tags)
    assert seen == set(TAGS)
    assert run.predict(TEXTS[:1])[0].fields["words"][3:6] == ["Oslo", ",", "and"]


def test_a_long_text_is_read_in_rows(tmp_path: Path) -> None:
    *_, run = of_hub(tmp_path, "BertForTokenClassification", **named(TAGS))
    (one,) = run.predict(["Ada lives in Oslo. " * 20])
    assert len(one.value) == 100 and set(one.value) <= set(TAGS)


def test_tags_that_spell_no_entities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_hub(tmp_path, "BertForTokenClassification", **named(("NOUN", "VERB", "X")))
    assert main(["predict", str(tmp_path), "--json", "Ada lives."]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["words"] == ["Ada", "lives", "."] and set(said["tags"]) <= {"NOUN", "VERB", "X"}
    assert "entities" not in said


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("bytes", ["Ada", "lives", "in", "Oslo", ",", "Ben", "'s", "tuba", "."]),
        ("unigram", ["Ada", "lives", "in", "Oslo,", "Ben's", "tuba."]),
    ],
)
def test_words_match_other_tokenizers_too(kind: str, wanted: list[str]) -> None:
    """GPT-2's and RoBERTa's part punctuation from words, SentencePiece's do not; white space is in none."""
    if kind == "bytes":
        raw = tokenizers.Tokenizer(models.BPE())
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer: Any = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    else:
        raw = tokenizers.Tokenizer(models.Unigram())
        raw.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=60, unk_token="<unk>", special_tokens=["<unk>"])
    raw.train_from_iterator([*TEXTS] * 9, trainer)
    run: Any = SimpleNamespace(words=Tokenizer(raw))
    assert _in_words(run, "  Ada lives\tin Oslo, Ben's tuba. \n")["words"] == wanted
    assert _in_words(run, "日本 Ada 👩‍👧")["words"] == ["日本", "Ada", "👩‍👧"]


def best_of(out: Any, given: Any) -> tuple[int, int, float]:
    """The tokens of the context between which their scores are highest, and how high."""
    own = [i for i, sentence in enumerate(given.sequence_ids(0)) if sentence == 1]
    scores = {(i, j): float(out.start_logits[0, i] + out.end_logits[0, j]) for i in own for j in own if i <= j < i + 30}
    return (*(best := max(scores, key=scores.__getitem__)), scores[best])


def test_answers_are_the_best_spans_of_their_scores(tmp_path: Path) -> None:
    theirs, tokenizer, run = of_hub(tmp_path, "BertForQuestionAnswering")
    pairs = [("Who lives in Oslo?", "Ben plays the tuba. Ada lives in Oslo."), ("where ?", "in Norway")]
    for (question, context), one in zip(pairs, run.predict(["\t".join(pair) for pair in pairs]), strict=True):
        given = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
        places = given.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            out = theirs(**given)
        first, last, score = best_of(out, given)
        assert one.value.answer == context[places[first][0] : places[last][1]]
        assert one.value.start == places[first][0]
        assert one.value.score == pytest.approx(score, abs=1e-4)
        assert one.value.none == pytest.approx(float(out.start_logits[0, 0] + out.end_logits[0, 0]), abs=1e-4)
    long = f"{pairs[0][0]}\t{'Ben plays the tuba. ' * 10}Ada lives in Oslo."
    assert run.predict([long])[0].value.answer in long


BART = {"layers": 2, "attention_heads": 2, "ffn_dim": 32}


@pytest.mark.parametrize("family", ["Bart", pytest.param("MBart", marks=pytest.mark.slow)])
def test_answers_of_an_encoder_decoder_match_transformers(tmp_path: Path, family: str) -> None:
    """BART's decoder reads the question and the text too, after its starting token; mBART's after the text's last token."""
    of_hub(tmp_path, "BertForQuestionAnswering")  # for its tokenizer
    usual = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    usual["decoder_start_token_id"] = 2  # not the token that texts end with, from which mBART's starts
    sizes = {f"{stack}_{name}": n for stack in ("encoder", "decoder") for name, n in BART.items()}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=len(WORDS.split()), d_model=16, max_position_embeddings=40, **sizes, **usual
    )
    torch.manual_seed(3)
    theirs = getattr(transformers, f"{family}ForQuestionAnswering")(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5 if parameter.ndim > 1 else 0)
    theirs.save_pretrained(tmp_path)
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    question, context = "Who lives in Oslo?", "Ben plays the tuba. Ada lives in Oslo."
    given = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True, return_token_type_ids=False)
    places = given.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        out = theirs(**given)
    first, last, score = best_of(out, given)
    one, _ = load(tmp_path, device="cpu").predict([f"{question}\t{context}", "where ?\tin Norway"])
    assert one.value.score == pytest.approx(score, abs=1e-4)
    assert (one.value.start, one.value.answer) == (places[first][0], context[places[first][0] : places[last][1]])


@pytest.mark.parametrize("name", ["MBartTokenizer", "MBart50Tokenizer"])
def test_classes_of_an_encoder_decoder_of_many_languages_match_transformers(tmp_path: Path, name: str) -> None:
    """mBART's decoder starts from the last token of the text, and the state at `</s>` is classified."""
    letters = [(character, -3.0) for character in "abcdefgh"]
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *letters]
    tokenizer = getattr(transformers, name)(vocab=pieces)
    sizes = {f"{stack}_{size}": n for stack in ("encoder", "decoder") for size, n in BART.items()}
    config = transformers.MBartConfig(
        vocab_size=len(tokenizer), d_model=16, max_position_embeddings=40, num_labels=3, **sizes
    )
    torch.manual_seed(3)
    theirs = transformers.MBartForSequenceClassification(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5 if parameter.ndim > 1 else 0)
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    run = load(tmp_path, device="cpu")
    for text, one in zip(["abc", "dead beef h"], run.classify(["abc", "dead beef h"]), strict=True):
        with torch.no_grad():
            wanted = theirs(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1).tolist()
        assert [one.probabilities[f"LABEL_{i}"] for i in range(3)] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("family", ["Longformer", "BigBird"])
def test_answers_in_long_texts(tmp_path: Path, family: str) -> None:
    """Longformer's question sees all; BigBird takes blocks if the text has enough of them."""
    separate = 2 if family == "Longformer" else 1
    vocabulary = {word: i for i, word in enumerate(WORDS.split())}
    raw = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A {'[SEP] ' * separate}$B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", mask_token="[MASK]"
    )
    long = {"attention_window": [4, 4], "type_vocab_size": 1}
    own = long if separate == 2 else {"block_size": 2, "num_random_blocks": 1}
    sizes = {**SIZES, "max_position_embeddings": 200, "sep_token_id": 3, "pad_token_id": 0, **own}
    torch.manual_seed(4)
    theirs = getattr(transformers, f"{family}ForQuestionAnswering")(getattr(transformers, f"{family}Config")(**sizes))
    with torch.no_grad():
        for parameter in theirs.eval().parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5 if parameter.ndim > 1 else 0)
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    question, context = "Who lives in Oslo?", "Ben plays the tuba. Ada lives in Oslo. " * 3
    given = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
    places = given.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        out = theirs(**given)
    first, last, score = best_of(out, given)
    # Beside a longer one, so it is padded.
    (one, _) = load(tmp_path, device="cpu").predict([f"{question}\t{context}", f"{question}\t{context * 2}"])
    assert one.value.score == pytest.approx(score, abs=1e-4)
    assert (one.value.start, one.value.answer) == (places[first][0], context[places[first][0] : places[last][1]])


@pytest.mark.parametrize("problem", [None, "multi_label_classification"])
def test_classes_match_the_pipeline(tmp_path: Path, problem: str | None) -> None:
    theirs, tokenizer, run = of_hub(
        tmp_path, "BertForSequenceClassification", **named(("cat", "dog", "bee")), problem_type=problem
    )
    pipeline = transformers.pipeline("text-classification", model=theirs, tokenizer=tokenizer, top_k=None, device="cpu")
    for one, wanted in zip(run.predict(TEXTS[:3]), pipeline(TEXTS[:3]), strict=True):
        assert list(one.fields["probabilities"]) == [row["label"] for row in wanted]
        assert list(one.fields["probabilities"].values()) == pytest.approx([row["score"] for row in wanted], abs=1e-5)
    assert [one.value for one in run.predict(TEXTS[:3])] == run.classify(TEXTS[:3])


def test_longformers_first_token_sees_all(tmp_path: Path) -> None:
    """As `transformers` has it if nothing else is said."""
    sizes = {**SIZES, "attention_window": [4, 4], "pad_token_id": 0, **named(("a", "b", "c"))}
    torch.manual_seed(3)
    theirs = transformers.LongformerForSequenceClassification(transformers.LongformerConfig(**sizes)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) if parameter.ndim > 1 else 0)
    theirs.save_pretrained(tmp_path)
    tokenizer = transformers.BertTokenizer({word: i for i, word in enumerate(WORDS.split())})
    tokenizer.save_pretrained(tmp_path)
    texts = ["Ada lives in Oslo, and Ben's tuba in Norway.", "who?"]
    given = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        wanted = theirs(**given).logits.softmax(-1).tolist()
        local = theirs(**given, global_attention_mask=torch.zeros_like(given.input_ids)).logits.softmax(-1).tolist()
    made = [one.value.probabilities for one in load(tmp_path, device="cpu").predict(texts)]
    assert [[one[name] for name in "abc"] for one in made] == [pytest.approx(row, abs=1e-5) for row in wanted]
    assert wanted[0] != pytest.approx(local[0], abs=1e-3)


def test_one_label_is_a_number(tmp_path: Path) -> None:
    theirs, tokenizer, run = of_hub(tmp_path, "BertForSequenceClassification", num_labels=1)
    with torch.no_grad():
        pair = float(theirs(**tokenizer("Ada", "Ben", return_tensors="pt")).logits)
        alone = float(theirs(**tokenizer("Ada", return_tensors="pt")).logits)
    assert [one.value for one in run.predict(["Ada\tBen"])] == run.similarity(["Ada"], ["Ben"])
    assert [run.predict(["Ada\tBen"])[0].value, run.predict(["Ada"])[0].value] == pytest.approx([pair, alone], abs=1e-5)


PREPROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "stretched": ("ViT", {"size": {"height": 20, "width": 28}}),
    "middle": (
        "DeiT",
        {
            "size": {"height": 33, "width": 36},
            "crop_size": {"height": 20, "width": 28},
            "image_mean": [0.4, 0.5, 0.6],
            "image_std": [0.2, 0.3, 0.25],
        },
    ),
    "shorter side": ("DeiT", {"size": {"shortest_edge": 30}, "crop_size": {"height": 20, "width": 28}}),
}


def pictures(folder: Path) -> list[Path]:
    """In colors and gray, of several shapes."""
    random, paths = np.random.default_rng(1), []
    for number, shape in enumerate([(20, 28, 3), (61, 40, 3), (45, 83)]):
        Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8)).save(path := folder / f"{number}.png")
        paths.append(path)
    return paths


def of_pictures(folder: Path, name: str, **processor: Any) -> tuple[Any, Any]:
    sizes = {key: value for key, value in SIZES.items() if not key.startswith(("vocab", "max"))}
    config = getattr(transformers, f"{name}Config")(
        **sizes, image_size=[20, 28], patch_size=4, **named(("a", "b", "c"))
    )
    theirs = getattr(transformers, f"{name}ForImageClassification")(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    theirs.save_pretrained(folder)
    made = getattr(transformers, f"{name}ImageProcessorPil")(**processor)
    made.save_pretrained(folder)
    return theirs, made


@pytest.mark.parametrize("name", PREPROCESSORS)
def test_classes_of_pictures(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    family, settings = PREPROCESSORS[name]
    theirs, processor = of_pictures(tmp_path, family, **settings)
    paths = pictures(tmp_path)
    given = processor([Image.open(path).convert("RGB") for path in paths], return_tensors="pt")
    with torch.no_grad():
        wanted = theirs(**given).logits.softmax(-1)
    run = load(tmp_path, device="cpu")
    for one, row in zip(run.predict(paths), wanted.tolist(), strict=True):
        assert [one.value.probabilities[label] for label in "abc"] == pytest.approx(row, abs=1e-5)
    assert [one.value for one in run.predict(paths)] == run.classify_files(paths)
    assert main(["classify", str(tmp_path), str(paths[0])]) == 0
    assert capsys.readouterr().out.endswith(f"\t{paths[0]}\n")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"do_resize": False}, "do_resize is false"),
        ({"image_mean": [0.5]}, "have 1 and 3 channels"),
        ({"size": {"shortest_edge": 20}}, "give a crop_size of both"),
    ],
)
def test_preprocessors_that_are_not_built(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    of_pictures(tmp_path, "ViT", size={"height": 20, "width": 28})
    said = json.loads((tmp_path / "preprocessor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said | change))
    with pytest.raises(ValueError, match=says) as caught:
        load(tmp_path, device="cpu").predict(pictures(tmp_path))
    assert "preprocessor_config.json" in str(caught.value)


def test_what_can_not_be_asked_is_one_sentence(tmp_path: Path) -> None:
    of_pictures(tmp_path / "vit", "ViT", size={"height": 20, "width": 28})
    (tmp_path / "vit" / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match=r"has no preprocessor_config\.json, which says how pictures are"):
        load(tmp_path / "vit", device="cpu").predict(pictures(tmp_path))
    *_, masked = of_hub(tmp_path / "bert", "BertForMaskedLM")
    with pytest.raises(ValueError, match=r"has the head language-model and no recipe\.yaml"):
        masked.predict(["Ada"])
    *_, tags = of_hub(tmp_path / "tags", "BertForTokenClassification", **named(TAGS))
    with pytest.raises(ValueError, match="input 2 is empty"):
        tags.predict(["Ada", " "])


@pytest.mark.parametrize("model", ["bert-base", "gpt2"])
def test_what_began_here_is_read_there_as_here(tmp_path: Path, model: str) -> None:
    """With the tokens around a text, or around two, that it was trained with, though its tokenizer's file said nothing."""
    rows = "".join(f"ada lives {i},{'in oslo' * (i % 2)} now,{'ab'[i % 2]}\n" for i in range(60))
    (tmp_path / "data.csv").write_text("first,second,label\n" + rows)
    given = [
        "data.kind=labelled",
        f"data.path={tmp_path / 'data.csv'}",
        "data.text=first",
        "data.pair=second",
        "data.label=label",
    ]
    sizes = ["d_model=16", "n_layers=1", "n_heads=2", "d_ff=16"]
    usual = ["head.activation=null", "head.bias=false"] if model == "gpt2" else []
    short = ["training.max_steps=4", "training.schedule.warmup=1", *usual, *(f"model.{size}" for size in sizes)]
    train(Recipe.load("classify", [*given, f"model.preset={model}", *short]), tmp_path / "run", device="cpu")
    run = load(tmp_path / "run", device="cpu")
    saved = str(run.save(tmp_path / "saved", to="hub"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(saved).eval()
    for texts in (["ada lives 7", "in oslo now"], ["ada lives 8"]):
        with torch.no_grad():
            wanted = theirs(**tokenizer(*texts, return_tensors="pt")).logits.softmax(-1)[0].tolist()
        (one,) = run.predict(["\t".join(texts)])
        assert [one.value.probabilities[name] for name in "ab"] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("name", ["classify", "tag"])
def test_what_was_trained_here_is_saved_with_its_names(tmp_path: Path, name: str) -> None:
    """So that `transformers` says the same of a text, in the same words."""
    of_hub(tmp_path / "base", "BertForMaskedLM")
    data = {
        "classify": "text,label\n" + "".join(f"ada lives {'in oslo' * (i % 2)} {i},{'ab'[i % 2]}\n" for i in range(60)),
        "tag": "".join(f"ada B-PER\nlives{i} O\nin O\noslo B-LOC\n\n" for i in range(60)),
    }[name]
    (tmp_path / "data.csv").write_text(data)
    given = ["data.kind=labelled" if name == "classify" else "data.kind=columns", f"data.path={tmp_path / 'data.csv'}"]
    short = ["training.max_steps=2", "training.schedule.warmup=1", "batching.context=32", "task.longest=32"]
    train(Recipe.load(name, [*given, *short, f"model={tmp_path / 'base'}"]), tmp_path / "run", device="cpu")
    run = load(tmp_path / "run", device="cpu")
    saved = run.save(tmp_path / "saved", to="hub")
    kind = {"classify": "text-classification", "tag": "token-classification"}[name]
    more = {"classify": {}, "tag": {"ignore_labels": []}}[name]
    theirs = transformers.pipeline(kind, model=str(saved), device="cpu", **more)("Ada lives in Norway.")
    (one,) = run.predict(["ada lives in norway ."])
    if name == "classify":
        assert set(one.value.probabilities) == {"a", "b"} and theirs[0]["label"] == one.value.label
        assert theirs[0]["score"] == pytest.approx(one.value.probabilities[one.value.label], abs=1e-4)
    else:
        first = [token["entity"] for token in theirs if not token["word"].startswith("##")]
        assert first == one.value and set(first) <= {"O", "B-PER", "B-LOC"}
    (saved / "recipe.yaml").unlink()  # what is left is the Hub's alone
    again = load(saved, device="cpu").predict(["ada lives in norway ."])[0]
    assert again.text == one.text
