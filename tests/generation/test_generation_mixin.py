"""Generation with the real models: cached decoding against full passes, and beams against scores."""

from __future__ import annotations

import pytest
import torch

from qkv.core.layout import Layout
from qkv.generation import generate, score
from qkv.io.families import preset
from qkv.nn.models.build import build
from qkv.nn.models.transformer import TransformerModel

SIZES = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 64, "vocab_size": 50}
PROMPTS = [[4, 5, 6, 7, 8, 9, 10], [11], [12, 13, 14], [3, 3]]


def made(name: str, **sizes) -> TransformerModel:
    model = build(preset(name, **SIZES, **sizes), dtype=torch.float64, seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # peaked enough that sequences differ
    return model


MODELS = {
    "gpt": {"max_positions": 24},
    "llama": {},
    "transformer": {},
}


@pytest.fixture(params=MODELS)
def model(request) -> TransformerModel:
    return made(request.param, **MODELS[request.param])


def test_greedy_is_what_full_passes_give(model) -> None:
    out = generate(model, PROMPTS, max_new_tokens=10, bos_id=1, eos_id=2)
    model.eval()
    for prompt, new in zip(PROMPTS, out.best, strict=True):
        ids = [1] if model.is_encoder_decoder else list(prompt)
        for token in new:
            target = torch.tensor([ids])
            with torch.inference_mode():
                logits = model(torch.tensor([prompt]), target) if model.is_encoder_decoder else model(target)
            assert int(logits[0, -1].argmax()) == token
            ids.append(token)


@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 4, "num_samples": 4}, {"no_repeat_ngram_size": 2}, {"temperature": 1.0, "num_samples": 2}],
)
def test_in_a_batch_as_alone(model, options) -> None:
    options = {**options, "max_new_tokens": 12, "bos_id": 1, "eos_id": 2}
    seeds = {"seeds": [5, 6, 7, 8]} if "temperature" in options else {}
    together = generate(model, PROMPTS, **options, **seeds)
    for i, prompt in enumerate(PROMPTS):
        alone = generate(model, [prompt], **options, **({"seeds": [5 + i]} if seeds else {}))
        assert alone.sequences[0] == together.sequences[i]
    if not model.is_encoder_decoder:
        ids = torch.full((4, 7), 2)
        lengths = [len(prompt) for prompt in PROMPTS]
        for side in ("left", "right"):
            layout = Layout.from_lengths(lengths, side=side)
            ids[layout.valid] = torch.tensor([token for prompt in PROMPTS for token in prompt])
            assert generate(model, ids, layout=layout, **options, **seeds).sequences == together.sequences


def test_beam_scores_are_the_models_log_probabilities(model) -> None:
    out = generate(
        model,
        PROMPTS,
        bos_id=1,
        eos_id=2,
        num_beams=4,
        num_samples=4,
        max_new_tokens=9,
        length_penalty=0.0,
        scores=True,
    )
    assert out.scores is not None and out.log_probs is not None
    for prompt, sequences, scores, log_probs in zip(PROMPTS, out.sequences, out.scores, out.log_probs, strict=True):
        again = score(model, [prompt] * 4, sequences, bos_id=1)
        assert scores == pytest.approx(again.totals, abs=1e-4)
        for given, expected in zip(log_probs, again.log_probs, strict=True):
            assert given == pytest.approx(expected, abs=1e-4)


def test_the_context_is_never_overrun() -> None:
    model = made("gpt", max_positions=12)
    for options in ({}, {"num_beams": 3}):
        out = generate(model, PROMPTS, max_new_tokens=30, **options)
        assert [len(new) for new in out.best] == [5, 11, 9, 10]
        assert len(out.notes) == 4
