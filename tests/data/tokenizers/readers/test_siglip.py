"""SigLIP's tokenizer: its rules by hand, and ids beside those of transformers."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from qkv.data.tokenizers.hub_export import save_for_hub
from qkv.data.tokenizers.tokenizer import Tokenizer

MODELS = Path(__file__).parents[1] / "sentencepiece" / "models"
NAMES = ["bpe", "char", "t5", "unigram-bytes"]
TEXTS = [
    *(
        "A photo of a Cat!",
        "Two   dogs, on\tthe beach\n",
        "it's 3.14 (pi) — «quoted» £5",
        "ΟΔΟΣ ΣΟΦΟΣ Σ",
        "",
        "  ",
        " the",
    ),
    *("İstanbul ﬁne ½", "▁under▁bar", "e\u0301 Ä Å\u00a0x\u2003y", "日本語 テスト", "a" * 50, "don't-stop_now"),
    *("\x1cx\x85y", '" é of — ? !', "UPPER lower MiXed 123,456"),
]


def folder_with(name: str, folder: Path) -> Path:
    shutil.copy(MODELS / f"{name}.model", folder / "spiece.model")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer"}')
    return folder


def test_letters_are_small_and_punctuation_is_left_out(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(folder_with("char", tmp_path))

    def read(text: str) -> str:
        return "".join(map(tokenizer.raw.id_to_token, tokenizer.encode(text)))

    assert read("A Hot, DOG's!") == "▁a▁hot▁dogs" and read('" a  \n e ') == "▁▁a▁e" and read("?") == ""
    assert tokenizer.roles == {"pad": "</s>", "unk": "<unk>", "eos": "</s>"}
    assert tokenizer.with_template(["a"])[0].ids == [*tokenizer.encode("a"), tokenizer.eos_id]
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer", "do_lower_case": false}')
    assert Tokenizer.load(tmp_path).encode("a A") != tokenizer.encode("a A")


def test_the_model_counts_beside_a_tokenizer_json(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(folder_with("char", tmp_path))
    Tokenizer.load(MODELS / "t5.model").save(tmp_path)
    assert Tokenizer.load(tmp_path).encode("a hot dog") == tokenizer.encode("a hot dog")


def test_a_model_with_symbols_of_its_user_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"spiece\.model.*user-defined symbol"):
        Tokenizer.load(folder_with("gemma", tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_transformers_also_after_saving(name: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, SiglipTokenizer

    draw = random.Random(0)
    words = [
        "the",
        "The",
        "CAT",
        "dog's",
        "photo,",
        "of",
        "(red)",
        "blue-ish",
        "über",
        "ÉTÉ",
        "3.5",
        "!",
        "?",
        "…",
        "—",
        '"',
    ]
    texts = [*TEXTS, *(" ".join(draw.choices(words, k=draw.randrange(1, 12))) for _ in range(60))]
    theirs, ours = SiglipTokenizer(str(MODELS / f"{name}.model")), Tokenizer.load(folder_with(name, tmp_path))
    for text in texts:
        assert ours.with_template([text])[0].ids == theirs(text).input_ids, text
    if name in ("bpe", "char"):
        return  # SigLIP's is a unigram model
    saved = save_for_hub(ours, tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(saved)
    assert [again(text).input_ids for text in texts] == [theirs(text).input_ids for text in texts]
    assert [one.ids for one in Tokenizer.load(saved).with_template(texts)] == [theirs(text).input_ids for text in texts]
