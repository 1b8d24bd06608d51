"""Joint sequences: media stand in the places of their tokens, whatever the batch, the packing and the cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import qkv
from qkv.core.layout import Layout, Role
from qkv.core.ranks import BatchSplit, splitting
from qkv.nn.activations import record
from qkv.nn.cost.plan.layout import RankLayout, check_model
from qkv.nn.cost.plan.work import work
from qkv.nn.layers.norm import LayerNorm, RMSNorm
from qkv.nn.layers.patches import GridPosition, Patches, Projector, States
from qkv.nn.models.joint import Joint, JointEmbedding, Medium, Tower, with_media
from qkv.nn.models.transformer import Transformer, TransformerModel
from qkv.nn.patterns.basic import causal, media
from qkv.runs.export.support import check

IMAGE, SOUND = 9, 8  # placeholder tokens
SIZES: dict[str, Any] = {"d_model": 24, "n_layers": 2, "n_heads": 2, "d_ff": 32}
ROWS = [[1, 2, *[IMAGE] * 4, 3, *[IMAGE] * 4, 4], [5, *[IMAGE] * 4, 6], [7, 11, *[SOUND] * 3, 12]]
TEXT = [[1, 2, 3], [4, 5]]


def tower(projector: Projector, d_model: int = 16, **deep: Any) -> Tower:
    vit = qkv.preset("vit-base-16", image=(8, 8), patch=(2, 2), **{**SIZES, "d_model": d_model}, head=False)
    return Tower(stack=vit.encoder, width=d_model, projector=projector, **deep)


def reader(name: str, bidirectional: bool = True) -> Transformer:
    """A decoder that reads pictures of 4 tokens through a ViT, and sounds of 3 as patches of a spectrogram. A Llama also
    reads the states after the first layer of the ViT."""
    deep = {"layers": (0,), "deep": Projector(norm=LayerNorm(), norm_last=True, shuffle=2)} if name == "llama" else {}
    patches = Patches(image=(4, 6), patch=(4, 2), channels=1, before=0)
    return with_media(
        qkv.preset(name, vocab_size=31, max_positions=64, **SIZES),
        Medium(name="image", token=IMAGE, reads=tower(Projector(shuffle=2, hidden=20), **deep)),
        Medium(name="sound", token=SOUND, reads=patches, position=GridPosition()),
        bidirectional=bidirectional,
    )


@pytest.fixture(scope="module", params=["gpt2", "llama", "gpt2-causal"])
def model(request: pytest.FixtureRequest) -> TransformerModel:
    name, _, causally = request.param.partition("-")
    return loud(qkv.build(reader(name, not causally), dtype=torch.float64).eval())


@torch.no_grad()
def loud(built: TransformerModel) -> TransformerModel:
    """Weights so large that every token's state depends on every other's."""
    for parameter in built.parameters():
        parameter.mul_(6)
    return built


@pytest.fixture(scope="module")
def values() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randn(3, 3, 8, 8, generator=generator, dtype=torch.float64)
    return {"image": pictures, "sound": torch.randn(1, 1, 4, 6, generator=generator, dtype=torch.float64)}


def of_row(values: Mapping[str, Tensor], row: int) -> dict[str, Tensor]:
    return [{"image": values["image"][:2]}, {"image": values["image"][2:]}, {"sound": values["sound"]}][row]


def batch(side: Any) -> tuple[Tensor, Layout]:
    layout = Layout.from_lengths([len(row) for row in ROWS], side=side)
    ids = torch.zeros(layout.shape, dtype=torch.int64)
    ids[layout.valid] = torch.tensor([*chain(*ROWS)])
    return ids, layout


@torch.no_grad()
def alone(model: TransformerModel, values: Mapping[str, Tensor]) -> list[Tensor]:
    return [model(torch.tensor([row]), media=of_row(values, i))[0] for i, row in enumerate(ROWS)]


def test_the_pages_python_runs() -> None:
    page = Path(__file__).parents[3] / "docs" / "modalities.md"
    section = page.read_text(encoding="utf-8").split("## Joint sequences")[1].split("\n## ")[0]
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        exec(compile(block, str(page), "exec"), names)
    assert isinstance(names["model"].spec.decoder.embedding, Joint)


def test_gpt2_that_reads_pictures_is_a_value() -> None:
    spec = reader("gpt2")
    assert isinstance(spec.decoder and spec.decoder.embedding, Joint)
    assert Transformer.from_json(spec.to_json()) == spec and hash(spec)
    assert spec.replace({"decoder.embedding.media.0.token": 3}).decoder.embedding.media[0].token == 3


@torch.no_grad()
def test_vectors_of_media_take_the_places_of_their_tokens(model: TransformerModel, values: dict[str, Tensor]) -> None:
    embedding = model.decoder.embedding
    assert isinstance(embedding, JointEmbedding)
    ids = torch.tensor([ROWS[0]])
    fed, layout = embedding.lay_media(ids, Layout.full(ids.shape[1]), of_row(values, 0))
    made = embedding(fed, None)
    x = (made[0] if isinstance(made, tuple) else made)[0]
    medium = embedding.media["image"]
    seen = medium.reader.stack(*medium.reader.stack.embedding.lay(values["image"][:2], None))[:, 1:]
    torch.testing.assert_close(
        x[[2, 3, 4, 5, 7, 8, 9, 10]], medium.reader.projector(seen, embedding_grid()).flatten(0, 1)
    )
    torch.testing.assert_close(x[[0, 1, 6, 11]], embedding.weight[[1, 2, 3, 4]])
    assert layout.media is not None and layout.media.tolist() == [[0, 0, 1, 1, 1, 1, 0, 2, 2, 2, 2, 0]]
    assert ((layout.roles & Role.MEDIUM) != 0).tolist() == [[number > 0 for number in layout.media[0].tolist()]]


def embedding_grid() -> Any:
    return Patches(image=(8, 8), patch=(2, 2)).grid


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_ranks_with_other_rows_and_media_drop_what_one_rank_drops(values: dict[str, Tensor], side: str) -> None:
    """Rank 0 has two pictures and no sound, rank 1 a picture and a sound."""
    read, blocks = "decoder.embedding.media", ("decoder.blocks.*", "decoder.embedding.media.0.reads.stack.blocks.*")
    dropped = ["decoder.embedding", f"{read}.0.reads.stack.embedding", f"{read}.1.reads", *blocks]
    dropped += [f"{block}.{part}" for block in blocks for part in ("attention", "feedforward")]
    spec = reader("gpt2").replace({f"{part}.dropout": 0.3 for part in dropped})
    model = loud(qkv.build(spec, dtype=torch.float64).train())
    ids, layout = batch(side)
    with splitting(BatchSplit(seed=5)):
        whole = model(ids, layout=layout, media=values)
    parts = [
        (ids[:1], {"image": values["image"][:2]}),
        (ids[1:], {"image": values["image"][2:], "sound": values["sound"]}),
    ]
    for first_row, (own, media_of_rank) in zip((0, 1), parts, strict=True):
        with splitting(BatchSplit(seed=5, first_row=first_row)):
            rows = torch.arange(first_row, first_row + len(own))
            out = model(own, layout=layout.select(rows), media=media_of_rank)
        valid = layout.valid[rows]
        torch.testing.assert_close(out[valid], whole[rows][valid], rtol=1e-9, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_equals_alone(model: TransformerModel, values: dict[str, Tensor], side: str) -> None:
    ids, layout = batch(side)
    out = model(ids, layout=layout, media=values)
    for row, each in enumerate(alone(model, values)):
        torch.testing.assert_close(out[row][layout.valid[row]], each, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_packed_equals_separate(model: TransformerModel, values: dict[str, Tensor]) -> None:
    ids, layout = torch.tensor([[*chain(*ROWS)]]), Layout.packed([[len(row) for row in ROWS]])
    out = model(ids, layout=layout, media={"image": list(values["image"]), "sound": values["sound"]})
    torch.testing.assert_close(out[0], torch.cat(alone(model, values)), rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_cached_equals_one_pass(model: TransformerModel, values: dict[str, Tensor]) -> None:
    ids, layout = batch("left")
    cache, following = model.start(len(ROWS)), [[13], [14], [15]]
    first = model.step(ids, cache, layout, media=values)
    second = model.step(torch.tensor(following), cache)
    for row, each in enumerate(alone(model, values)):
        torch.testing.assert_close(first[row], each[-1], rtol=1e-9, atol=1e-9)
        whole = model(torch.tensor([[*ROWS[row], *following[row]]]), media=of_row(values, row))
        torch.testing.assert_close(second[row], whole[0, -1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 3},
        {"num_samples": 2, "temperature": 1.0, "seeds": [1, 2, 3]},
        {"speculate": "lookup"},
        {"cache": "int8"},
    ],
    ids=lambda options: next(iter(options), "greedy"),
)
def test_prompts_with_unequal_numbers_of_pictures_are_continued_as_alone(
    values: dict[str, Tensor], options: dict[str, Any]
) -> None:
    model = loud(qkv.build(reader("gpt2")).eval())
    floats = {name: value.float() for name, value in values.items()}
    together = model.generate(ROWS, media=floats, max_new_tokens=4, **options)
    n = options.get("num_samples", 1)
    for row, prompt in enumerate(ROWS):
        own = {**options, "seeds": [row + 1]} if n > 1 else options
        apart = model.generate([prompt], media=of_row(floats, row), max_new_tokens=4, **own)
        assert apart[:, -4:].tolist() == together[row * n : (row + 1) * n, -4:].tolist()
    if not options:
        ids = list(ROWS[0])
        for _ in range(4):
            ids.append(int(model(torch.tensor([ids]), media=of_row(floats, 0))[0, -1].argmax()))
        assert ids[-4:] == together[0, -4:].tolist()


@torch.no_grad()
def test_pictures_of_several_sizes_are_read_as_each_alone() -> None:
    patches = Patches(image=(8, 8), patch=(4, 4), before=0)
    spec = qkv.preset("gpt2", vocab_size=31, max_positions=64, **SIZES)
    model = qkv.build(with_media(spec, Medium(name="image", token=IMAGE, reads=patches))).eval()
    wide, square = torch.randn(3, 4, 12), torch.randn(3, 8, 8)
    ids = torch.tensor([[1, *[IMAGE] * 4, 2, *[IMAGE] * 3, 3]])
    out = model.hidden(ids, media={"image": [square, wide]})
    x = model.decoder.embedding.weight[ids[0]].clone()
    x[1:5], x[6:9] = (
        model.decoder.embedding.media["image"].reader(*_laid(model, p)).squeeze(0) for p in (square, wide)
    )
    layout = Layout.full(ids.shape[1])
    states = qkv.build(spec.replace({"decoder.embedding": States(), "head": None})).eval()
    own = {name: value for name, value in model.state_dict().items() if name in states.state_dict()}
    states.load_state_dict(own)
    assert len(own) == len(states.state_dict())
    torch.testing.assert_close(out, states.decoder(x[None], layout))


def _laid(model: TransformerModel, picture: Tensor) -> tuple[Tensor, None]:
    return model.decoder.embedding.media["image"].reader.lay(picture[None], None)[0], None


def test_without_media_a_joint_model_is_the_model_of_its_tokens(model: TransformerModel) -> None:
    plain = qkv.build(model.spec.replace({"decoder.embedding": qkv.Embedding()}), dtype=torch.float64).eval()
    plain.load_state_dict({name: model.state_dict()[name] for name in plain.state_dict()})
    ids = torch.tensor([[1, 2, 3, 4]])
    assert torch.equal(plain(ids), model(ids))


def test_all_parameters_have_gradients_and_are_counted(model: TransformerModel, values: dict[str, Tensor]) -> None:
    ids, layout = batch("right")
    model.zero_grad()
    model(ids, layout=layout, media=values, labels=ids.masked_fill(~layout.valid, -100)).loss.backward()
    embedding = {name: p for name, p in model.named_parameters() if ".media." in name}
    assert embedding and all(
        p.grad is not None and p.grad.abs().sum() > 0 for n, p in embedding.items() if "k.bias" not in n
    )
    assert model.spec.n_parameters == sum(p.numel() for p in model.parameters())


def test_flops_are_those_of_a_sequence_with_one_medium_of_each_kind(values: dict[str, Tensor]) -> None:
    model = qkv.build(reader("llama", bidirectional=False), dtype=torch.float64)
    ids = torch.tensor([[1, *[IMAGE] * 4, 2, *[SOUND] * 3, 3]])
    plain = qkv.build(model.spec.replace({"decoder.embedding": qkv.Embedding()}), dtype=torch.float64)
    with FlopCounterMode(display=False) as joint:
        model(ids, media={"image": values["image"][:1], "sound": values["sound"]})
    with FlopCounterMode(display=False) as text:
        plain(ids)
    media_flops = model.spec.cost(ids.shape[1]).flops - plain.spec.cost(ids.shape[1]).flops
    norms = 5 * LayerNorm().cost(16, 17).flops + LayerNorm().cost(4 * 16, 4).flops
    attention = 2 * 4 * 17**2 * 16  # which PyTorch does not count, as the norms
    assert media_flops == joint.get_total_flops() - text.get_total_flops() + attention + norms


@pytest.mark.parametrize(
    ("projector", "tokens"),
    [
        (Projector(), 16),
        (Projector(pool=2, norm=RMSNorm(), bias=False), 4),
        (Projector(shuffle=4), 1),
        (Projector(pool=2, shuffle=2, hidden=12, activation="gelu-tanh"), 1),
    ],
)
@torch.no_grad()
def test_projectors(projector: Projector, tokens: int) -> None:
    spec = tower(projector)
    assert spec.n_tokens == tokens
    module = (
        qkv.build(
            with_media(
                qkv.preset("gpt2", vocab_size=9, max_positions=32, **SIZES), Medium(name="image", token=1, reads=spec)
            )
        )
        .decoder.embedding.media["image"]
        .reader
    )
    laid, layout = module.lay(torch.randn(2, 3, 8, 8), None)
    assert module(laid, None).shape == (2, tokens, SIZES["d_model"]) and layout.shape[1] == tokens
    assert spec.cost(SIZES["d_model"], 0).parameters == sum(p.numel() for p in module.parameters())


@pytest.mark.slow
def test_pixel_shuffle_is_that_of_transformers() -> None:
    from transformers.models.idefics3.modeling_idefics3 import Idefics3Connector

    states, grid = torch.randn(2, 16, 6), Patches(image=(8, 8), patch=(2, 2), before=0).grid
    ours = Projector(shuffle=2).cost(6, 24).parameters and Tower(
        stack=qkv.preset(
            "vit-base-16", image=(8, 8), patch=(2, 2), before=0, **{**SIZES, "d_model": 6}, head=False
        ).encoder,
        width=6,
        projector=Projector(shuffle=2, bias=False),
    ).module(0, 24)
    with torch.no_grad():
        ours.projector.out.weight.copy_(torch.eye(24))
    theirs = Idefics3Connector.pixel_shuffle(None, states, 2)
    torch.testing.assert_close(ours.projector(states, grid), theirs)


def test_media_and_placeholders_that_differ_are_one_sentence(
    model: TransformerModel, values: dict[str, Tensor]
) -> None:
    ids, pictures = torch.tensor([ROWS[0]]), values["image"]
    for given, said in (
        (None, r"hold 8 placeholder tokens of the medium image \(id 9, in row 0\), and no image was given"),
        ({"image": pictures[:1]}, r"1 input of the medium image \(4 vectors each\) fill 4 places, and the ids hold 8"),
        ({"image": pictures}, r"3 inputs of the medium image \(4 vectors each\) fill 12 places, and the ids hold 8"),
        ({"video": pictures}, "reads no medium 'video'; there is: image, sound"),
        ({"image": pictures[:2, :1]}, r"images are \(batch, 3 channels, height, width\), not \(2, 1, 8, 8\)"),
        ({"image": pictures[:2, :, :, :6]}, "4 × 3 patches of the vision tower can't be joined 2 × 2"),
    ):
        with pytest.raises(ValueError, match=said):
            model(ids, media=given)
    with pytest.raises(ValueError, match="hold 0 placeholder tokens"):
        model(torch.tensor([[1, 2]]), media={"image": pictures[:1]})
    with pytest.raises(ValueError, match="no image was given"):
        model.generate(ids)


def test_other_models_refuse_media(values: dict[str, Tensor]) -> None:
    model = qkv.build(qkv.preset("gpt2", vocab_size=31, max_positions=64, **SIZES))
    with pytest.raises(ValueError, match="reads no media"):
        model(torch.tensor([[1, 2]]), media=values)
    with pytest.raises(ValueError, match="reads no media"):
        model.generate([[1, 2]], media=values)


def test_what_is_not_built_for_media_is_refused() -> None:
    spec = reader("gpt2")
    for layout in (RankLayout(tensor=2), RankLayout(context=2), RankLayout(pipeline=2)):
        with pytest.raises(ValueError, match="can't divide a model that reads media beside tokens"):
            check_model(layout, work("reader", spec, 16))
    with pytest.raises(ValueError, match=r"ONNX can't say decoder\.embedding, joint"):
        check(qkv.build(spec), "ONNX")


def test_specs_that_make_no_sense_are_refused() -> None:
    patches, text = Patches(image=(8, 8), patch=(2, 2), before=0), qkv.preset("gpt2", vocab_size=9, **SIZES)
    image = Medium(name="image", token=1, reads=patches)
    for make, said in (
        (lambda: with_media(text, image, image), "each medium has its own name"),
        (
            lambda: with_media(text, image, Medium(name="other", token=1, reads=patches)),
            "each medium has its own token",
        ),
        (lambda: Medium(name="image", token=1, reads=qkv.Embedding()), "a medium is patches, states or a tower"),
        (lambda: Tower(stack=text.decoder, width=8), "this stack reads tokens"),
        (lambda: tower(Projector(shuffle=3)), "can't be joined 3 × 3"),
        (lambda: with_media(qkv.preset("vit-base-16"), image), "reads none"),
        (lambda: tower(Projector(), layers=(1, 0)), r"numbers from 0 to 1 in increasing order, not \[1, 0\]"),
        (
            lambda: tower(Projector(), layers=(0,), deep=Projector(pool=2)),
            "1 × 1 places and the one of deep layers 2",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            make()


@torch.no_grad()
def test_states_of_deep_layers_are_added_to_the_output_of_the_first_layer(values: dict[str, Tensor]) -> None:
    model = loud(qkv.build(reader("llama"), dtype=torch.float64).eval())
    ids = torch.tensor([ROWS[1]])
    names = ["decoder.layers.0.output", "decoder.layers.1.input"]
    with record(model, names) as seen:
        model(ids, media=of_row(values, 1))
    added = seen[names[1]][0] - seen[names[0]][0]
    at_picture = ids[0] == IMAGE
    assert added[~at_picture].abs().max() == 0 and added[at_picture].abs().min(0).values.max() > 0
    single, whole = qkv.build(model.spec), qkv.build(model.spec, dtype=torch.float64)
    single.load_state_dict(model.state_dict())
    whole.load_state_dict(single.state_dict())
    expected = whole(ids, media=of_row(values, 1))
    found = single.eval()(ids, media={name: value.float() for name, value in of_row(values, 1).items()})
    assert (found - expected).norm() < 1e-4 * expected.norm()


def test_text_in_a_layout_with_media_is_causal_and_a_picture_is_not() -> None:
    layout = Layout.full(6).with_media(torch.tensor([[0, 1, 1, 2, 2, 0]]))
    mask = (causal() | media()).mask(layout).int().tolist()
    assert mask == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 1],
    ]
    assert (causal() | media()).pairs(6) == 21  # without a layout there is no picture
