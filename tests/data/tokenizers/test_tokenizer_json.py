"""Reading and writing tokenizer.json."""

from __future__ import annotations

import contextlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from made_tokenizers import TEXTS, made
from tokenizers import Tokenizer as Raw
from tokenizers import models, pre_tokenizers

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.data.tokenizers.training.spec import TokenizerSpec


def vocabulary(tokenizer: Tokenizer) -> dict[str, int]:
    return tokenizer.raw.get_vocab(with_added_tokens=True)


def good() -> dict[str, Any]:
    return json.loads(made("word").to_json())


def changed(**parts: Any) -> bytes:
    return json.dumps({**good(), **parts}).encode()


HALF = "a \udc80 b"


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    doubling = [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40
    bad = {
        "a pickle": (pickle.dumps(good()), "never a pickle"),
        "nothing": (b"", "JSON object"),
        "a list": (b"[1]", "JSON object"),
        "half a file": (made("word").to_json().encode()[:-20], "not a usable"),
        "another JSON": (b"{}", "not a usable tokenizer.json"),
        "not UTF-8": (b'{"a": "\xff"}', "UTF-8"),
        "an unknown model": (changed(model={"type": "Nope"}), "not a usable"),
        "an id out of reach": (changed(model={**good()["model"], "vocab": {"<unk>": 0, "a": 2**31}}), "2,147,483,648"),
        "an empty vocabulary": (changed(model={**good()["model"], "vocab": {}}, added_tokens=[]), "empty"),
        "exponential": (changed(normalizer={"type": "Sequence", "normalizers": doubling}), "times as long"),
        "a panic": (changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAP//"}), "Cannot parse"),
        "a table cut off": (changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "is cut off"),
        "too deep": (b'{"a":' * 100_000, "nested"),
    }
    for what, (content, why) in bad.items():
        (tmp_path / "tokenizer.json").write_bytes(content)
        with pytest.raises(ValueError, match=why) as error:
            Tokenizer.load(tmp_path)
        assert "\n" not in str(error.value), what
    with pytest.raises(ValueError, match="not a JSON object"):
        Tokenizer.from_json("[1]")
    with pytest.raises(ValueError, match="there is no tokenizer at"):
        Tokenizer.load(tmp_path / "none")


def test_text_that_makes_the_library_panic_is_an_error() -> None:
    exponential = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer = Tokenizer.from_json(changed(pre_tokenizer=exponential).decode())
    with pytest.raises(ValueError, match="retry-limit"):
        tokenizer.encode("a" * 40 + "!")


def test_padding_and_truncation_of_a_file_are_off() -> None:
    raw = Raw.from_str(made("bpe").to_json())
    raw.enable_truncation(3)
    raw.enable_padding(length=50)
    tokenizer = Tokenizer.from_json(raw.to_str())
    assert tokenizer.encode_batch(TEXTS) == made("bpe").encode_batch(TEXTS)


def test_foreign_files_have_their_holes_closed() -> None:
    raw = Raw(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "a": 4}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]"])
    raw.encode_special_tokens = True
    assert raw.encode("a [SEP] a").ids == [4, 2, 4]  # the library's own hole
    tokenizer = Tokenizer.from_json(raw.to_str())
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (1, 2, 3)
    assert tokenizer.encode("a [SEP] a") == [4, 0, 0, 4]
    assert Tokenizer.from_json(tokenizer.to_json()).to_json() == tokenizer.to_json()  # closed once


@pytest.mark.parametrize("use", ["encode", "train", "chat", "unknown", "with_template"])
def test_half_a_surrogate_pair_is_named(use: str) -> None:
    tokenizer = train(BPE(chat_template="{% for m in messages %}{{ m.content }}{% endfor %}"), ["the cat"])
    messages = [{"role": "user", "content": HALF}, {"role": "assistant", "content": "b"}]
    calls = {
        "encode": lambda: tokenizer.encode(HALF),
        "train": lambda: train("word", ["fine", HALF]),
        "chat": lambda: tokenizer.chat.row(messages),
        "unknown": lambda: tokenizer.unknown([HALF]),
        "with_template": lambda: tokenizer.with_template([HALF]),
    }
    with pytest.raises(ValueError, match=r"half of a surrogate pair.* at 2: 'a \\udc80 b+'; .* not UTF-8") as caught:
        calls[use]()
    assert type(caught.value) is ValueError


def test_a_writer_that_is_killed_leaves_the_old_file_and_a_name_that_runs_tidy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("word").save(tmp_path)
    before = (tmp_path / "tokenizer.json").read_bytes()
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)  # as after SIGKILL

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        made("char").save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == before
    assert [path.name[:5] for path in tmp_path.iterdir() if path.name != "tokenizer.json"] == [".tmp-"]


def test_parts_of_ours_that_are_broken() -> None:
    data = json.loads(made("word").to_json())
    for part in ({"roles": {"king": "<s>"}}, {"roles": []}, {"dropout": 2}, {"more": 1}, [1]):
        data["model"]["qkv"] = part
        with pytest.raises(ValueError, match="'qkv' entry is not valid for this version"):
            Tokenizer.from_json(json.dumps(data))
    data["model"]["qkv"] = {"roles": {"pad": "<pda>"}}
    with pytest.raises(ValueError, match=r"its pad token is '<pda>'; did you mean '<pad>'"):
        Tokenizer.from_json(json.dumps(data))


@pytest.mark.parametrize("template", ["new", None])
@pytest.mark.parametrize("stop", range(4))
def test_a_killed_writer_leaves_no_tokenizer_with_the_template_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str | None, stop: int
) -> None:
    def of(text: str, template: str | None) -> Tokenizer:
        return train(TokenizerSpec.from_dict({"kind": "char", "eos": "</s>", "chat_template": template}), iter([text]))

    old, new = of("ab", "old"), of("abc", template)
    old.save(tmp_path)
    steps = iter(range(stop))

    def counted(real: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            if next(steps, None) is None:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return step

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        new.save(tmp_path)
    left = Tokenizer.load(tmp_path)
    assert (left.vocab_size, left.config.get("chat_template")) in ((old.vocab_size, "old"), (new.vocab_size, template))
