"""Presets: exact parameter counts, by formula and on the meta device, and sizes that can be changed."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest
import torch
from fast_subset import thinned
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.io.families import PRESETS, preset
from qkv.nn.cost.flops import BatchShape, training_flops
from qkv.nn.models.base import ModelSpec
from qkv.nn.models.build import build
from qkv.nn.positions.bias import ALiBi
from qkv.nn.positions.rotary import Rotary

COUNTS = {
    "transformer-base": 63_082_496,
    "transformer-big": 214_245_376,
    "openai-gpt": 116_534_784,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt3-small": 125_226_240,
    "gpt3-medium": 355_871_744,
    "gpt3-large": 760_300_032,
    "gpt3-xl": 1_315_723_264,
    "gpt3-2.7b": 2_651_553_280,
    "gpt3-6.7b": 6_658_404_352,
    "gpt3-13b": 12_853_386_240,
    "gpt3-175b": 174_604_259_328,
    "starcoder": 15_517_456_384,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-160m": 162_322_944,
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-3-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096,
    "qwen2-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
    "smollm3-3b": 3_075_098_624,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "granite-3.1-2b": 2_533_531_648,
    "mixtral-8x7b": 46_702_792_704,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "phi-3-mini": 3_821_079_552,
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "falcon-rw-1b": 1_311_625_216,
    "palm-8b": 8_632_012_800,
    "palm-62b": 62_495_662_080,
    "palm-540b": 540_356_474_880,
    "mpt-7b": 6_649_286_656,
    "mpt-30b": 29_957_200_896,
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
    "modernbert-base": 149_655_232,
    "modernbert-large": 395_881_664,
    "roberta-base": 124_697_433,
    "distilbert-base": 66_985_530,
    "albert-base-v2": 11_221_680,
    "albert-large-v2": 16_795_824,
    "albert-xxlarge-v2": 206_368_944,
    "electra-small": 13_549_057,
    "electra-base": 109_483_009,
    "longformer-base-4096": 148_711_257,
    "longformer-large-4096": 434_653_273,
    "bigbird-roberta-base": 128_112_824,
    "bigbird-roberta-large": 360_228_024,
    "bart-base": 139_470_681,
    "bart-large": 406_341_721,
    "opus-mt": 73_944_309,
    "pegasus-large": 568_796_007,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    **{
        f"{family}-{size}": count
        for size, count in {
            "small": 76_961_152,
            "base": 247_577_856,
            "large": 783_150_080,
            "xl": 2_849_757_184,
            "xxl": 11_135_332_352,
        }.items()
        for family in ("t5-v1_1", "flan-t5")
    },
    "mt5-small": 300_176_768,
    "mt5-base": 582_401_280,
    "mt5-large": 1_229_581_312,
    "mt5-xl": 3_742_619_648,
    "mt5-xxl": 12_921_057_280,
    "vit-base-16": 86_567_656,
    "vit-large-16": 304_326_632,
    "vit-huge-14": 632_045_800,
    "deit-tiny-distilled": 5_910_800,
    "deit-small-distilled": 22_436_432,
    "deit-base-distilled": 87_338_192,
    "vit-mae-base": 111_655_680,
    "vit-mae-large": 329_239_296,
    "vit-mae-huge": 656_613_964,
    "yolos-tiny": 6_488_736,
    "yolos-small": 30_684_768,
    "yolos-base": 127_798_368,
    "whisper-tiny": 37_184_640,  # without the encoder's positions, which are fixed
    "whisper-base": 71_825_920,
    "whisper-small": 240_582_912,
    "whisper-medium": 762_321_920,
    "whisper-large-v3": 1_541_570_560,
    "whisper-large-v3-turbo": 806_958_080,
    "segmenter-tiny": 6_713_388,
    "segmenter-small": 26_033_964,
    "segmenter-base": 102_497_580,
    "rnnsearch": 80_451_000,
    "rnnencdec": 69_585_000,
    "seq2seq": 384_144_000,  # the paper says 384 M
    "gnmt": 280_928_512,
    "deep-att": 209_668_736,
    "luong-global": 220_114_000,
    "luong-local-m": 221_114_000,
    "luong-local-p": 222_115_000,
    "bytenet": 55_654_605,
    "convs2s": 126_078_016,
    "wav2vec2-base": 94_395_552,  # without the vector of masked tokens, which training alone needs
    "wav2vec2-large": 315_460_768,
    "wav2vec2-large-lv60": 315_470_496,
    "hubert-xlarge": 962_537_120,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "opt-1.3b": 1_315_758_080,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "opt-66b": 65_719_701_504,
    "gpt-j-6b": 6_050_882_784,
    "ministral-3-3b": 3_429_006_336,
    "ministral-3-8b": 8_489_553_920,
    "ministral-3-14b": 13_506_073_600,
    "olmo-3-7b": 7_298_011_136,
    "olmo-3-32b": 32_233_522_176,
    "roberta-large": 355_412_057,
    "xlm-roberta-base": 278_295_186,
    "xlm-roberta-large": 560_142_482,
    "camembert-base": 110_655_493,
    "camembert-large": 336_695_557,
    "mpnet-base": 109_518_527,
    "nomic-bert": 137_354_304,
    "nomic-embed-text": 136_731_648,
    "esm2-8m": 7_512_353,
    "esm2-35m": 33_501_153,
    "esm2-150m": 148_139_553,
    "esm2-650m": 651_042_593,
    "esm2-3b": 2_839_004_193,
    "esm2-15b": 15_129_098_273,
    "mbart-large-cc25": 611_101_867,
    "mbart-large-50": 611_129_542,
    "m2m100-418m": 483_905_536,
    "m2m100-1.2b": 1_239_470_080,
    "nllb-200-distilled-600m": 615_073_792,
    "nllb-200-1.3b": 1_370_638_336,
    "nllb-200-3.3b": 3_344_863_232,
    "umt5-small": 306_601_984,
    "umt5-base": 592_043_520,
    "umt5-xl": 3_768_356_864,
    "umt5-xxl": 12_972_531_712,
    "clip": 151_277_313,  # these as transformers' CLIPModel
    "clip-vit-base-32": 151_277_313,
    "clip-vit-base-16": 149_620_737,
    "clip-vit-large-14": 427_616_513,
    "clip-vit-large-14-336": 427_944_193,
    "siglip-base-16": 203_155_970,  # these as transformers' SiglipModel
    "siglip-large-16-256": 652_150_786,
    "siglip-so400m-14-384": 877_960_498,
    "siglip2-base-16": 375_187_970,
    "siglip2-so400m-14-384": 1_136_008_498,
}


@pytest.mark.parametrize("name", thinned(COUNTS, 2))
def test_parameters_by_formula_and_on_the_meta_device(name: str) -> None:
    spec = preset(name)
    assert spec.n_parameters == COUNTS[name]
    assert sum(p.numel() for p in build(spec, device="meta").parameters()) == COUNTS[name]


# In millions, as printed: Brown et al. (2020), table D.1; Chowdhery et al. (2022), table 1; Raffel et al. (2020), §3.7,
# whose 770 M is 4% above the released model; Xue et al. (2021), table 1.
PRINTED = {
    "gpt3-small": (125, 0.005),
    "gpt3-medium": (356, 0.001),
    "gpt3-large": (760, 0.001),
    "gpt3-xl": (1320, 0.004),
    "gpt3-2.7b": (2650, 0.001),
    "gpt3-6.7b": (6660, 0.001),
    "gpt3-13b": (12850, 0.001),
    "gpt3-175b": (174600, 0.001),
    "palm-8b": (8630, 0.001),
    "palm-62b": (62500, 0.001),
    "palm-540b": (540350, 0.0001),
    "t5-small": (60, 0.01),
    "t5-base": (220, 0.015),
    "t5-large": (770, 0.045),
    "t5-3b": (2800, 0.02),
    "t5-11b": (11000, 0.03),
    "mt5-small": (300, 0.01),
    "mt5-base": (580, 0.01),
    "mt5-large": (1200, 0.03),
    "mt5-xl": (3700, 0.02),
    "mt5-xxl": (13000, 0.01),
}


@pytest.mark.parametrize("name", PRINTED)
def test_parameters_are_the_papers(name: str) -> None:
    millions, rounding = PRINTED[name]
    assert preset(name).n_parameters / 1e6 == pytest.approx(millions, rel=rounding)


def test_gpt_3_and_palm_are_as_deep_and_wide_as_their_tables_say() -> None:
    small, large = preset("gpt3-small"), preset("gpt3-175b")
    for spec, layers, width, heads in ((small, 12, 768, 12), (large, 96, 12288, 96)):
        (_, stack), attention = spec.stacks()[0], spec.stacks()[0][1].blocks[0].attention
        assert (len(stack.blocks), spec.d_model, attention.n_heads, spec.max_positions) == (layers, width, heads, 2048)
    block = preset("palm-540b").decoder.blocks[0]  # type: ignore[union-attr]
    assert (block.attention.n_heads, block.attention.n_kv_heads, block.attention.d_head) == (48, 1, 256)  # type: ignore[attr-defined]
    assert (block.placement.kind, block.feedforward.d_ff, block.feedforward.gated) == ("parallel", 73728, True)  # type: ignore[attr-defined]


def test_training_gpt_3_takes_the_compute_of_its_table() -> None:
    """Brown et al. (2020), table D.1: 3.14e23 FLOPs for 300 B tokens, by 6 N D; attention is counted here too."""
    spec, tokens = preset("gpt3-175b"), 300_000_000_000
    flops = training_flops(spec, BatchShape(1, 2048)) / 2048 * tokens
    assert 6 * spec.n_parameters * tokens == pytest.approx(3.14e23, rel=0.01)
    assert flops == pytest.approx(3.14e23, rel=0.02)


def test_a_token_uses_few_of_many_experts() -> None:
    used = {name: COUNTS[name] - preset(name).cost().idle for name in ("mixtral-8x7b", "qwen3-30b-a3b")}
    assert used == {"mixtral-8x7b": 12_879_925_248, "qwen3-30b-a3b": 3_353_032_704}


def test_every_published_model_is_counted() -> None:
    assert COUNTS.keys() == PRESETS.keys() - {
        *("transformer", "gpt", "llama", "captioner", "joint"),
        *("speech-encoder", "speech-transformer"),
    }


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_values(name: str) -> None:
    spec = preset(name)
    assert spec == preset(name) and ModelSpec.from_json(spec.to_json()) == spec
    if any(stack.order for _, stack in spec.stacks()):  # layers that share one block
        assert preset(name, n_layers=1).n_parameters == spec.n_parameters
    else:
        assert spec.n_layers == 1 or preset(name, n_layers=1).n_parameters < spec.n_parameters


def test_the_papers_details() -> None:
    base, gpt2, llama = preset("transformer-base"), preset("gpt2"), preset("llama-2-7b")
    assert (
        base.encoder is not None and base.decoder is not None and gpt2.decoder is not None and llama.decoder is not None
    )
    assert {b.placement.kind for b in base.encoder.blocks} == {"post"} and base.encoder.embedding.scale == "sqrt"
    assert base.decoder.position.kind == "sinusoidal" and base.decoder.norm.kind == "none"
    assert gpt2.decoder.blocks[0].feedforward.to_dict()["activation"] == "gelu-tanh"
    assert gpt2.max_positions == 1024 and gpt2.decoder.norm.kind == "layernorm"
    assert llama.decoder.blocks[0].norm.kind == "rmsnorm" and llama.decoder.position == Rotary()
    assert llama.head is not None and not llama.head.to_dict()["tied"]
    assert preset("transformer-big").encoder.blocks[0].dropout == 0.3  # type: ignore[union-attr]


@pytest.mark.parametrize("position", ["alibi", {"kind": "alibi"}, ALiBi()])
def test_positions_in_any_form(position: object) -> None:
    spec = preset("gpt2", n_layers=1, position=position)
    assert spec.decoder is not None and spec.decoder.position == ALiBi()


def test_gpt2_with_alibi_and_fewer_key_value_heads_has_fewer_parameters() -> None:
    spec = preset("gpt2").replace({"decoder.position": ALiBi(), "decoder.blocks.*.attention.n_kv_heads": 4})
    saved = 1024 * 768 + 12 * 2 * (768 * 512 + 512)  # the position table, and two thirds of keys and values
    assert spec.n_parameters == COUNTS["gpt2"] - saved


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: preset("gpt-2"), "there is no preset 'gpt-2'; did you mean 'gpt2'"),
        (lambda: preset("gpt2", hidden_act="relu"), "preset 'gpt2' has no size 'hidden_act'; it is activation here"),
        (lambda: preset("gpt2", n_layer=3, n_layers=2), "'n_layer' is n_layers here, and both are given"),
        (lambda: preset("gpt2", position="alibbi"), "there is no position 'alibbi'; did you mean 'alibi'"),
        (lambda: preset("gpt2", n_heads=7), "n_heads=7 does not divide d_model=768; allowed: 1, 2, 3"),
        (lambda: preset("llama", dropout=-1), "dropout: input should be greater than or equal to 0, not -1"),
        (
            lambda: preset("bloom-560m", max_positions=64),
            "has no size 'max_positions'; it is a field of the model: set model.replace.max_positions=… in a recipe",
        ),
        (lambda: preset("gpt2", n_layers=0), "n_layers must be a whole number of at least 1, not 0"),
    ],
)
def test_wrong_names_and_sizes(call: object, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        call()  # type: ignore[operator]
    assert "\n" not in str(caught.value), "one sentence, for the command line to print"


@pytest.mark.parametrize("name", PRESETS)
def test_every_model_can_be_pickled(name: str) -> None:
    """As `torch.save(model)` and worker processes do."""
    known = inspect.signature(PRESETS[name][0]).parameters
    small = {"vocab_size": 40, "d_model": 32, "n_heads": 4, "n_kv_heads": 2, "d_head": 8, "n_layers": 2, "d_ff": 24}
    small |= {"max_positions": 64, "n_experts": 4, "top_k": 2, "d_e": 6, "d_h": 8, "d_s": 8}
    model = build(preset(name, **{size: value for size, value in small.items() if size in known}), device="meta")
    again = pickle.loads(pickle.dumps(model))
    assert again.spec == model.spec
    shapes = [{path: value.shape for path, value in each.named_parameters()} for each in (model, again)]
    assert shapes[0] == shapes[1]


def test_a_saved_model_gives_the_same_numbers(tmp_path: Path) -> None:
    model, ids = build(preset("gpt2", vocab_size=40, d_model=32, n_heads=4, n_layers=2)).eval(), torch.arange(6)[None]
    cache = model.start(1)
    model.step(ids, cache)
    torch.save(model, tmp_path / "model.pt")
    again = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(again(ids), model(ids))
    assert again.head.weight is again.decoder.embedding.weight


WHOLE = sorted(
    (name, size, str(about.annotation))
    for name in PRESETS
    for size, about in inspect.signature(PRESETS[name][0]).parameters.items()
    if about.annotation in ("int", "int | None", "float")
)


@settings(max_examples=300)
@given(st.sampled_from(WHOLE), st.sampled_from([0, -1, -4, True, 2.5, -1.0, float("nan")]))
def test_no_size_of_nothing_crashes(about: tuple[str, str, str], given_size: float) -> None:
    """What is below 1, or not whole, is refused in a sentence; if 0 is a number of things, it builds."""
    name, size, annotation = about
    small = {"d_model": 32, "n_heads": 4, "n_kv_heads": 2, "d_head": 8, "n_layers": 2, "vocab_size": 40}
    known = inspect.signature(PRESETS[name][0]).parameters
    sizes = {key: value for key, value in small.items() if key in known} | {size: given_size}
    try:
        build(preset(name, **sizes), device="meta")
    except ValueError as error:
        assert str(error)
    else:
        assert annotation == "float" or (given_size == 0 and size in ("token_types", "labels", "before", "after"))


def test_what_a_size_may_be_is_said() -> None:
    with pytest.raises(ValueError, match="preset 'gpt2': n_heads must be a whole number of at least 1, not 0"):
        preset("gpt2", n_heads=0)
    with pytest.raises(
        ValueError, match="preset 'bert-base': token_types must be a whole number of at least 0, not -1"
    ):
        preset("bert-base", token_types=-1)
    with pytest.raises(ValueError, match="query_width is a number above 0"):
        preset("gemma-2-2b", query_width=0)


# Σ|w| of all parameters at seed 0 and the loss per token, as they were before positions, placements and the order of layers
# were opened (commit fbf362b).
NUMBERS: dict[str, tuple[dict[str, int], float, float]] = {
    "transformer": ({"d_ff": 48}, 6058.06311, 3.658514),
    "gpt2": ({"max_positions": 32}, 519.68132, 3.698914),
    "pythia-160m": ({"d_ff": 48, "max_positions": 32}, 411.119537, 4.142807),
    "falcon-rw-1b": ({}, 585.838503, 3.703417),
    "llama": ({"d_ff": 48}, 501.589458, 4.14092),
    "gemma-2-2b": ({"d_ff": 48, "n_kv_heads": 2, "d_head": 8, "windows": 8}, 278.304941, 4.041891),
    "bert-base": ({"d_ff": 48, "max_positions": 32}, 501.353526, 4.118572),
    "t5-small": ({"d_ff": 48}, 20723.625204, 1.628602),
}


@pytest.mark.parametrize("name", NUMBERS)
@torch.no_grad()
def test_initial_weights_and_losses_stay_what_they_were(name: str) -> None:
    sizes, weights, loss = NUMBERS[name]
    spec = preset(name, vocab_size=61, d_model=32, n_layers=2, n_heads=4, **sizes)
    model, ids = build(spec).eval(), torch.arange(18).view(2, 9) * 7 % 61
    inputs = (ids, ids) if spec.is_encoder_decoder else (ids,)
    assert sum(float(p.double().abs().sum()) for p in model.parameters()) == pytest.approx(weights, rel=1e-7)
    assert float(model(*inputs, labels=ids).loss) / 18 == pytest.approx(loss, rel=1e-5)
