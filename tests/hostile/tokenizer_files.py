"""A tokenizer.json that is broken or made to exhaust memory: by hand (`BOMBS`), and by chance (`mutants`).

`check` loads and uses many of them in a process of limited memory; run this file to do that: `MUTANTS [SEED]`.
Each must end in a tokenizer that works or in a ValueError of one line.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMORY = 2 << 30  # bytes of addresses for the process that tries them; PyTorch alone takes a good part
SECONDS = 20  # for one file, on a busy machine
TEXTS = [
    "the cat sat on the mat",
    "",
    "  ä\u0301 <s> ▁ 한 👩\u200d👩 \u0301\t",
    "a" * 5000,
    "ab " * 2000,
    "<|x|> [MASK] 123",
]


def _word(**parts: Any) -> dict[str, Any]:
    words = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "the": 4, "a": 5}
    added = [
        {"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        | {"special": True}
        for name, i in list(words.items())[:4]
    ]
    model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return {"version": "1.0", **empty, "added_tokens": added, "model": model, **parts}


def _all(kind: str, steps: list[Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: steps}


def _replace(new: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": new}


def _template(single: list[Any], pair: list[Any], ids: int = 1) -> dict[str, Any]:
    token = {"id": "</s>", "ids": [3] * ids, "tokens": ["</s>"] * ids}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {"</s>": token}}


def _bombs() -> dict[str, dict[str, Any]]:
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    bpe = {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3}, "merges": [["a", "b"]], "unk_token": "<unk>"}
    pieces = {"type": "WordPiece", "vocab": {"<unk>": 0, "a": 1, "##a": 2}, "unk_token": "<unk>"}
    wordpiece = {**pieces, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    unigram = {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.0]], "unk_id": 0}
    added = _word()["added_tokens"]
    deep: Any = {"type": "Lowercase"}
    for _ in range(120):
        deep = _all("normalizers", [deep])
    empty = [r"", r"a*", r"(?=a)", r"\b", r"^|$", r"x?", r"a{0}", r"(a|)", r"\s{0,1}", r"[ab]*"]
    doubling = {f"regex-{regex}": _replace("ab", Regex=regex) for regex in empty}
    doubling |= {
        "text": _replace("aa", String="a"),
        "nothing": _replace("b", String=""),
        "bytes": {"type": "ByteLevel"},
    }
    made = {f"normalizer-{name}": _word(normalizer=_all("normalizers", [step] * 34)) for name, step in doubling.items()}
    byte = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    suffix = {"type": "BPEDecoder", "suffix": ""}
    ctc = {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True}
    return made | {
        "pre-tokenizer-bytes": _word(pre_tokenizer=_all("pretokenizers", [byte] * 34)),
        "decoder-text": _word(decoder=_all("decoders", [_replace("aa", String="a")] * 34)),
        "decoder-empty": _word(decoder=_all("decoders", [_replace("aa", Regex="")] * 34)),
        "decoder-suffix": _word(decoder=_all("decoders", [suffix] * 34)),
        "decoder-ctc": _word(decoder=_all("decoders", [ctc] * 34)),
        "prepend-long": _word(normalizer=_all("normalizers", [{"type": "Prepend", "prepend": "a" * 99_999}] * 99)),
        "replace-long": _word(normalizer=_replace("a" * 999_999, Regex=".")),
        "stages-many": _word(normalizer=_all("normalizers", [{"type": "NFKD"}] * 200_000)),
        "stages-deep": _word(normalizer=deep),
        "template-many": _word(post_processor=_template([a] * 20_000, [a, b])),
        "template-many-b": _word(post_processor=_template([a], [a] + [b] * 20_000)),
        "template-tokens": _word(post_processor=_template([a] + [end] * 3000, [a, b], ids=3000)),
        "template-twice": _word(post_processor=_all("processors", [_template([a, a], [a, b, a, b])] * 34)),
        "suffix-long": _word(model={**bpe, "end_of_word_suffix": "a" * 999_999}),
        "prefix-long": _word(model={**bpe, "continuing_subword_prefix": "a" * 999_999}),
        "word-long": _word(model={**wordpiece, "max_input_chars_per_word": 10**9}),
        "ids-huge": _word(model={**bpe, "vocab": {"<unk>": 0, "a": 10**9, "b": 2, "ab": 3}}),
        "ids-beyond": _word(model={**bpe, "vocab": {"<unk>": 0, "a": 2**40, "b": 2, "ab": 3}}),
        "ids-negative": _word(model={**bpe, "vocab": {"<unk>": 0, "a": -1, "b": 2, "ab": 3}}),
        "ids-twice": _word(model={**bpe, "vocab": {"<unk>": 0, "a": 0, "b": 0, "ab": 0}}),
        "merges-unknown": _word(model={**bpe, "merges": [["a", "x"], ["y", "b"]]}),
        "merges-strange": _word(model={**bpe, "merges": [["a"], [], "a b c", 3]}),
        "unk-missing": _word(model={**bpe, "unk_token": "<none>"}),
        "dropout-strange": _word(model={**bpe, "dropout": 7.5}),
        "bytes-missing": _word(model={**bpe, "byte_fallback": True}),
        "unigram-unk": _word(model={**unigram, "unk_id": 10**9}),
        "unigram-score": _word(model={**unigram, "vocab": [["<unk>", 0.0], ["a", 1e308], ["aa", -1e308]]}),
        "unigram-empty": _word(model={**unigram, "vocab": [["", 0.0], ["", 0.0]]}),
        "added-long": _word(added_tokens=[{**added[0], "content": "a" * 9_000_000}]),
        "added-ids": _word(added_tokens=[{**added[0], "id": 10**9}, {**added[1], "id": 2**31}]),
        "added-empty": _word(added_tokens=[{**added[0], "content": ""}, {**added[1], "content": " "}]),
        "added-strange": _word(added_tokens=[1, "a", None, {}, []]),
        "charsmap-garbage": _word(normalizer={"type": "Precompiled", "precompiled_charsmap": "/////wAAAA=="}),
        "charsmap-text": _word(normalizer={"type": "Precompiled", "precompiled_charsmap": "é!"}),
        "charsmap-long": _word(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAGFh" + "YWFh" * 9999}),
        "charsmap-trie": _word(
            normalizer={"type": "Precompiled", "precompiled_charsmap": "EAAAAP//////////////////////AGFh"}
        ),
        "regex-slow": _word(
            pre_tokenizer={
                "type": "Split",
                "pattern": {"Regex": "(a+)+$"},
                "behavior": "Isolated",
                "invert": False,
            }
        ),
        "regex-broken": _word(
            pre_tokenizer={"type": "Split", "pattern": {"Regex": "(((["}, "behavior": "Isolated", "invert": False}
        ),
        "regex-deep": _word(normalizer=_replace("", Regex="(" * 9_999 + "a" + ")" * 9_999)),
        "regex-repeats": _word(normalizer=_replace("", Regex="((a{1,999}){1,999}){1,999}")),
        "padding-long": _word(
            padding={
                "strategy": {"Fixed": 10**9},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "<pad>",
            }
        ),
        "truncation-strange": _word(
            truncation={"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 9}
        ),
        "fixed-length": _word(pre_tokenizer={"type": "FixedLength", "length": 0}),
        "ours-strange": _word(model={**bpe, "qkv": {"roles": {"pad": "<none>"}, "target": {"model": 3}}}),
    }


BOMBS: dict[str, str] = {name: json.dumps(data) for name, data in _bombs().items()}
BOMBS["keys-twice"] = BOMBS["normalizer-text"].replace('"pre_tokenizer"', '"normalizer": null, "pre_tokenizer"')
BOMBS["keys-twice-hidden"] = json.dumps(_word()).replace(
    '"normalizer": null',
    '"normalizer": ' + json.dumps(json.loads(BOMBS["normalizer-text"])["normalizer"]) + ', "normalizer": null',
)
BOMBS["surrogate"] = BOMBS["ids-huge"].replace('"ab"', '"\\ud800"')

STRANGE = [
    None,
    True,
    -1,
    0,
    1,
    10**9,
    2**63,
    1.5,
    1e308,
    "",
    "a",
    "a" * 9999,
    "\u0301",
    "▁",
    [],
    {},
    [[]],
    "<unk>",
    "(a*)*",
]


def mutants(seed: int, count: int) -> Iterator[str]:
    """Files of tokenizers with one to four changes each: the same for the same seed."""
    from qkv.data.tokenizers.tokenizer import train

    texts = ["the cat sat on the mat, and the cats ate", "ä<s> 한 123"] * 3
    made = [
        json.loads(train(spec, texts).to_json()) for spec in ("bpe", "wordpiece", "unigram", "word", "char", "byte")
    ]
    bases = [*made, *(json.loads(text) for text in BOMBS.values() if len(text) < 20_000)]
    dice = random.Random(seed)
    for _ in range(count):
        data = json.loads(json.dumps(dice.choice(bases)))
        for _ in range(dice.randint(1, 4)):
            _change(data, bases, dice)
        text = json.dumps(data)
        if dice.random() < 0.1:  # as a broken disk has it
            at = dice.randrange(len(text))
            text = text[:at] + dice.choice(['"', "{", "]", "\\", "9", ""]) + text[at + 1 :]
        yield text


def _change(data: Any, bases: list[Any], dice: random.Random) -> None:
    """Put something strange, or a part of another file, somewhere; or repeat, or take away, what is there."""
    places: list[tuple[Any, Any]] = list(_places(data))
    parts = [(container, key) for container, key in places if isinstance(container[key], dict | list)]
    container, key = dice.choice(parts if parts and dice.random() < 0.4 else places)
    other = dice.choice(bases)
    how = dice.randrange(5)
    if how == 0 and isinstance(container, dict):
        del container[key]
    elif how == 1 and isinstance(container, list):
        times = min(
            dice.choice([2, 40, 2000]), max(2, 200_000 // len(places))
        )  # repeats of repeats would fill the memory
        container[key : key + 1] = [container[key]] * times
    elif how == 2:
        at, name = dice.choice(list(_places(other)))
        container[key] = json.loads(json.dumps(at[name]))
    elif how == 3 and isinstance(data, dict):
        part = dice.choice(["normalizer", "pre_tokenizer", "post_processor", "decoder", "model", "added_tokens"])
        data[part] = json.loads(json.dumps(other.get(part)))
    else:
        container[key] = json.loads(json.dumps(dice.choice(STRANGE)))


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from _places(data[key])


# -- trying them ------------------------------------------------------------------------------------------------------


def use(text: str) -> str:
    """Load a tokenizer and do with it what a run does; what came of it."""
    from qkv.data.tokenizers.tokenizer import Tokenizer

    try:
        tokenizer = Tokenizer.from_json(text)
        for some in TEXTS:
            ids = tokenizer.encode(some)
            tokenizer.decode(ids)
            tokenizer.with_template([some], [some])
        again = Tokenizer.from_json(tokenizer.to_json())
        return "works" if again.vocab_size == tokenizer.vocab_size else "crash: reads itself otherwise"
    except ValueError as error:
        return f"refused: {error}" if "\n" not in str(error) else f"crash: {error!r}"
    except BaseException as error:
        return f"crash: {error!r}"


def check(texts: list[str]) -> list[tuple[str, float]]:
    """What came of each, and after how many seconds; one that ends the process has "crash"."""
    found: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.json"
        while len(found) < len(texts):
            file.write_text(json.dumps(texts[len(found) :]))
            environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RUST_BACKTRACE": "0"}
            done = subprocess.run(
                [sys.executable, __file__, "--try", str(file)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            found += [(how, seconds) for how, seconds in map(json.loads, done.stdout.splitlines())]
            if len(found) < len(texts):
                found.append((f"crash: the process ended with {done.returncode}", float(SECONDS)))
    return found


def _try(file: str) -> None:
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for text in json.loads(Path(file).read_text()):
        signal.alarm(SECONDS)
        start = time.monotonic()
        how = use(text)
        print(json.dumps([how, time.monotonic() - start]), flush=True)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--try"]:
        return _try(arguments[1])
    count, seed = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    texts = [*BOMBS.values(), *mutants(seed, count)]
    found = check(texts)
    for text, (how, seconds) in zip(texts, found, strict=True):
        if how.startswith("crash") or seconds > SECONDS / 2:
            print(f"{how} after {seconds:.1f} s: {text[:2000]}")
    kinds = [how.split(":")[0] for how, _ in found]
    print(", ".join(f"{kinds.count(kind)} {kind}" for kind in ("works", "refused", "crash")))
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
