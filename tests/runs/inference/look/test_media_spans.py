"""What `qkv look` draws of a model of the Hub: sheets of videos, and the weights of prompts read in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hub_pictures
import numpy as np
import pytest
import run_untrained
import torch
from hub_pictures import SIDE, movie
from PIL import Image

import qkv
from qkv.cli import main
from qkv.core.layout import Layout, Role
from qkv.look.view.figure import InputView
from qkv.nn.attention import tap
from qkv.runs.inference.look.joint import joint_pass
from qkv.runs.inference.look.media_spans import MOST_MOMENTS
from qkv.runs.inference.reading.beside import prompts
from qkv.runs.tasks.media import TextWithFiles

slow = pytest.mark.slow
VIDEOS = "is<|vision_start|><|video_pad|><|vision_end|> in <|vision_start|><|image_pad|><|vision_end|>it?"


def seen(run: qkv.Run, text: TextWithFiles) -> InputView:
    """The view of a text, whose weights into each medium are those of the whole sequence."""
    (view,) = run.look(text).views
    made = joint_pass(run, text)
    with tap.record_attention() as requests:
        made.run()
    assert made.spans
    every = [tap.weights(request)[0] for request in requests if request.name.startswith("decoder")]
    for span in made.spans:
        group = view.group(span.name)
        rows, columns = list(view.axes[group.query].shown), list(view.axes[group.key].shown)
        assert columns == list(span.places)
        for layer, weights in zip(group.layers, every, strict=True):
            np.testing.assert_allclose(layer.weights, weights[:, rows][..., columns].detach().float(), atol=1e-5)
    return view


@pytest.mark.parametrize(
    ("kind", "settings", "grids"),
    [
        ("qwen3_vl", {}, {"video 1": (3, 15), "video 2": (4, 14)}),  # three moments of 3 × 5, two of 4 × 7
        *(
            pytest.param(
                kind, {"do_sample_frames": True, "fps": 2}, {"video 1": (3, 15), "video 2": (3, 12)}, marks=slow
            )
            for kind in ("qwen2_vl", "qwen2_5_vl")
        ),
    ],
)
def test_a_video_is_a_sheet_of_its_pictures(
    kind: str, settings: dict[str, Any], grids: dict[str, tuple[int, int]], tmp_path: Path
) -> None:
    pytest.importorskip("av")
    hub_pictures.save(kind, tmp_path)
    size = {"shortest_edge": 64, "longest_edge": 9000 if kind == "qwen3_vl" else 1500}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps({"patch_size": 4, "size": size, **settings}))
    clips = movie(tmp_path / "a.mp4", 31, 10, (48, 32)), movie(tmp_path / "b.mp4", 9, 24, (64, 40))
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 24, 3), np.uint8))
    place = "<|vision_start|><|video_pad|><|vision_end|>"
    view = seen(qkv.load(tmp_path), TextWithFiles(VIDEOS + place, {"video": clips, "image": (picture,)}))
    assert {"image", *grids} <= set(view.axes)
    for name, grid in grids.items():
        axis = view.axes[name]
        assert axis.grid is not None and (axis.grid.rows, axis.grid.columns) == grid and axis.picture is not None
        assert axis.labels[0] == "moment 1: 0,0" and len(set(axis.labels)) == len(axis.shown) == axis.grid.tokens
    assert not any("moments" in note for note in view.notes)


def test_the_command_looks_at_a_video(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("av")
    hub_pictures.save("qwen2_vl", tmp_path)
    size = {"patch_size": 4, "size": {"shortest_edge": 16, "longest_edge": 200}}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(size))
    files = ["--video", str(movie(tmp_path / "a.mp4", 44, 10, (16, 16)))]
    page = tmp_path / "page.html"
    assert main(["look", str(tmp_path), *files, "is it?", "--out", str(page)]) == 0
    assert f"video: {MOST_MOMENTS} of 22 moments are drawn" in capsys.readouterr().out
    assert main(["look", str(tmp_path), *files, "is it?", "--kind", "video", "--out", str(tmp_path / "a.svg")]) == 0
    capsys.readouterr()
    for command, arguments, said in (
        ("look", ["--video", "none.mp4", "is it?"], "there is no file 'none.mp4'"),
        ("look", [*files, *files, "<|video_pad|>?"], "1 placeholder <|video_pad|> and 2 videos beside it"),
        ("predict", [*files, "is it?"], "use `qkv generate`"),
    ):
        assert main([command, str(tmp_path), *arguments]) == 2
        error = capsys.readouterr().err
        assert said in error and len(error.splitlines()) == 1, error


def test_a_prompt_read_in_both_directions_has_the_weights_of_transformers(tmp_path: Path) -> None:
    theirs, _ = hub_pictures.save("paligemma", tmp_path)
    run = qkv.load(tmp_path)
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (SIDE, SIDE, 3), np.uint8))
    text = TextWithFiles("<image>what is in it?", {"image": (picture,)})
    (ids,), (media,) = prompts(run, [text])
    theirs.set_attn_implementation("eager")
    given = {"input_ids": torch.tensor([ids]), "pixel_values": torch.as_tensor(np.stack(media["image"]))}
    given["token_type_ids"] = torch.zeros_like(given["input_ids"])  # of a prefix
    with torch.no_grad():
        made = theirs.generate(
            **given, max_new_tokens=4, do_sample=False, output_attentions=True, return_dict_in_generate=True
        )
    view = seen(run, text)
    group = view.group("decoder")
    shown = list(view.axes[group.query].shown)
    prompt = [i for i in shown if i < len(ids)]
    for layer, weights in zip(group.layers, made.attentions[0], strict=True):
        wanted = weights[0][:, prompt][..., prompt]
        assert float(wanted.triu(1).max()) > 0.01  # later tokens are seen
        np.testing.assert_allclose(layer.weights[:, : len(prompt), : len(prompt)], wanted, atol=1e-5)
        assert float(layer.weights[:, len(prompt) :].triu(len(prompt) + 1).abs().max()) == 0


def test_the_text_of_a_prefix_language_model_is_its_prompt() -> None:
    tokenizer = run_untrained.words()
    spec = qkv.preset("gpt2", vocab_size=tokenizer.vocab_size, d_model=16, n_layers=2, n_heads=2, d_ff=32, dropout=0.0)
    patterns = {f"decoder.blocks.{i}.attention.pattern": qkv.causal() | qkv.prefix(within=True) for i in range(2)}
    torch.manual_seed(0)
    model = qkv.build(spec.replace(patterns), seed=0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    run = qkv.Run(model, tokenizer, task="continue")
    text = "Ada lives in Oslo"
    ids = run.encode(text)
    for generate in (0, 3):
        (view,) = run.look(text, generate=generate).views
        weights = view.group("decoder").layer(0).weights
        assert float(weights[:, 0, 1 : len(ids)].min()) > 0  # the first token sees the prompt
        assert float(weights[:, : len(ids), len(ids) :].abs().sum()) == 0  # and nothing after it
    (lens,) = (panel for panel in run.look(text).views[0].panels if "lens" in panel["title"].lower())
    logits = model(torch.tensor([ids]), layout=Layout.full(len(ids)).with_roles(torch.full((1, len(ids)), Role.PREFIX)))
    best = float(logits[0, -1].detach().softmax(-1).max())
    assert f"{best:.3f}" in dict(run.look(text).views[0].facts)["next token"] and lens
    with pytest.raises(ValueError, match="reads a prompt in both directions"):
        run.look(text, patch="Ada lives in Oslu")
