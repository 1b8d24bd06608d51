"""A run that was trained from a Hub directory keeps what that says: transformers loads it as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import qkv
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

WORDS = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "<end>": 4, **{f"w{i}": i for i in range(5, 40)}}
ROLES = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA = {
    **ROLES, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 64, "initializer_range": 0.5, "use_cache": False,
    "attention_dropout": 0.1,
}  # fmt: skip
GEMMA = {**LLAMA, "head_dim": 8, "num_hidden_layers": 2, "sliding_window": 8, "query_pre_attn_scalar": 8}
BERT = {
    "vocab_size": 40, "pad_token_id": 0, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.3,
}  # fmt: skip
LABELS = {"id2label": {0: "pos", 1: "neg"}, "label2id": {"pos": 0, "neg": 1}}
BART = {
    **ROLES, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64,
    "decoder_start_token_id": 2, "init_std": 0.5, "classifier_dropout": 0.2,
}  # fmt: skip
T5 = {
    "vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0,
    "initializer_factor": 2.0, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
SAMPLES = {
    "eos_token_id": [2, 4], "do_sample": True, "temperature": 0.7, "top_p": 0.9, "top_k": 7, "repetition_penalty": 1.1,
    "max_new_tokens": 9,
}  # fmt: skip
GREEDY = {"eos_token_id": [2, 4], "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "max_new_tokens": 9}
BEAMS = {"num_beams": 3, "length_penalty": 0.5, "early_stopping": True, "max_length": 12, "min_length": 3}


def directory(folder: Path, cls: str, config: dict[str, Any], generation: dict[str, Any] | None = None) -> Path:
    """A random model of a class of transformers with a tokenizer of words that says model_max_length 24."""
    torch.manual_seed(3)
    kind = getattr(transformers, cls)
    model = kind(kind.config_class(**config))
    if generation is not None:
        roles = {key: value for key, value in config.items() if key.endswith("_token_id")}
        model.generation_config = transformers.GenerationConfig(**{**roles, **generation})
    model.save_pretrained(folder)
    raw = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    if not cls.endswith("CausalLM"):
        raw.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
            single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "cls_token": "<s>"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, **names, sep_token="</s>", mask_token="w39", model_max_length=24,
        extra_special_tokens=["<end>"],
    ).save_pretrained(folder)  # fmt: skip
    return folder


def tuned(folder: Path, recipe: str, out: Path, *settings: str) -> qkv.Run:
    """A run of one step from the directory, on made data."""
    where = out.parent / "data"
    where.mkdir(exist_ok=True)
    words = np.random.default_rng(0).integers(5, 39, (160, 8))
    lines = [" ".join(f"w{word}" for word in row) for row in words]
    (where / "text.txt").write_text("\n".join(lines))
    pairs = [f"{line}\t{' '.join(line.split()[::-1])}" for line in lines]
    (where / "pairs.tsv").write_text("\n".join(pairs))
    classes = [f'"{line}",{("pos", "neg")[i % 2]}' for i, line in enumerate(lines)]
    (where / "classes.csv").write_text("\n".join(["text,label", *classes]))
    data = {
        "lm": ["data.path=text.txt", "batching.context=16"],
        "translate": ["data.kind=pairs", "data.path=pairs.tsv", "batching.max_length=20"],
        "classify": ["data.kind=labelled", "data.path=classes.csv"],
        "bert": ["data.kind=text", "data.path=text.txt", "task.next_sentence=false"],
    }[recipe]
    data = [item.replace("data.path=", f"data.path={where}/") for item in data]
    quick = ["training.max_steps=1", "batching.tokens=128", "training.precision=fp32", "evaluation.examples=4"]
    settings = (*data, *quick, f"model={folder}", "evaluation.test_examples=4", *settings)
    train(Recipe.load(recipe, settings), out, device="cpu")
    return qkv.load(out, device="cpu")


def check_kept(folder: Path, saved: Path, changed: tuple[str, ...] = ()) -> None:
    """transformers reads the same configuration, settings of generation and length of texts from both."""
    before, after = (transformers.AutoConfig.from_pretrained(one).to_dict() for one in (folder, saved))
    different = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert different <= {"qkv", "_name_or_path", *changed}, {
        key: (before.get(key), after.get(key)) for key in different
    }
    if (folder / "generation_config.json").is_file():
        settings = (transformers.GenerationConfig.from_pretrained(one).to_dict() for one in (folder, saved))
        assert next(settings) == next(settings)
    lengths = [transformers.AutoTokenizer.from_pretrained(one).model_max_length for one in (folder, saved)]
    assert lengths == [24, 24]


def check_generation(run: qkv.Run, saved: Path, kind: str = "AutoModelForCausalLM") -> None:
    """The run, what it was saved as, and transformers generate the same tokens, greedily or by beams."""
    theirs = getattr(transformers, kind).from_pretrained(saved).eval()
    again = qkv.load(saved, device="cpu")
    for text in ("w5", "w7 w8 w9", "w30 w11 w12 w13"):
        ids = torch.tensor([run.encode(text)])
        with torch.no_grad():
            expected = theirs.generate(ids, do_sample=False, use_cache=True)[0]
        expected = expected[1 if run.task == "translate" else ids.shape[1] :].tolist()
        for one in (run, again):
            greedy = dict.fromkeys(("do_sample", "temperature", "top_k", "top_p", "min_p"))
            got = one.outputs([text], one.generation.replace(greedy))[0][0].tokens
            assert [WORDS[token] for token in got] == expected, (text, one.name)


def test_a_tuned_decoder_generates_and_is_saved_as_its_directory_says(tmp_path: Path) -> None:
    folder = directory(tmp_path / "base", "LlamaForCausalLM", {**LLAMA, **LABELS}, SAMPLES)
    run = tuned(folder, "lm", tmp_path / "run")
    given = {"temperature": 0.7, "top_p": 0.9, "top_k": 7, "repetition_penalty": 1.1, "max_new_tokens": 9}
    assert given.items() <= run.generation.to_dict().items() and run.generation.samples
    assert run.ends == [2, 4]
    saved = run.save(tmp_path / "saved", "hub")
    check_kept(folder, saved)
    check_generation(run, saved)
    second = tuned(
        tmp_path / "run", "lm", tmp_path / "again", "generation.temperature=0.5", "generation.max_new_tokens=5"
    )
    assert (second.generation.temperature, second.generation.top_p, second.generation.max_new_tokens) == (0.5, 0.9, 5)
    assert second.ends == [2, 4]
    settings = transformers.GenerationConfig.from_pretrained(second.save(tmp_path / "saved2", "hub"))
    assert (settings.temperature, settings.max_new_tokens, settings.eos_token_id) == (0.5, 5, [2, 4])


def test_a_tuned_classifier_keeps_its_directorys_settings(tmp_path: Path) -> None:
    config = {**BERT, **LABELS, "classifier_dropout": 0.2, "problem_type": "single_label_classification"}
    folder = directory(tmp_path / "base", "BertForSequenceClassification", config)
    run = tuned(folder, "classify", tmp_path / "run")
    assert run.recipe is not None and run.recipe.head is not None
    assert (run.recipe.task.longest, run.recipe.head.dropout) == (24, 0.2)  # type: ignore[union-attr]
    saved = run.save(tmp_path / "saved", "hub")
    check_kept(folder, saved)
    assert "spec" not in json.loads((saved / "config.json").read_text())["qkv"]
    given = tuned(folder, "classify", tmp_path / "given", "task.longest=32", "head.dropout=0.3").recipe
    assert given is not None and given.head is not None
    assert (given.task.longest, given.head.dropout) == (32, 0.3)  # type: ignore[union-attr]


WINDOW = {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
MARIAN = {"bad_words_ids": [[0]], "forced_eos_token_id": 2}
# fmt: off
DECODERS = {
    "llama": ("LlamaForCausalLM", LLAMA, GREEDY),
    "llama-max-length": ("LlamaForCausalLM", LLAMA, {"max_length": 11}),
    "llama-silent": ("LlamaForCausalLM", LLAMA, {}),
    "phi3": ("Phi3ForCausalLM", LLAMA, GREEDY),
    "qwen2": ("Qwen2ForCausalLM", {**LLAMA, **WINDOW}, GREEDY),
    "qwen3": ("Qwen3ForCausalLM", {**LLAMA, "head_dim": 8}, {**GREEDY, "bad_words_ids": [[7], [8, 9]]}),
    "mistral": ("MistralForCausalLM", {**LLAMA, "sliding_window": 6}, GREEDY),
    "gemma2": ("Gemma2ForCausalLM", GEMMA, GREEDY),
    "gemma3": ("Gemma3ForCausalLM", {**GEMMA, "sliding_window_pattern": 2}, GREEDY),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 40, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64,
        "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.5, "summary_first_dropout": 0.3}, GREEDY),
}
ENCODER_DECODERS = {
    "bart": ("BartForConditionalGeneration", BART, {**BEAMS, "forced_bos_token_id": 1, "forced_eos_token_id": 2}),
    "t5": ("T5ForConditionalGeneration", T5, {"num_beams": 2, "max_new_tokens": 8}),
    "marian": ("MarianMTModel", {**BART, "decoder_start_token_id": 0}, {**BEAMS, **MARIAN}),
}
# fmt: on


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("name", DECODERS)
def test_every_tuned_decoder_is_what_it_was(name: str, adapter: bool, tmp_path: Path) -> None:
    folder = directory(tmp_path / "base", *DECODERS[name])
    run = tuned(folder, "lm", tmp_path / "run", *(["adapter={kind: lora, rank: 2}"] if adapter else []))
    saved = run.save(tmp_path / "saved", "hub")
    silent = not any(key in DECODERS[name][2] for key in ("max_new_tokens", "max_length"))
    if silent:  # then the recipe says how many tokens are generated
        settings = json.loads((saved / "generation_config.json").read_text())
        assert settings.pop("qkv") == {"max_new_tokens": 64}
        (saved / "generation_config.json").write_text(json.dumps(settings))
    check_kept(folder, saved)
    if not silent:
        check_generation(run, saved)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_every_tuned_encoder_decoder_is_what_it_was(name: str, tmp_path: Path) -> None:
    folder = directory(tmp_path / "base", *ENCODER_DECODERS[name])
    run = tuned(folder, "translate", tmp_path / "run")
    saved = run.save(tmp_path / "saved", "hub")
    check_kept(folder, saved)
    check_generation(run, saved, "AutoModelForSeq2SeqLM")


@pytest.mark.slow
def test_a_tuned_vit_reads_pictures_as_it_did_in_training(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    labels = {"id2label": {0: "red", 1: "blue"}, "label2id": {"red": 0, "blue": 1}}
    config = transformers.ViTConfig(**sizes, **labels, image_size=16, patch_size=8, qkv_bias=False)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "base")
    how = {"size": {"height": 16, "width": 16}, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25]}
    transformers.ViTImageProcessor(**how).save_pretrained(tmp_path / "base")
    for name, color in (("red", (220, 30, 30)), ("blue", (30, 30, 220))):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(30):
            noise = np.random.default_rng(i).normal(0, 20, (16, 16, 3)) + color
            pixels = noise.clip(0, 255).astype("uint8")
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{i}.png")
    data = ["data.kind=images", f"data.path={tmp_path / 'pictures'}", f"model={tmp_path / 'base'}"]
    train(
        Recipe.load("vit", [*data, "training.max_steps=1", "training.precision=fp32"]), tmp_path / "run", device="cpu"
    )
    run = qkv.load(tmp_path / "run", device="cpu")
    saved, picture = run.save(tmp_path / "saved", "hub"), tmp_path / "pictures/red/3.png"
    before, after = (transformers.AutoConfig.from_pretrained(one).to_dict() for one in (tmp_path / "base", saved))
    assert {key for key in {*before, *after} if before.get(key) != after.get(key)} <= {"qkv", "_name_or_path"}
    inputs = transformers.AutoImageProcessor.from_pretrained(saved)(Image.open(picture), return_tensors="pt")
    expected = transformers.AutoModelForImageClassification.from_pretrained(saved)(**inputs).logits.softmax(-1)[0]
    for one in (run, qkv.load(saved, device="cpu")):
        got = one.classify_files(picture).probabilities
        torch.testing.assert_close(torch.tensor([got["red"], got["blue"]]), expected.detach(), rtol=1e-4, atol=1e-5)
