"""`generate` as a user calls it: inputs, limits, errors, and the tensor that `model.generate` returns."""

from __future__ import annotations

import pytest
import torch

from qkv.core.layout import Layout
from qkv.generation import Generation, GenerationMixin, generate


@pytest.mark.parametrize(
    ("ids", "options", "said"),
    [
        ([[1], []], {}, "prompt 1 is empty and there is no bos_id"),
        ([[1], [2] * 40], {}, "prompt 1 has length 40.*context of 40; shorten it to 39"),
        ([[1] * 60], {}, "prompt 0 has length 60"),
        ([[1, 23]], {}, "prompt 0 holds token 23; the model's vocabulary is 0 … 22"),
        ([], {}, "no prompts"),
        ([1, 2, 3], {}, "put a single prompt into a list"),
        (torch.tensor([1, 2, 3]), {}, r"\(batch, length\)"),
        (torch.rand(1, 3), {}, "integers"),
        ([[1]], {"num_beams": 0}, "num_beams"),
        ([[1]], {"max_new_token": 3}, "did you mean 'max_new_tokens'"),
        ([[1]], {"eos_id": 23}, "eos_id"),
        ([[1]], {"bos_id": -1}, "bos_id"),
        ([[1]], {"num_beams": 2, "stream": print}, "stream"),
        ([[1]], {"do_sample": True, "seeds": [1, 2]}, "2 seeds for 1 prompts"),
        ([[1]], {"target": [[1]]}, "decoder-only"),
        ([[1]], {"attention_mask": torch.ones(1, 1)}, "list of rows needs no layout"),
        (torch.tensor([[1, 2]]), {"attention_mask": torch.ones(1, 3)}, "layout"),
        (torch.tensor([[1, 2]]), {"attention_mask": torch.ones(1, 2), "layout": Layout.full(2)}, "not both"),
        (torch.tensor([[1, 2, 3]]), {"layout": Layout.packed([[1, 2]])}, "packed"),
    ],
)
def test_bad_input_gets_a_sentence(tiny, ids, options, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        generate(tiny(), ids, **options)
    assert "\n" not in str(error.value)


def test_an_encoder_decoder_needs_a_start(tiny) -> None:
    model = tiny(encoder_decoder=True)
    with pytest.raises(ValueError, match="bos_id"):
        generate(model, [[3, 4]])
    with pytest.raises(ValueError, match=r"sources and targets differ in number \(2 and 1\)"):
        generate(model, [[3], [4]], target=[[1]])


def test_an_empty_prompt_starts_from_bos(tiny) -> None:
    model = tiny()
    expected = generate(model, [[1], [5, 6]], max_new_tokens=6).best
    assert generate(model, [[], [5, 6]], bos_id=1, max_new_tokens=6).best == expected
    assert generate(model, [[]], bos_id=1, max_new_tokens=6).best == expected[:1]
    assert generate(model, torch.empty(1, 0, dtype=torch.long), bos_id=1, max_new_tokens=6).best == expected[:1]


def test_bos_is_not_put_before_a_prompt(tiny) -> None:
    model = tiny()
    assert generate(model, [[5, 6]], bos_id=1, max_new_tokens=6) == generate(model, [[5, 6]], max_new_tokens=6)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"temperature": 1.0, "seed": 0}])
def test_the_context_ends_each_row_by_itself_with_a_note(tiny, options) -> None:
    model = tiny(context=12)
    prompts = [[3] * 11, [4] * 5, [5, 6]]
    out = generate(model, prompts, max_new_tokens=9, seeds=None, **options)
    assert [len(tokens) for tokens in out.best] == [1, 7, 9]
    assert [note.split(":")[0] for note in out.notes] == ["prompt 0", "prompt 1"]
    assert "after 7 new tokens" in out.notes[1]
    if "seed" not in options:  # a prompt's number is part of its seed
        assert out.best == [generate(model, [p], max_new_tokens=9, **options).best[0] for p in prompts]


def test_settings_and_options_go_together(table) -> None:
    model = table(20)
    settings = Generation(num_beams=3, max_new_tokens=5)
    assert generate(model, [[1]], settings=settings) == generate(model, [[1]], num_beams=3, max_new_tokens=5)
    assert len(generate(model, [[1]], settings=settings, max_new_tokens=7).best[0]) == 7


def test_an_encoder_decoder_continues_a_target(tiny) -> None:
    model = tiny(encoder_decoder=True)
    sources = [[4, 5, 6], [7, 8]]
    whole = generate(model, sources, bos_id=1, max_new_tokens=8)
    assert whole.prompts == ((1,), (1,))
    targets = [[1, *whole.best[0][:3]], [1, *whole.best[1][:1]]]
    rest = generate(model, sources, target=targets, max_new_tokens=5)
    assert rest.best[0] == whole.best[0][3:]
    assert rest.best[1] == whole.best[1][1:6]


def test_roles_and_positions_of_a_layout_are_kept() -> None:
    from qkv.generation.prompts import prepare

    class Facts:
        is_encoder_decoder, vocab_size, max_positions, device = False, 50, None, torch.device("cpu")

    layout = Layout(
        torch.tensor([[7, 8, -1, 9, -1], [0, 1, 2, 3, 4]]), roles=torch.tensor([[4, 4, 0, 0, 0], [4, 0, 0, 0, 0]])
    )
    ids = torch.tensor([[11, 12, 0, 13, 0], [21, 22, 23, 24, 25]])
    out = prepare(
        Facts(),
        ids,
        layout=layout,
        attention_mask=None,
        target=None,
        target_layout=None,
        bos_id=None,
        max_new_tokens=4,
    )
    assert out.rows == ((11, 12, 13), (21, 22, 23, 24, 25))
    assert out.ids.tolist() == [[0, 0, 11, 12, 13], [21, 22, 23, 24, 25]]
    assert out.layout.positions[..., 0].tolist() == [[-1, -1, 7, 8, 9], [0, 1, 2, 3, 4]]
    assert out.layout.roles is not None
    assert out.layout.roles.tolist() == [[0, 0, 4, 4, 0], [4, 0, 0, 0, 0]]
    assert out.layout.padding == "left" and out.layout.sequential
    assert out.history().tolist()[0] == [-1, -1, 11, 12, 13]


@pytest.fixture
def own(tiny) -> type:
    return type("Own", (GenerationMixin, tiny), {})


def test_model_generate_gives_prompt_and_new_tokens(own) -> None:
    model = own()
    ids = torch.tensor([[4, 5, 6], [7, 8, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    out = model.generate(ids, attention_mask=mask, max_new_tokens=4, pad_id=22)
    new = generate(model, [[4, 5, 6], [7, 8]], max_new_tokens=4).best
    assert out.tolist() == [[4, 5, 6, *new[0]], [22, 7, 8, *new[1]]]
    assert model.generate(ids[:1], num_beams=2, num_samples=2, max_new_tokens=4).shape == (2, 7)


def test_model_generate_pads_on_the_right(own, fixed) -> None:
    table = type("Own", (GenerationMixin, type(fixed([[1.0]]))), {})
    model = table(torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]]).log())
    assert model.generate(torch.tensor([[2], [1]]), eos_id=0).tolist() == [[2, 1, 0], [1, 0, 0]]
    wide = model.generate(torch.tensor([[9, 2], [9, 1]]), attention_mask=torch.tensor([[0, 1], [0, 1]]), eos_id=0)
    assert wide.tolist() == [[0, 2, 1, 0], [0, 1, 0, 0]]


def test_model_generate_of_an_encoder_decoder_begins_with_bos(own) -> None:
    model = own(encoder_decoder=True)
    out = model.generate(torch.tensor([[4, 5, 6]]), bos_id=1, max_new_tokens=4)
    assert out.tolist() == [[1, *generate(model, [[4, 5, 6]], bos_id=1, max_new_tokens=4).best[0]]]
