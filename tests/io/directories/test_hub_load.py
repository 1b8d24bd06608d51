"""`qkv.load` and `save` on the Hub's directories: what is accepted, what is refused by name, and what is kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import qkv
from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.io.hub.files import Safetensors
from qkv.runs.inference.run import Run, load
from qkv.training.settings import Training

IDS = torch.tensor([[5, 3, 8, 2]])
SMALL = {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 20, "max_positions": 16}


def saved(folder: Path, name: str = "gpt2", **sizes: object) -> Path:
    model = build(preset(name, **{**SMALL, **sizes}), seed=2).eval()
    return Run(model, None, task="read" if model.decoder is None else "continue").save(folder, to="hub")


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    return saved(tmp_path / "gpt2")


def rewritten(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Path:
    tensors = load_file(folder / "model.safetensors")
    save_file({n: t.contiguous() for n, t in change(tensors).items()}, folder / "model.safetensors")
    return folder


def configured(folder: Path, **changes: object) -> Path:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "gone"}))
    return folder


def logits(folder: Path, **options: object) -> torch.Tensor:
    with torch.no_grad():
        return load(folder, "cpu", **options).model(IDS)  # type: ignore[arg-type]


# -- what is accepted ----------------------------------------------------------------------------------------------------


def test_names_without_the_prefix_and_old_masks(gpt2: Path) -> None:
    """As OpenAI's own GPT-2 lies on the Hub."""
    before = logits(gpt2)
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 16, 16) for i in range(2)}
    rewritten(gpt2, lambda t: {n.removeprefix("transformer."): v for n, v in t.items()} | masks)
    assert torch.equal(logits(configured(gpt2, n_ctx=16, architectures="gone")), before)


def test_the_first_berts_names_and_a_class_that_says_less_than_the_weights(tmp_path: Path) -> None:
    folder = saved(tmp_path / "bert", "bert-base", d_ff=24)
    model = load(folder, "cpu").model
    with torch.no_grad():
        before = model(IDS), model.classify(IDS)

    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    rewritten(folder, lambda t: {old(name): tensor for name, tensor in t.items()})
    run = load(configured(folder, architectures=["BertForMaskedLM"]), "cpu")
    with torch.no_grad():
        assert torch.equal(run.model(IDS), before[0]) and torch.equal(run.model.classify(IDS), before[1])
    again = json.loads((run.save(tmp_path / "again") / "config.json").read_text())
    assert again["architectures"] == ["BertForPreTraining"]


def test_a_head_with_different_numbers_is_not_tied(gpt2: Path) -> None:
    before = logits(gpt2)
    rewritten(gpt2, lambda t: {**t, "lm_head.weight": t["transformer.wte.weight"].clone()})
    assert torch.equal(logits(gpt2), before) and load(gpt2, "cpu").model.spec.head.tied
    rewritten(gpt2, lambda t: {**t, "lm_head.weight": 2 * t["lm_head.weight"]})
    assert not load(gpt2, "cpu").model.spec.head.tied
    torch.testing.assert_close(logits(gpt2), 2 * before)


def test_shards_with_an_index_load_as_one_file(gpt2: Path) -> None:
    before, tensors, places = logits(gpt2), load_file(gpt2 / "model.safetensors"), {}
    for i, name in enumerate(tensors):
        places[name] = f"model-{i % 3 + 1:05}-of-00003.safetensors"
    for file in set(places.values()):
        save_file({n: t for n, t in tensors.items() if places[n] == file}, gpt2 / file)
    (gpt2 / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (gpt2 / "model.safetensors").unlink()
    assert torch.equal(logits(gpt2), before)


def test_pickles_where_they_are_allowed(gpt2: Path) -> None:
    before, tensors = logits(gpt2), load_file(gpt2 / "model.safetensors")
    (gpt2 / "model.safetensors").unlink()
    torch.save({**tensors, "lm_head.weight": tensors["transformer.wte.weight"]}, gpt2 / "pytorch_model.bin")
    with pytest.raises(ValueError, match="--allow-pickle"):
        load(gpt2, "cpu")
    assert torch.equal(logits(gpt2, allow_pickle=True), before)


@pytest.mark.parametrize(
    ("names", "dtype"),
    [
        (("fp16", "float16", "half"), torch.float16),
        (("bf16", "bfloat16"), torch.bfloat16),
        (("fp32", "float32", "float"), torch.float32),
        (("fp64", "float64", "double"), torch.float64),
    ],
)
def test_weights_and_training_take_the_same_names(gpt2: Path, names: tuple[str, ...], dtype: torch.dtype) -> None:
    for name in names:
        assert load(gpt2, "cpu", dtype=name).model.dtype == dtype
        if dtype != torch.float64:
            assert Training(precision=name).precision == names[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["bfloat16", torch.float64, None])
def test_the_dtype_is_the_files_or_the_one_asked_for(gpt2: Path, dtype: str | torch.dtype | None) -> None:
    wanted = {"bfloat16": torch.bfloat16, None: torch.float32}.get(dtype, dtype)  # type: ignore[arg-type]
    model = load(gpt2, "cpu", dtype=dtype).model
    assert {p.dtype for p in model.parameters()} == {wanted}
    with pytest.raises(ValueError, match=r"there is no dtype 'bfloat1' for weights; did you mean .*'bfloat16'"):
        load(gpt2, "cpu", dtype="bfloat1")


def test_a_model_made_here_keeps_what_the_hub_has_no_key_for(tmp_path: Path) -> None:
    """Dropout of a Llama, and how parameters began, stand beside the Hub's own keys."""
    spec = preset("llama", **SMALL, d_ff=24).replace({"decoder.blocks.*.dropout": 0.25, "initialization": "glorot"})
    folder = Run(build(spec), None).save(tmp_path / "run", to="hub")
    assert load(folder, "cpu").model.spec == spec
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"


# -- runs with texts -----------------------------------------------------------------------------------------------------


def test_a_trained_language_model_as_the_hubs(trained_lm: Path, tmp_path: Path) -> None:
    run = load(trained_lm, "cpu")
    folder = run.save(tmp_path / "hub", to="hub")
    config = json.loads((folder / "config.json").read_text())
    assert config["eos_token_id"] == run.tokenizer.eos_id and config["qkv"]["task"] == run.task
    again = load(folder, "cpu")
    prompts = ["a b", "c"]
    assert again.generate(prompts, max_new_tokens=5) == run.generate(prompts, max_new_tokens=5)
    assert (again.recipe, again.task) == (run.recipe, run.task) and again.model.spec == run.model.spec


def test_without_a_tokenizer_only_ids_go_in_and_out(gpt2: Path, tmp_path: Path) -> None:
    run = load(gpt2, "cpu")
    with pytest.raises(ValueError, match=r"has no tokenizer, so it reads no texts; give ids to \.model"):
        run.generate(["a"])
    assert run.model.generate(IDS, max_new_tokens=3).shape == (1, 7)
    own = load(run.save(tmp_path / "own", to="qkv"), "cpu")
    assert own.tokenizer is None and torch.equal(own.model(IDS), run.model(IDS))


# -- saving --------------------------------------------------------------------------------------------------------------


def test_a_changed_model_of_no_family_is_saved_as_ours_and_says_so(gpt2: Path, tmp_path: Path) -> None:
    run = load(gpt2, "cpu")
    changed = Run(qkv.replace(run.model, {"decoder.position": "alibi"}).model, None, origin=run.origin)
    with pytest.warns(UserWarning, match=r"gpt2 comes nearest: decoder\.position is learned there and alibi here"):
        for_auto_classes = changed.save(tmp_path / "hub", to="hub")
    with torch.no_grad():
        assert torch.equal(logits(for_auto_classes), changed.model(IDS))
    with pytest.warns(
        UserWarning, match="is saved under the model type 'qkv', which Auto classes know after .*: no Hub family"
    ):
        folder = changed.save(tmp_path / "x")
    with torch.no_grad():
        assert torch.equal(logits(folder), changed.model(IDS))
    with pytest.raises(ValueError, match="'hub' or 'qkv', not 'onnx'"):
        changed.save(tmp_path / "x", to="onnx")  # type: ignore[arg-type]


def test_a_changed_model_of_the_same_family_has_the_changed_keys(tmp_path: Path) -> None:
    run = load(saved(tmp_path / "llama", "llama", d_ff=24), "cpu")
    model = qkv.replace(run.model, {"decoder.blocks.*.attention.n_kv_heads": 1}).model
    folder = Run(model, None, origin=run.origin).save(tmp_path / "mqa", to="hub")
    assert json.loads((folder / "config.json").read_text())["num_key_value_heads"] == 1
    with torch.no_grad():
        assert torch.equal(logits(folder), model(IDS))


# -- what is refused -----------------------------------------------------------------------------------------------------

Break = Callable[[Path], object]

BROKEN: dict[str, tuple[Break, str]] = {
    "unknown model type": (
        lambda f: configured(f, model_type="gtp2"),
        "no model type 'gtp2' here; did you mean 'gpt2'",
    ),
    "code of its own": (
        lambda f: configured(f, model_type="mine", auto_map={"AutoModel": "m.Mine"}),
        "its own code (trust_remote_code), which qkv never runs",
    ),
    "no model type": (lambda f: configured(f, model_type="gone"), "says no model_type"),
    "another family's config": (lambda f: configured(f, model_type="llama"), "the class 'GPT2LMHeadModel' of 'llama'"),
    "unknown key": (lambda f: configured(f, n_experts=4), "the key 'n_experts' (4) is not known here"),
    "harmful value": (lambda f: configured(f, scale_attn_weights=False), "scale_attn_weights=False is not built"),
    "other layers": (lambda f: configured(f, n_layer=3), "lacks 'transformer.h.2.ln_1.weight'"),
    "fewer layers": (lambda f: configured(f, n_layer=1), "which this model lacks"),
    "other width": (lambda f: configured(f, n_embd=32), "is of shape (20, 16), and the model's of (20, 32)"),
    "a tensor missing": (
        lambda f: rewritten(f, lambda t: {n: v for n, v in t.items() if "h.1.ln_2.bias" not in n}),
        "lacks 'transformer.h.1.ln_2.bias'",
    ),
    "integers": (lambda f: rewritten(f, lambda t: {n: v.long() for n, v in t.items()}), "floating-point"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "holds no weights"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "config.json"),
    "generation is a list": (lambda f: (f / "generation_config.json").write_text("[]"), "generation_config.json"),
    "generation out of range": (
        lambda f: (f / "generation_config.json").write_text('{"num_beams": 0}'),
        "generation_config.json: num_beams",
    ),
    "wrong task": (lambda f: configured(f, qkv={"task": "translate"}), "the task 'translate'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_does_not_fit_is_one_sentence_that_names_it(
    name: str, gpt2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage, said = BROKEN[name]
    damage(gpt2)
    if name not in ("generation out of range", "wrong task", "generation is a list"):
        monkeypatch.setattr(Safetensors, "read", lambda *args: pytest.fail("a tensor was read"))
    with pytest.raises(ValueError) as error:
        load(gpt2, "cpu")
    assert said in str(error.value) and str(gpt2) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_tokenizer_of_another_model_is_told(gpt2: Path, trained: Path) -> None:
    shutil.copy(trained / "tokenizer.json", gpt2 / "tokenizer.json")
    with pytest.raises(ValueError, match="don't belong together"):
        load(gpt2, "cpu")


def test_added_tokens_without_an_embedding_are_told_and_left_out(trained_lm: Path, tmp_path: Path) -> None:
    """A padding token was added to the tokenizer, and the model was not resized."""
    folder = load(trained_lm, "cpu").save(tmp_path / "lm", to="hub")
    words = json.loads((folder / "tokenizer.json").read_text())
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    pad = {"id": size, "content": "[PAD]", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    words["added_tokens"].append(pad | flags)
    (folder / "tokenizer.json").write_text(json.dumps(words))
    with pytest.warns(UserWarning, match=r"no embedding for '\[PAD\]', which the tokenizer has added; it is left out"):
        run = load(folder, "cpu")
    assert run.tokenizer is not None and run.tokenizer.vocab_size == size and "[PAD]" not in run.tokenizer.controls
    assert run.generate(["a [PAD]", "a"], max_new_tokens=2)


@pytest.mark.parametrize("to", ["hub", "qkv"])
def test_delivered_weights_that_changed_are_named(gpt2: Path, tmp_path: Path, to: Any) -> None:
    path = load(gpt2, "cpu").save(tmp_path / "again", to=to) / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"again/model\.safetensors is damaged: the checksum of '"):
        load(tmp_path / "again", "cpu")


def test_weights_in_eight_bits_are_loaded_into_a_dtype_that_computes(gpt2: Path) -> None:
    rewritten(gpt2, lambda t: {name: tensor.to(torch.float8_e4m3fn) for name, tensor in t.items()})
    with pytest.raises(ValueError, match=r"stored as torch\.float8_e4m3fn, .* dtype='bfloat16'"):
        load(gpt2, "cpu")
    assert load(gpt2, "cpu", dtype="bfloat16").model.dtype == torch.bfloat16


def test_whole_numbers_are_no_weights_in_whatever_dtype(gpt2: Path) -> None:
    rewritten(gpt2, lambda t: {name: tensor.to(torch.int32) for name, tensor in t.items()})
    with pytest.raises(ValueError, match=r"holds torch\.int32, and weights are floating-point numbers"):
        load(gpt2, "cpu", dtype="float32")


def test_tokens_outside_the_vocabulary_are_told_and_ignored(tmp_path: Path) -> None:
    """`transformers` writes GPT-2's 50256 into the configuration of every GPT-2."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=1000, n_embd=32, n_layer=2, n_head=2, n_positions=64)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    said = json.loads((tmp_path / "generation_config.json").read_text())
    (tmp_path / "generation_config.json").write_text(json.dumps({**said, "eos_token_id": [7, 50256]}))
    with pytest.warns(UserWarning) as told:
        run = load(tmp_path, "cpu")
    texts = [str(one.message) for one in told]
    for file, key in (("config", "bos"), ("config", "eos"), ("generation_config", "bos"), ("generation_config", "eos")):
        assert any(f"{tmp_path / file}.json: {key}_token_id is" in text and "50256" in text for text in texts)
    assert run.origin is not None and run.origin.ids.start is None and run.origin.ids.ends == (7,)
    assert run.model.generate(torch.tensor([[1, 2]]), max_new_tokens=2).shape[0] == 1


def test_smollm3_without_a_tokenizer_loads_in_transformers(tmp_path: Path) -> None:
    """The default `pad_token_id` of transformers is outside a small vocabulary."""
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 16, "n_layers": 4, "n_heads": 2, "n_kv_heads": 1, "d_ff": 24, "vocab_size": 20}
    build(preset("smollm3-3b", **sizes, unrotated=(3,))).save(tmp_path / "hub", to="hub")
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hub").config.pad_token_id is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_codet5_is_a_t5_with_the_tokenizer_of_roberta(tmp_path: Path) -> None:
    """Its folder has `vocab.json`, `merges.txt` and sentinels that are added, and no tokenizer.json."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import ByteLevelBPETokenizer

    code = ["def add(a, b):\n    return a + b", "for i in range(10): print(i)", "class A: pass"]
    trained = ByteLevelBPETokenizer()
    roles = {"pad": "<pad>", "bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    trained.train_from_iterator(code * 5, vocab_size=300, special_tokens=list(dict.fromkeys(roles.values())))
    trained.save_model(str(tmp_path))
    sentinels = [f"<extra_id_{i}>" for i in range(99, -1, -1)]
    added = {name: trained.get_vocab_size() + i for i, name in enumerate(sentinels)}
    settings = {
        "tokenizer_class": "RobertaTokenizer",
        "additional_special_tokens": sentinels,
        "add_prefix_space": False,
    }
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({**{f"{role}_token": name for role, name in roles.items()}, **settings})
    )
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    sizes = {"vocab_size": trained.get_vocab_size() + 100, "d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    ids = {"decoder_start_token_id": 0, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, **ids, d_kv=8)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    theirs.save_pretrained(tmp_path)
    tokenizer = transformers.RobertaTokenizer.from_pretrained(tmp_path)
    run = load(tmp_path, "cpu")
    for text in [*code, "def <extra_id_0>(a): return a"]:
        assert run.tokenizer is not None and run.tokenizer(text)["input_ids"] == tokenizer(text).input_ids
        out = theirs.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=20, do_sample=False)
        ours = run.model.generate([tokenizer(text).input_ids], max_new_tokens=20, bos_id=0, eos_id=2)
        assert out[0, : ours.shape[1]].tolist() == ours[0].tolist()  # after the start, 0
