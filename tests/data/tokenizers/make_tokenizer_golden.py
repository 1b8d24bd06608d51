"""Makes the golden files of the tokenizer tests: what `transformers` and `sentencepiece` give for torture texts.

    python tests/data/tokenizers/make_tokenizer_golden.py ../shared/data/tokenizers

in an environment with transformers (5.23), tokenizers (0.23.3), sentencepiece (0.2.3) and tiktoken (0.14). It writes
`tokenizer_golden.json`: the published files in that folder, by transformers. From made-up text it writes
`sentencepiece/models/`: small models with the ids and texts that the sentencepiece library gives.
`families_golden.json` holds what XLM-RoBERTa and ALBERT do with such models, and a `.tiktoken` file, by transformers
and by the tiktoken library.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

TEXTS = [
    *("", " ", "   ", "\t", "\n", "\r\n", "Hello, world!", " leading", "trailing ", "  two  spaces  ", "a\tb\tc"),
    *("a\u00a0b\u2003c\u3000d", "line\r\nline\n\nline", "\x00\x01\x07a\x7fb\x85", "tab\there  \t  mixed \n \t end"),
    *("naïve café ÉLAN Straße ſ ﬁ Ǆ İ ı", "e\u0301 cafe\u0301", "日本語のテキスト。中文字符测试，한국어 텍스트"),
    *("Привет мир, Україна", "مرحبا بالعالم שלום עולם", "हिन्दी क्षत्रिय தமிழ் ไทย", "Tiếng Việt đã được"),
    *("👨‍👩‍👧‍👦 family 🏳️‍🌈 🇩🇪🇫🇷 👍🏽 ☕️ ✌🏿", "zero\u200bwidth\u200djoin\ufeffbom\u00adsoft", "½ ⅓ ① Ⅷ ㎏ ﷺ ℡ №"),
    *("I'm you're it's they'll we'd can't O'Neil's", "don't   stop...!!! ??? --- ___ ###", "x" * 200),
    *("1234567890 3.14159 1,000,000 12/05/2026 0x41", "supercalifragilisticexpialidocious" * 4),
    *("http://example.com/a?b=c&d=e#f foo@bar.com", "def f(x):\n    return x**2  # comment\n\n\n"),
    *("▁already ▁▁ escaped", "[CLS] a [SEP] [MASK]b[PAD] [UNK]", "<|startoftext|>a<|endoftext|> b"),
    *(
        "\u202eright-to-left\u202c \u2028line\u2029para",
        "𝕳𝖊𝖑𝖑𝖔 𝒲ℴ𝓇𝓁𝒹",
        "ｆｕｌｌｗｉｄｔｈ\u3000ﾊﾝｶｸ",
        "\u212b \u2126 ﬀﬃ",
    ),
    *("…‥․ ‘’“” –—", "\ue000 private \U000f0000 use \U0010ffff", "Zalgo: Z̷̢a̵l̶g̴o̸", "mixedCASE camelCase SHOUTING"),
    *("ǅ ǆ ẞ ς Σ σ", "𠀀𠀁 CJK ext 㐀 豈", "the the The THE tHe", "the\u0301 quick"),
]


def published(shared: Path) -> dict[str, Any]:
    """transformers' own tokenizers on the folder's files."""
    from transformers import BertGenerationTokenizer, BertTokenizer, CLIPTokenizer, GPT2Tokenizer

    sys.path.insert(0, str(HERE.parent / "helpers"))
    from tokenizer_folders import write

    classes = {"bert-uncased": BertTokenizer, "bert-cased": BertTokenizer, "gpt2": GPT2Tokenizer}
    classes |= {"clip": CLIPTokenizer, "sentencepiece": BertGenerationTokenizer}
    golden: dict[str, Any] = {"texts": TEXTS}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in classes.items():
            place = write(name, shared, Path(folder))
            if name == "sentencepiece":
                shutil.copy(place / "tokenizer.model", place / "spiece.model")
            golden[name] = given(make.from_pretrained(place), name != "sentencepiece")
    return golden


def given(tokenizer: Any, templated: bool) -> dict[str, Any]:
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    golden = {"ids": ids, "decoded": [tokenizer.decode(row) for row in ids], "size": len(tokenizer)}
    roles = ("pad", "unk", "bos", "eos", "mask", "cls", "sep")
    golden["roles"] = {role: getattr(tokenizer, f"{role}_token_id", None) for role in roles}
    if templated:
        pair = tokenizer("the first", "and the second")
        golden["alone"] = tokenizer("the first")["input_ids"]
        golden["pair"] = [pair["input_ids"], pair.get("token_type_ids", [0] * len(pair["input_ids"]))]
    return golden


WORDS = (
    "the cats ate the mats that mates of the cat sat on while a mate met a matter of fact at eight hats fell in the "
    "naïve café straße 12 345 6,789 hello world. hello, world! déjà vu grüße aus münchen"
)
RULES = {"é": "e\u0301", "E": "Ｅ", "ffi": "ﬃ", " ": "\u3000", "1": "①"}  # what the characters become: what they were
_BYTES: dict[str, Any] = {"byte_fallback": True, "vocab_size": 340}
_AS_IT_IS: dict[str, Any] = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, **_BYTES}
MODELS: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram", "user_defined_symbols": ["<sep>"], "pad_id": 3, "control_symbols": ["<cls>"]},
    "unigram-bytes": {"model_type": "unigram", **_BYTES},
    "t5": {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "bpe": {"model_type": "bpe"},
    "llama": {"model_type": "bpe", "allow_whitespace_only_pieces": True, **_AS_IT_IS},
    "gemma": {"model_type": "bpe", "add_dummy_prefix": False, "user_defined_symbols": ["▁▁", "<t>"], **_AS_IT_IS},
    "char": {"model_type": "char", "vocab_size": 60},
}
ALBERT: dict[str, Any] = {
    "model_type": "unigram",
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": 2,
    "eos_id": 3,
    "bos_piece": "[CLS]",
    "eos_piece": "[SEP]",
    "control_symbols": ["[MASK]"],
}
SYMBOLS = ["a<sep>b", "the <sep> cat", "x<t>y <t>", "<s>the</s>", "<cls> <0x41>"]


def made(folder: Path) -> None:
    """Small SentencePiece models with what that library gives for them."""
    import sentencepiece

    folder.mkdir(exist_ok=True)
    golden: dict[str, Any] = {"texts": [*TEXTS, *SYMBOLS]}
    with tempfile.TemporaryDirectory() as scratch:
        corpus, rules = Path(scratch) / "corpus.txt", Path(scratch) / "rules.tsv"
        words = WORDS.split()
        corpus.write_text("\n".join(" ".join(words[i:] + words[:i]) for i in range(len(words))) + "\n  a  b\n")
        lines = (
            f"{' '.join(f'{ord(c):X}' for c in old)}\t{' '.join(f'{ord(c):X}' for c in new)}"
            for new, old in RULES.items()
        )
        rules.write_text("\n".join(lines) + "\n")
        for name, options in {**MODELS, "albert": ALBERT}.items():
            normal = {} if "normalization_rule_name" in options else {"normalization_rule_tsv": str(rules)}
            sentencepiece.SentencePieceTrainer.train(
                input=str(corpus),
                model_prefix=str(folder / name),
                minloglevel=2,
                num_threads=1,
                **{"hard_vocab_limit": False, "vocab_size": 120, **normal, **options},
            )
            (folder / f"{name}.vocab").unlink()
            if options is ALBERT:  # which only its family reads
                continue
            model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model"))
            ids = [model.encode(text) for text in golden["texts"]]
            golden[name] = {"ids": ids, "decoded": [model.decode(row) for row in ids]}
    (folder / "golden.json").write_text(json.dumps(golden, ensure_ascii=True) + "\n")


def families(shared: Path) -> dict[str, Any]:
    """What two families do with a SentencePiece model, and the two ways to cut words for a `.tiktoken` file."""
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe
    from tiktoken_ext.openai_public import r50k_pat_str
    from transformers import AlbertTokenizer, PreTrainedTokenizerFast, XLMRobertaTokenizer
    from transformers.convert_slow_tokenizer import TikTokenConverter

    published, own = (
        shared / "sentencepiece" / "sp_test_model.model",
        HERE / "sentencepiece" / "models" / "albert.model",
    )
    golden: dict[str, Any] = {"texts": TEXTS}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copy(published, folder / "sentencepiece.bpe.model")
        golden["xlm-roberta"] = given(XLMRobertaTokenizer.from_pretrained(folder), True)
        shutil.copy(own, folder / "spiece.model")
        for name, flags in (("albert", {}), ("albert-as-it-is", {"do_lower_case": False, "keep_accents": True})):
            tokenizer = AlbertTokenizer.from_pretrained(folder, **flags)
            golden[name] = given(tokenizer, True)
            golden[name]["pair"][1] = tokenizer(
                "the first", "and the second", return_token_type_ids=True
            ).token_type_ids
        ranks = folder / "multilingual.tiktoken"
        ranks.write_bytes(gzip.decompress((shared / "whisper" / "multilingual.tiktoken.gz").read_bytes()))
        converted = PreTrainedTokenizerFast(tokenizer_object=TikTokenConverter(vocab_file=str(ranks)).converted())
        golden["tiktoken"] = given(converted, False)
        encoding = tiktoken.Encoding(
            "whisper", pat_str=r50k_pat_str, mergeable_ranks=load_tiktoken_bpe(str(ranks)), special_tokens={}
        )
        ids = [encoding.encode(text) for text in TEXTS]
        golden["whisper"] = {"ids": ids, "decoded": [encoding.decode(row) for row in ids]}
    return golden


if __name__ == "__main__":
    (HERE / "tokenizer_golden.json").write_text(json.dumps(published(Path(sys.argv[1])), ensure_ascii=True) + "\n")
    made(HERE / "sentencepiece" / "models")
    (HERE / "readers" / "families_golden.json").write_text(
        json.dumps(families(Path(sys.argv[1])), ensure_ascii=True) + "\n"
    )
