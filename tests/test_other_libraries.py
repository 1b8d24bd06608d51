"""What messages, docstrings and docs say of other libraries holds of the versions that are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.io.directories.hub_save import DEFAULT_ROLES, ROLES
from qkv.io.directories.run_config import MODEL_TYPE
from qkv.io.families import FAMILIES
from qkv.io.hub.family import DIVIDED

transformers = pytest.importorskip("transformers", reason="statements about it are tried with it")
SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 32, "vocab_size": 64}
KINDS = ("eager", "sdpa")


def test_these_families_alone_need_heads_that_divide_the_width() -> None:
    sizes = {**SMALL, "hidden_size": 60, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8}
    refused = []
    for family in FAMILIES.values():
        if not any("head_dim" in getattr(field, "keys", ()) for field in family.fields):
            continue
        try:
            transformers.CONFIG_MAPPING[family.model_type](**sizes)
        except Exception as error:
            assert "not a multiple of the number of attention heads" in str(error)
            refused.append(family.model_type)
    assert sorted(refused) == sorted(DIVIDED)


def test_these_families_take_high_ids_for_roles_that_are_not_named() -> None:
    roles = (*ROLES, "cls_token_id")
    for family in FAMILIES.values():
        config = transformers.CONFIG_MAPPING[family.model_type]()
        found = {role: i for role in roles if isinstance(i := getattr(config, role, None), int) and i > 10}
        start = {"marian": 58100, "whisper": 50257}.get(family.model_type)
        assert found.pop("decoder_start_token_id", None) == start
        assert found == DEFAULT_ROLES.get(family.model_type, {}), family.model_type


def test_marian_needs_a_token_that_starts_the_decoder() -> None:
    with pytest.raises(Exception, match="decoder_start_token_id"):
        transformers.MarianConfig(decoder_start_token_id=None)


def test_our_own_model_type_is_none_of_theirs() -> None:
    assert MODEL_TYPE not in transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES


def test_n_grams_of_padding_count_as_text() -> None:
    forbid = transformers.NoRepeatNGramLogitsProcessor(2)
    assert forbid(torch.tensor([[0, 0, 0, 5, 7, 0]]), torch.zeros(1, 8))[0, 0] == float("-inf")


def test_processors_act_in_the_documented_order() -> None:
    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=9))
    asked = {"repetition_penalty": 1.1, "no_repeat_ngram_size": 2, "min_new_tokens": 2, "do_sample": True}
    asked |= {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "eos_token_id": 2, "pad_token_id": 2}
    settings = transformers.GenerationConfig(**asked)
    model._prepare_special_tokens(settings, False, device="cpu")
    made = model._get_logits_processor(settings, input_ids_seq_length=3, device="cpu")
    names = ["RepetitionPenalty", "NoRepeatNGram", "MinNewTokensLength", "Temperature", "TopK", "TopP", "MinP"]
    assert [type(one).__name__.removesuffix("LogitsProcessor").removesuffix("LogitsWarper") for one in made] == names


@torch.no_grad()
def test_big_bird_stays_with_full_attention_after_a_short_batch() -> None:
    sizes = {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1, "max_position_embeddings": 64}
    model = transformers.BigBirdModel(transformers.BigBirdConfig(**SMALL, **sizes)).eval()
    model(torch.zeros(1, 60, dtype=torch.long))
    assert model.attention_type == "block_sparse"
    model(torch.zeros(1, 8, dtype=torch.long))
    model(torch.zeros(1, 60, dtype=torch.long))
    assert model.attention_type == "original_full"


@torch.no_grad()
def test_eager_attention_of_falcon_adds_alibi_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    falcon = transformers.models.falcon.modeling_falcon
    models = {}
    for name in KINDS:
        config = transformers.FalconConfig(**SMALL, alibi=True, multi_query=False, new_decoder_architecture=False)
        models[name] = transformers.FalconForCausalLM._from_config(config, attn_implementation=name).eval()
    for parameter in models["sdpa"].parameters():
        parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)) * 0.2)
    models["eager"].load_state_dict(models["sdpa"].state_dict())
    ids, make = torch.arange(12)[None], falcon.build_alibi_tensor
    eager, sdpa = (models[name](ids).logits for name in KINDS)
    assert (eager - sdpa).norm() > 1e-3 * sdpa.norm()
    monkeypatch.setattr(falcon, "build_alibi_tensor", lambda *args, **given: make(*args, **given) / 2)
    torch.testing.assert_close(models["eager"](ids).logits, sdpa, atol=1e-4, rtol=1e-4)


def test_names_that_vit_mae_is_written_with(tmp_path: Path) -> None:
    sizes = {"decoder_hidden_size": 32, "decoder_num_hidden_layers": 1, "decoder_intermediate_size": 32}
    given: dict[str, Any] = {name: value for name, value in SMALL.items() if name != "vocab_size"}
    config = transformers.ViTMAEConfig(**given, **sizes, decoder_num_attention_heads=4, image_size=16, patch_size=8)
    transformers.ViTMAEForPreTraining(config).save_pretrained(tmp_path)
    from safetensors import safe_open

    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert any(name.startswith("decoder.decoder_encoder.layer") for name in file.keys())  # noqa: SIM118


def test_marian_s_positions_are_stored_by_one_of_its_classes(tmp_path: Path) -> None:
    from safetensors import safe_open

    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "vocab_size": 32}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "pad_token_id": 0}
    config = transformers.MarianConfig(**sizes, max_position_embeddings=16, decoder_start_token_id=0, eos_token_id=1)
    for cls, stored in ((transformers.MarianModel, True), (transformers.MarianMTModel, False)):
        cls(config).save_pretrained(tmp_path / cls.__name__)
        with safe_open(tmp_path / cls.__name__ / "model.safetensors", "pt") as file:
            assert any("embed_positions" in name for name in file.keys()) == stored  # noqa: SIM118


def test_the_llama_tokenizer_drops_one_space_of_those_that_begin_a_text(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    (tmp_path / "text").write_text("the cats ate the mats and more\n" * 50)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"),
        model_prefix=str(tmp_path / "tokenizer"),
        vocab_size=40,
        model_type="bpe",
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    original = sentencepiece.SentencePieceProcessor(str(tmp_path / "tokenizer.model"))
    llama = transformers.LlamaTokenizer.from_pretrained(tmp_path)
    assert llama.tokenize("the cats") == original.encode("the cats", out_type=str)
    for spaces in (1, 2, 3):
        text = " " * spaces + "the cats"
        assert ["▁", *llama.tokenize(text)] == original.encode(text, out_type=str)
    assert original.decode([original.unk_id()]) == " ⁇ "


def test_the_tokenizers_library_s_wordpiece_merges_by_frequency() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    words = ["th"] * 6 + ["ta"] * 5 + ["oh"] * 5 + ["qu"] * 4
    tokenizer = Tokenizer(models.WordPiece())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    for one_merge in (0, 1):
        size = tokenizer.get_vocab_size() + one_merge if one_merge else 0
        tokenizer.train_from_iterator(words, trainers.WordPieceTrainer(vocab_size=size, show_progress=False))
    merged = {token for token in tokenizer.get_vocab() if len(token.removeprefix("##")) > 1}
    assert merged == {"th"}


def test_pycocotools_cannot_load_an_empty_list() -> None:
    coco = pytest.importorskip("pycocotools.coco").COCO()
    coco.dataset = {"images": [{"id": 1}], "annotations": [], "categories": [{"id": 1}]}
    coco.createIndex()
    with pytest.raises(IndexError):
        coco.loadRes([])
