"""What can't speculate is refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

import qkv
from qkv.generation import Generation, generate


def small(name: str = "gpt2", **sizes: Any) -> Any:
    sizes = {"vocab_size": 11, "d_model": 16, "n_layers": 2, "n_heads": 2, **sizes}
    return qkv.build(qkv.preset(name, **sizes), seed=0).eval()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "beams": ({"speculate": "lookup", "num_beams": 2}, r"not for a beam search \(num_beams 2\); set num_beams to 1"),
    "sinks": (
        {"speculate": "lookup", "cache": "sinks"},
        "which the cache 'sinks' can't do; use the cache full or paged",
    ),
    "h2o": ({"speculate": "lookup", "cache": "h2o"}, "which the cache 'h2o' can't do"),
    "a kind that does not exist": (
        {"speculate": "look-up"},
        "there is no speculation 'look-up'; did you mean 'lookup'",
    ),
    "no tokens": ({"speculate": {"kind": "lookup", "num_speculative_tokens": 0}}, "num_speculative_tokens"),
    "n-grams": ({"speculate": {"kind": "lookup", "min_ngram": 5}}, "min_ngram 5 is more than max_ngram 4"),
    "no layers": ({"speculate": "early-exit:0"}, "write early-exit:2 for the first two layers"),
    "all layers": ({"speculate": "early-exit:2"}, "early exit after 2 of 2 decoder layers leaves none.*give 1 to 1"),
    "no draft": ({"speculate": "draft"}, "there is no draft model; give one"),
    "two ways": ({"speculate": "lookup", "draft": small()}, "'lookup', which uses no draft model; leave out"),
    "a vocabulary": (
        {"draft": small(vocab_size=12)},
        "the draft model has a vocabulary of 12 and the model one of 11; give a draft with the model's tokenizer",
    ),
    "a short context": ({"draft": small(max_positions=3)}, "a prompt has 4 tokens, and the draft model's context is 3"),
    "another kind": (
        {"draft": small("transformer-base")},
        "the draft is an encoder–decoder and the model a decoder-only model; give a draft of the same kind",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_a_draft_can_not_do_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(small(), [[1, 2, 3, 4]], max_new_tokens=4, **options)


def test_one_layer_can_not_exit_early() -> None:
    with pytest.raises(ValueError, match="use lookup or a draft model instead"):
        generate(small(n_layers=1), [[1]], speculate="early-exit")


def test_states_that_can_not_remove_tokens_are_named() -> None:
    linear = small().spec.replace(
        {"decoder.blocks.*.attention": {"kind": "linear-attention", "n_heads": 2, "pattern": "causal"}}
    )
    recurrent = qkv.build(qkv.preset("rnnsearch", vocab_size=11, d_e=8, d_h=8, d_s=8))
    for model, bos, message in (
        (qkv.build(linear), None, "layer 0: linear attention keeps only sums .* leave speculate out"),
        (recurrent, 1, "layer 0: a recurrent state can't rewind"),
    ):
        with pytest.raises(ValueError, match=message):
            generate(model, [[1, 2]], bos_id=bos, speculate="lookup")


def test_a_model_of_ones_own_needs_all_positions(tiny: Any) -> None:
    with pytest.raises(ValueError, match="the step of Tiny has no parameter all_positions; leave speculate out"):
        generate(tiny(), [[1, 2]], speculate="lookup")


def test_a_speculation_is_a_value() -> None:
    short, long = Generation(speculate="early-exit:2"), Generation(speculate={"kind": "early-exit", "layers": 2})
    assert short == long == Generation.from_json(short.to_json())
    assert Generation(speculate="lookup").speculate.num_speculative_tokens == 10
