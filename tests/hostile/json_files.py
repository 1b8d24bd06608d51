"""JSON files whose schema is broken: null, numbers and objects as ids and texts, empty groups, ids of 2**32 and more,
entries that are missing, doubled or nested wrong, in the files of every reader of JSON.

`mutants(seed, n)` gives them, `check` says what is wrong with how one is met: None, or a sentence. A file is to be read, or
to end in a ValueError of one short sentence that names it. Run this file to try many: `COUNT [SEED]`.
"""

from __future__ import annotations

import copy
import importlib
import json
import pkgutil
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 5.0  # of CPU time for one file
LONGEST = 2000  # characters of a message
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**32, 2**32 + 1, 2**63, 2**64, 10**30, -(2**63), 1.5, -0.5, 1e308),
    *(
        float("nan"),
        float("inf"),
        "",
        " ",
        "a",
        "0",
        "null",
        "a" * 5000,
        "\0",
        "é\ud800",
        "../x",
        "/etc/passwd",
        "[UNK]",
    ),
    *([], [None], [0], [[]], [{}], ["a", 1], [[["a"]]], {}, {"a": 1}, {"": {}}, {"id": {}}, {"a": [None]}, {"0": None}),
)


class Reader(NamedTuple):
    """The content of a sound file by its name, and what reads it in a folder."""

    file: str
    content: Any
    read: Callable[[Path], Any]
    lines: bool = False


def _all(source: Any) -> None:
    from qkv.data.source import SPLITS

    for split in SPLITS:
        table = source.table(split)
        for i in range(len(table)):
            table[i]
    source.notes()


def _questions() -> Any:
    def answer(text: str, start: int) -> dict[str, Any]:
        return {"text": text, "answer_start": start}

    def paragraph(i: int) -> dict[str, Any]:
        asked = [
            {"id": f"q{i}", "question": "who sat?", "answers": [answer("cat", 4), answer("the cat", 0)]},
            {"id": f"r{i}", "question": "who ran?", "answers": [], "is_impossible": True},
        ]
        return {"context": f"the cat sat on mat {i}", "qas": asked}

    return {"version": "v2.0", "data": [{"title": f"t{i}", "paragraphs": [paragraph(i)]} for i in range(4)]}


def _coco() -> Any:
    return {
        "images": [{"id": i, "file_name": f"{i}.jpg", "width": 32, "height": 24} for i in range(6)],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 1 + i % 2, "bbox": [1, 2, 10.5, 4], "iscrowd": i % 2}
            for i in range(6)
        ],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}],
    }


def _chats() -> Any:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    said = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "1", "tool_call_id": "c"},
        {"role": "assistant", "content": "done", "weight": 1},
    ]
    sharegpt = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]
    alpaca = {"instruction": "add", "input": "1", "output": "2", "system": "s", "history": [["a", "b"]]}
    records = [{"messages": said, "tools": tools}, {"conversations": sharegpt, "system": "s"}, alpaca]
    return [copy.deepcopy(record) | {"id": i} for i in range(3) for record in records]


def _questions_lines() -> Any:
    rows = [{"context": f"the cat {i}", "question": "who?", "answer": "cat", "start": 4} for i in range(4)]
    return [
        *rows,
        {"context": "a b", "question": "q", "answer": ["a", "b"], "start": [0, 2]},
        {"context": "c", "question": "q", "answer": None},
    ]


def _source(kind: str, file: str, **settings: Any) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        from qkv.data import readers
        from qkv.data.source import Source

        for module in pkgutil.iter_modules(readers.__path__, f"{readers.__name__}."):
            importlib.import_module(module.name)  # sources are known by their kinds once they are imported

        for i in range(6):
            (folder / f"{i}.jpg").touch()
        _all(Source.from_dict({"kind": kind, "path": str(folder / file), **settings}))

    return read


def _some_rows() -> Any:
    return [
        {"context": "the cat", "question": "who?", "answers": {"text": ["cat"], "answer_start": [4]}},
        {"context": "the cat", "question": "who?", "answer": "cat", "start": 4},
        {"text": "1 + 1", "choices": {"text": ["2", "3"], "label": ["A", "B"]}, "answer": "A"},
        {"text": "1 + 1", "choices": ["2", "3"], "answer": 0},
        {"audio": {"array": [0.0, 0.5], "sampling_rate": 8000}, "label": "dog"},
        {"words": ["a", "b"], "tags": ["O", "B-X"]},
        {"source": "a", "target": ["b", "c"]},
        {"messages": [{"role": "user", "content": "a"}], "tools": None},
        {"image": {"bytes": None, "path": "a.png"}, "mask": {"bytes": None, "path": "b.png"}},
        {"text": "a", "label": 1, "score": 0.5},
    ] * 2


def _rows(folder: Path) -> None:
    """Rows of a data set, each of a different kind."""
    from qkv.data.readers.rows import RowReader

    rows = json.loads((folder / "a.json").read_text("utf-8", "surrogatepass")) if _is_json(folder / "a.json") else []
    for i, row in enumerate(rows if isinstance(rows, list) else []):
        if isinstance(row, dict):
            RowReader().example(row, f"{folder}, row {i + 1}")


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text("utf-8", "surrogatepass"))
    except ValueError:
        return False
    return True


def _chat_texts(folder: Path) -> None:
    """Conversations, rendered by a chat template."""
    from qkv.data.readers.jsonl import JsonLines
    from qkv.data.tokenizers.chat.conversations import Conversations
    from qkv.data.tokenizers.chat.template import ChatTemplate
    from qkv.data.tokenizers.tokenizer import train

    tokenizer = train("byte", ["a"])
    template = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}{{ c | tojson }}"
    template += "{% endfor %};{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}{# tools #}"
    chat = Conversations(tokenizer.raw, tokenizer.controls, tokenizer.markers, ChatTemplate(template))
    table = JsonLines(path=str(folder / "a.jsonl"), messages="messages").open("train")
    for i in range(len(table)):
        if isinstance(example := table[i], dict):
            try:
                chat.row(json.loads(example["messages"]), json.loads(example.get("tools", "null")))
            except ValueError as error:
                raise ValueError(f"{example['where']}: {error}") from None


def _tokenizer(folder: Path) -> None:
    from qkv.data.tokenizers.tokenizer import Tokenizer

    words = ["<unk>", "<pad>", "a", "b", "ab"]
    for name, content in (("vocab.json", {word: i for i, word in enumerate(words)}), ("tokenizer_config.json", {})):
        if not (folder / name).exists():
            (folder / name).write_text(json.dumps(content))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    tokenizer = Tokenizer.load(folder)
    tokenizer.decode(tokenizer.encode("ab a"))
    assert Tokenizer.from_json(tokenizer.to_json()).vocab_size == tokenizer.vocab_size


_TOKEN = {
    "content": "<x>",
    "lstrip": False,
    "rstrip": False,
    "single_word": False,
    "normalized": False,
    "special": True,
}
_TOKENIZER_CONFIG = {
    "add_prefix_space": False,
    "added_tokens_decoder": {"5": _TOKEN},
    "additional_special_tokens": ["<y>"],
    "bos_token": "<s>",
    "unk_token": {"__type": "AddedToken", **_TOKEN, "content": "<unk>"},
    "chat_template": [{"name": "default", "template": "{{ messages }}"}],
    "model_max_length": 512,
    "tokenizer_class": "GPT2Tokenizer",
    "extra_ids": 0,
}


def _model(folder: Path) -> Path:
    """A small model of the Hub's format, whose files are those that a test did not write."""
    import configs

    stored = _made.setdefault("llama", Path(tempfile.mkdtemp()))
    if not (stored / "config.json").exists():
        configs.stored("llama", stored)
    for path in stored.iterdir():
        if not (folder / path.name).exists():
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


_made: dict[str, Path] = {}


def _quantized(folder: Path) -> None:
    from qkv.core.json_files import read_json
    from qkv.io.hub.quantized import layout_of, quantization_of

    config = read_json(folder / "config.json")
    found = quantization_of(config if isinstance(config, dict) else {}, folder)
    if found is not None:
        layout = layout_of(found, str(folder / "config.json"))
        assert isinstance(layout.usual_weights, str)
        assert layout.activations("model.layers.0.self_attn.q_proj") in ("none", "int8", "fp8")


def _shards(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from qkv.io.hub.files import open_weights

    save_file({name: torch.zeros(2) for name in "ab"}, folder / "a.safetensors")
    open_weights(folder)


def _generation(folder: Path) -> None:
    import qkv

    qkv.load(_model(folder), "cpu").generation  # noqa: B018


def _adapter(folder: Path) -> None:
    import safetensors.torch
    import torch

    import qkv
    from qkv.io.directories.adapters import load_adapter

    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    tensors = {name.format("A"): torch.zeros(2, 32), name.format("B"): torch.zeros(32, 2)}
    safetensors.torch.save_file(tensors, folder / "adapter_model.safetensors")
    base = folder / "base"
    base.mkdir(exist_ok=True)
    load_adapter(qkv.load(_model(base), "cpu").model, folder)


def _pictures(folder: Path) -> None:
    from types import SimpleNamespace

    from qkv.io.directories.preprocessor import Preprocessor
    from qkv.nn.layers.patches import Patches

    spec: Any = SimpleNamespace(output=SimpleNamespace(embedding=Patches(image=(32, 32))))
    Preprocessor.of(folder, spec)


def _modules(folder: Path) -> None:
    from qkv.io.directories.sentence_transformers import _entries

    _entries(folder)


def _group(**changes: Any) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "group_size": None, "strategy": "channel"}
    inputs = {"num_bits": 8, "type": "int", "dynamic": True}
    targets = ["Linear", "model.layers.0.self_attn.q_proj"]
    return {"weights": weights, "input_activations": inputs, "targets": targets, "format": "int-quantized", **changes}


_COMPRESSED = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": _group()}}
_PEFT = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 4,
    "lora_dropout": 0.0,
    "target_modules": ["q_proj"],
    "bias": "none",
}
_PREPROCESSOR = {
    "do_resize": True,
    "size": {"height": 32, "width": 32},
    "crop_size": {"height": 32, "width": 32},
    "do_center_crop": True,
    "resample": 2,
    "rescale_factor": 1 / 255,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def readers() -> dict[str, Reader]:
    texts = [
        {"text": f"t{i}", "pair": "p", "label": i % 2, "score": 0.5, "choices": ["a", "b"], "answer": 1}
        for i in range(6)
    ]
    pairs = [
        {"source": f"s{i}", "target": ["a", "b"], "text": "t", "translation": {"en": f"x{i}", "de": "y"}}
        for i in range(6)
    ]
    images = [{"image": f"{i}.jpg", "question": "q?", "answer": "a"} for i in range(6)]
    pieces = {split: [[[60, 64], [62, -1], []]] * 3 for split in ("train", "valid", "test")}
    words = {"<unk>": 0, "<pad>": 1, "a": 2, "b": 3, "ab": 4}
    index = {"metadata": {"total_size": 1}, "weight_map": {"a": "a.safetensors", "b": "a.safetensors"}}
    quantized = {
        "compressed-tensors": _COMPRESSED,
        "gptq": {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq", "group_size": 32, "desc_act": False},
        "awq": {"quant_method": "awq", "bits": 4, "version": "gemm", "group_size": 32},
        "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    }
    special = {"bos_token": "<s>", "unk_token": _TOKEN, "additional_special_tokens": ["<y>"]}
    generation = {"temperature": 0.5, "top_k": 5, "eos_token_id": [1, 2], "max_new_tokens": 5}
    found = {
        "SQuAD": Reader("a.json", _questions(), _source("questions", "a.json")),
        "questions": Reader("a.jsonl", _questions_lines(), _source("questions", "a.jsonl"), True),
        "COCO": Reader("a.json", _coco(), _source("coco", "a.json")),
        "captions": Reader("a.jsonl", images, _source("captions", "a.jsonl"), True),
        "chats": Reader("a.jsonl", _chats(), _source("jsonl", "a.jsonl", messages="messages"), True),
        "a list of chats": Reader("a.json", _chats(), _source("jsonl", "a.json", messages="messages")),
        "rendered chats": Reader("a.jsonl", _chats(), _chat_texts, True),
        "labels": Reader("a.jsonl", texts, _source("labelled", "a.jsonl"), True),
        "a list of labels": Reader("a.json", texts, _source("labelled", "a.json", pair="pair", score="score")),
        "choices": Reader("a.jsonl", texts, _source("choices", "a.jsonl"), True),
        "pairs": Reader("a.jsonl", pairs, _source("pairs", "a.jsonl", source_column="translation.en"), True),
        "a list of pairs": Reader("a.json", pairs, _source("pairs", "a.json")),
        "texts": Reader("a.jsonl", pairs, _source("jsonl", "a.jsonl", prompt="source", answer="target"), True),
        "scores": Reader("a.json", pieces, _source("scores", "a.json")),
        "vocab.json": Reader("vocab.json", words, _tokenizer),
        "added_tokens.json": Reader("added_tokens.json", {"<x>": 5, "<y>": 6}, _tokenizer),
        "tokenizer_config.json": Reader("tokenizer_config.json", _TOKENIZER_CONFIG, _tokenizer),
        "special_tokens_map.json": Reader("special_tokens_map.json", special, _tokenizer),
        "shards": Reader("model.safetensors.index.json", index, _shards),
        "preprocessor_config.json": Reader("preprocessor_config.json", _PREPROCESSOR, _pictures),
        "modules.json": Reader(
            "modules.json", [{"idx": 0, "name": "0", "path": "", "type": "a.Transformer"}], _modules
        ),
        "adapter_config.json": Reader("adapter_config.json", _PEFT, _adapter),
        "generation_config.json": Reader("generation_config.json", generation, _generation),
        "rows": Reader("a.json", _some_rows(), _rows),
    }
    for name, content in quantized.items():
        found[name] = Reader("config.json", {"quantization_config": content}, _quantized)
    return found


class Mutant(NamedTuple):
    reader: str
    text: str


def mutants(seed: int, n: int) -> Iterator[Mutant]:
    """`n` files with one to three changes each; readers take turns."""
    dice, known = random.Random(seed), list(readers().items())
    for i in range(n):
        name, reader = known[i % len(known)]
        content = copy.deepcopy(reader.content)
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            content = _changed(content, dice)
        if reader.lines and isinstance(content, list):
            text = "".join(json.dumps(record) + "\n" for record in content)
        else:
            text = json.dumps(content)
        if dice.random() < 0.05:  # as a broken disk has it
            at = dice.randrange(len(text) + 1)
            text = text[:at] + dice.choice(['"', "{", "]", "\\", "9", ""]) + text[at + 1 :]
        yield Mutant(name, text)


def _changed(content: Any, dice: random.Random) -> Any:
    places = list(_places(content))
    if not places or dice.random() < 0.03:
        return copy.deepcopy(dice.choice(VALUES))
    container, key = dice.choice(places)
    how = dice.randrange(6)
    if how == 0:
        del container[key]
    elif how == 1 and isinstance(container, list):
        container.insert(key, copy.deepcopy(container[key]))
    elif how == 1:
        container[dice.choice(("", "0", "id", "a" * 100))] = copy.deepcopy(container[key])
    elif how == 2:
        container[key] = dice.choice(([container[key]], {"a": container[key]}, str(container[key])))
    elif how == 3:
        at, name = dice.choice(places)
        container[key] = copy.deepcopy(at[name])
    else:
        container[key] = copy.deepcopy(dice.choice(VALUES))
    return content


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        yield from _places(data[key])


def check(mutant: Mutant) -> str | None:
    """What is wrong with how a file is met, or None."""
    reader = readers()[mutant.reader]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (Path(folder) / reader.file).write_text(mutant.text, "utf-8", "surrogatepass")
        began = time.process_time()
        try:
            reader.read(Path(folder))
        except ValueError as error:
            said = str(error)
            if "\n" in said or len(said) > LONGEST:
                return f"{mutant.reader}: a message of {len(said):,} characters: {said[:300]!r}"
            if folder not in said:
                return f"{mutant.reader}: the message names no file: {said[:300]} [{mutant.text[:300]}]"
        except Exception:
            return f"{mutant.reader}: {traceback.format_exc(limit=-3)} [{mutant.text[:1500]}]"
        took = time.process_time() - began
    return f"{mutant.reader}: {took:.1f} s of CPU time" if took > SECONDS else None


def main(arguments: list[str]) -> None:
    count, seed = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    wrong = [said for mutant in mutants(seed, count) if (said := check(mutant)) is not None]
    print("\n".join([*wrong, f"{count:,} files, {len(wrong):,} neither read nor refused in one sentence"]))


if __name__ == "__main__":
    main(sys.argv[1:])
