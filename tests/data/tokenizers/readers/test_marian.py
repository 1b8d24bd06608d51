"""Marian: a SentencePiece model for each side, one vocabulary for both."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from qkv.data import Batching, Pairs, stream
from qkv.data.tokenizers.from_file import FromFile
from qkv.data.tokenizers.hub_export import save_for_hub
from qkv.data.tokenizers.sentencepiece import model_file
from qkv.data.tokenizers.sentencepiece.model_file import PieceKind
from qkv.data.tokenizers.tokenizer import Tokenizer

FOLDER = Path(__file__).parents[1] / "sentencepiece" / "models"  # by make_tokenizer_golden.py


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    names: list[str] = ["</s>", "<unk>"]
    for side, model in (("source", "t5"), ("target", "unigram")):
        data = (FOLDER / f"{model}.model").read_bytes()
        (tmp_path / f"{side}.spm").write_bytes(data)
        names += [piece.text for piece in model_file.parse(data).pieces if piece.kind is PieceKind.NORMAL]
    names = [*dict.fromkeys(names), ">>fra<<", "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "MarianTokenizer"}')
    return tmp_path


def test_marian_has_a_model_for_each_side_and_one_vocabulary(marian: Path) -> None:
    for file, model in (("source.spm", "t5"), ("target.spm", "unigram")):
        tokenizer, alone = Tokenizer.load(marian / file), Tokenizer.load(FOLDER / f"{model}.model")
        ids = tokenizer.encode("the cats ate 12 mats")
        assert tokenizer.tokens(ids) == alone.tokens(alone.encode("the cats ate 12 mats"))
        assert (tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id) == (0, 1, tokenizer.vocab_size - 1)
        assert tokenizer.with_template(["the cats"])[0].ids == [*tokenizer.encode("the cats"), 0]
    source = Tokenizer.load(marian)
    assert source.encode(">>fra<< the cats") == [source.id(">>fra<<"), *source.encode("the cats")]


def without(data: bytes, piece: str) -> bytes:
    """A SentencePiece model that lacks a piece."""

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)

    kept = [(n, v) for n, v in model_file.fields(data) if isinstance(v, bytes) and piece.encode() not in v]
    return b"".join(varint(number << 3 | 2) + varint(len(value)) + value for number, value in kept)


def test_targets_are_cut_by_the_model_of_their_side(marian: Path, tmp_path: Path) -> None:
    (marian / "target.spm").write_bytes(without((FOLDER / "unigram.model").read_bytes(), "▁mats"))
    source, target = Tokenizer.load(marian), Tokenizer.load(marian / "target.spm")
    text = "the cats ate 12 mats >>fra<<"
    assert source.targets.encode(text) == target.encode(text) != source.encode(text)
    assert source.targets.with_template([text]) == target.with_template([text])
    assert source.decode(source.targets.encode(text)) == target.decode(target.encode(text))
    source.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    assert again.encode(text) == source.encode(text) and again.targets.encode(text) == target.encode(text)
    assert pickle.loads(pickle.dumps(again)).targets.encode(text) == target.encode(text)
    assert target.targets is target


def test_tokens_added_later_are_on_both_sides(marian: Path) -> None:
    tokenizer = FromFile(path=str(marian), special=("<de>",), mask="<mask>").parts([])
    found = Tokenizer(*tokenizer)
    ids = found.targets.encode("<de> the cats")
    assert ids[0] == found.id("<de>") and found.targets.id("<mask>") == found.id("<mask>") == found.vocab_size - 2


TEXTS = ["the cats ate 12 mats", "", " mats ", "Die Katzen: öfter!", ">>fra<< the cats", "a\u0301 ﬁne  ß 漢"]


def test_saved_for_the_hub_it_is_read_again_from_its_models(marian: Path, tmp_path: Path) -> None:
    (marian / "target.spm").write_bytes(without((FOLDER / "unigram.model").read_bytes(), "▁mats"))
    tokenizer, saved = Tokenizer.load(marian), tmp_path / "saved"
    save_for_hub(tokenizer, saved)
    assert json.loads((saved / "tokenizer_config.json").read_text())["tokenizer_class"] == "MarianTokenizer"
    assert json.loads((saved / "vocab.json").read_text()) == json.loads((marian / "vocab.json").read_text())
    (saved / "tokenizer.json").unlink()
    again = Tokenizer.load(saved)
    for text in TEXTS:
        assert again.encode(text) == tokenizer.encode(text)
        assert again.targets.encode(text) == tokenizer.targets.encode(text)


TORTURE = [
    *("the\u00a0cats\u3000ate", "\tmats\n\nmats\r\n", "  ▁the▁cats ▁", "\u200bcats\u200d"),
    *(
        "ﬀ ﷺ ½ ㎏ Å Å ① ｔｈｅ",
        "👩‍👩‍👧‍👦 🇩🇪 👍🏽",
        "क्षि ที่ 한글 ᄒᆞᆫ",
        "\ufeffthe\ufffd",
        "<de> the",
        ">>fra<<the",
        "a >>fra<< b",
    ),
    *(
        "the " * 300,
        "x" * 200,
        "!?.,;:'\"()[]{}",
        "12,345.67 -8e-9",
        "\u202eabc\u202c",
        "e\u0301 q\u0303 \u0344",
        "THE Cats",
    ),
]


def test_transformers_reads_what_was_saved_with_the_same_ids(marian: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="ids are compared with transformers' MarianTokenizer")
    (marian / "target.spm").write_bytes(without((FOLDER / "unigram.model").read_bytes(), "▁mats"))
    tokenizer = Tokenizer.load(marian)
    for folder in (
        save_for_hub(tokenizer, tmp_path / "saved"),
        save_for_hub(Tokenizer.load(tmp_path / "saved"), tmp_path),
    ):
        theirs = transformers.MarianTokenizer.from_pretrained(folder)
        for text in (*TEXTS, *TORTURE):
            ids, targets = tokenizer.encode(text, eos=True), tokenizer.targets.encode(text, eos=True)
            assert theirs(text)["input_ids"] == ids
            assert theirs(text_target=text)["input_ids"] == targets
            known = [i for i in targets if i != tokenizer.unk_id]  # theirs leaves it out, and spaces at both ends
            assert theirs.decode(known, skip_special_tokens=True) == tokenizer.targets.decode(known).strip()


def test_what_marian_cannot_read_is_said(marian: Path, tmp_path: Path) -> None:
    parts = json.loads(Tokenizer.load(marian).to_json())
    parts["normalizer"] = {"type": "Lowercase"}
    with pytest.warns(
        UserWarning,
        match=r"no source.spm .*: its normalizer has no equivalent in a SentencePiece model; it loads the tokenizer.json",
    ):
        save_for_hub(Tokenizer.from_json(json.dumps(parts)), tmp_path / "saved")
    assert not (tmp_path / "saved" / "source.spm").exists()
    config = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_a_target_model_that_is_broken_is_named(marian: Path) -> None:
    (marian / "target.spm").write_bytes(b"\x08")
    with pytest.raises(ValueError, match=r"target\.spm' is not a usable SentencePiece model"):
        Tokenizer.load(marian)
    (marian / "target.spm").unlink()
    assert Tokenizer.load(marian).targets.encode("the") == Tokenizer.load(marian).encode("the")


def test_marian_without_its_vocabulary(marian: Path) -> None:
    (marian / "vocab.json").unlink()
    with pytest.raises(ValueError, match=r"needs a vocab.json beside it"):
        Tokenizer.load(marian)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"<unk>": None}, "contain '<unk>'"),
        ({"</s>": 10_000}, "from 0 without gaps"),
    ],
)
def test_vocabularies_that_cannot_be_used(change: dict[str, int | None], says: str, marian: Path) -> None:
    vocabulary = json.loads((marian / "vocab.json").read_text()) | change
    (marian / "vocab.json").write_text(json.dumps({name: i for name, i in vocabulary.items() if i is not None}))
    with pytest.raises(ValueError, match=says):
        Tokenizer.load(marian)


def test_other_models_than_unigram(marian: Path) -> None:
    (marian / "source.spm").write_bytes((FOLDER / "bpe.model").read_bytes())
    with pytest.raises(ValueError, match="it is a bpe model"):
        Tokenizer.load(marian)


def test_training_reads_each_side_by_its_own_model(marian: Path, tmp_path: Path) -> None:
    (marian / "target.spm").write_bytes(without((FOLDER / "unigram.model").read_bytes(), "▁mats"))
    (tmp_path / "pairs.tsv").write_text("mats\tmats\n")
    path = str(tmp_path / "pairs.tsv")
    source, tokenizer = Pairs(path=path, validation_path=path, test_path=path), Tokenizer.load(marian)
    with stream(source, tokenizer, Batching(max_length=16), seq2seq=True, epochs=1) as batches:
        (batch,) = batches
    assert batch.inputs["ids"].tolist() == [tokenizer.encode("mats", eos=True)]
    assert batch.labels is not None
    assert batch.labels.tolist() == [tokenizer.targets.encode("mats", eos=True)] != batch.inputs["ids"].tolist()
