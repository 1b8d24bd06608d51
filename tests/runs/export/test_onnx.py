"""ONNX graphs compute what their model computes: logits, greedy and sampled tokens, with padding and with a past."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx_loop import continued, run, session, translated
from onnx_models import PROMPTS, of_preset

import qkv
from qkv.cli import main
from qkv.generation import generate
from qkv.generation.sampling import Temperature, TopK, Uniforms, draw, row_seed
from qkv.runs.export import onnx
from qkv.runs.inference.run import Run

PAGE = Path(__file__).parents[3] / "docs" / "export.md"


@pytest.fixture(scope="module")
def lm(trained_lm: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A trained language model, converted from the command line."""
    folder = tmp_path_factory.mktemp("onnx") / "exported"
    assert main(["convert", str(trained_lm), str(folder), "--to", "onnx"]) == 0
    return qkv.load(trained_lm, "cpu"), folder


def test_greedy_tokens_of_padded_prompts(lm: tuple[Run, Path]) -> None:
    run, folder = lm
    wanted = [row[0] for row in generate(run.model, PROMPTS, max_new_tokens=12).sequences]
    assert continued(folder, PROMPTS, 12) == wanted


def test_the_loop_of_the_page(
    lm: tuple[Run, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, folder = lm
    monkeypatch.chdir(folder.parent)
    (block,) = re.findall(
        r"^```python\n(import numpy.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    exec(compile(block, str(PAGE), "exec"), {})
    wanted = run.generate(["def read(", "import"], max_new_tokens=8, do_sample=False)
    assert capsys.readouterr().out == f"{wanted}\n"


def test_sampled_tokens_by_the_same_random_numbers(lm: tuple[Run, Path]) -> None:
    run, folder = lm
    seeds = [row_seed(3, i) for i in range(len(PROMPTS))]
    options: dict[str, Any] = {"temperature": 0.8, "top_k": 20, "max_new_tokens": 12}
    wanted = [row[0] for row in generate(run.model, PROMPTS, seeds=seeds, **options).sequences]
    uniforms = Uniforms([row_seed(seed, 0) for seed in seeds], torch.device("cpu"))

    def choose(logits: Any) -> Any:
        chosen = Temperature(0.8)(torch.empty(0), torch.from_numpy(logits))
        return draw(TopK(20)(torch.empty(0), chosen), uniforms.draw()).numpy()

    assert continued(folder, PROMPTS, 12, choose) == wanted


def test_one_row_of_one_token(lm: tuple[Run, Path]) -> None:
    run, folder = lm
    wanted = generate(run.model, [[4]], max_new_tokens=5).sequences[0][0]
    assert continued(folder, [[4]], 5) == [wanted]


def test_names_and_files_are_optimums(lm: tuple[Run, Path]) -> None:
    _, folder = lm
    graph, past = session(folder), ["past_key_values.0.key", "past_key_values.0.value"]
    assert [one.name for one in graph.get_inputs()] == ["input_ids", "attention_mask", "position_ids", *past]
    assert [one.name for one in graph.get_outputs()] == ["logits", "present.0.key", "present.0.value"]
    assert graph.get_inputs()[3].shape == ["batch_size", 2, "past_sequence_length", 8]
    assert graph.get_outputs()[1].shape == ["batch_size", 2, "total_sequence_length", 8]
    names = {path.name for path in folder.iterdir()}
    assert names >= {"config.json", "generation_config.json", "model.onnx", "tokenizer.json"}
    assert not any("safetensors" in name for name in names)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "gpt2"


@pytest.mark.slow
def test_int8_is_smaller_and_says_its_error(tmp_path: Path) -> None:
    model = of_preset("gpt2", max_positions=32, d_model=128)
    exported = onnx.to_onnx(Run(model, None), tmp_path / "int8", int8=True)
    assert exported.float_size is not None and exported.float_error is not None
    assert exported.size < 0.35 * exported.float_size  # a quarter of the weights, and the graph
    assert exported.float_error < 1e-5 < exported.error < 0.2
    types = {one.op_type for one in _loaded(tmp_path / "int8").graph.node}
    assert "MatMulInteger" in types
    assert len(continued(tmp_path / "int8", PROMPTS, 3)) == 3


def _loaded(folder: Path) -> Any:
    import onnx as format

    return format.load(folder / "model.onnx", load_external_data=False)


@pytest.mark.slow
def test_large_weights_stand_beside_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "LIMIT", 1000)
    model = of_preset("gpt2", max_positions=32, d_model=128)
    onnx.to_onnx(Run(model, None), tmp_path / "out")
    assert (tmp_path / "out" / "model.onnx.data").stat().st_size > (tmp_path / "out" / "model.onnx").stat().st_size
    wanted = [row[0] for row in generate(model, PROMPTS, max_new_tokens=4).sequences]
    assert continued(tmp_path / "out", PROMPTS, 4) == wanted


DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"n_kv_heads": 2, "d_ff": 48}),
    "gpt2 with ALiBi": ("gpt2", {"position": "alibi"}),
    "bloom": ("bloom-560m", {}),
    "gemma 2: windows, soft-caps": ("gemma-2-2b", {"n_kv_heads": 2, "d_head": 8, "d_ff": 48}),
    "mistral: a window": ("mistral-7b", {"n_kv_heads": 2, "d_ff": 48, "windows": 3}),
    "neox: rotary in part": ("pythia-160m", {"d_ff": 48}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_exported_decoders_generate_the_same_tokens(name: str, tmp_path: Path) -> None:
    preset, sizes = DECODERS[name]
    model = of_preset(preset, **sizes)
    assert onnx.to_onnx(Run(model, None), tmp_path / "out").error < 1e-4
    wanted = [row[0] for row in generate(model, PROMPTS, max_new_tokens=12).sequences]
    assert continued(tmp_path / "out", PROMPTS, 12) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5-small", "opus-mt", "transformer"])
def test_exported_encoder_decoders_generate_the_same_tokens(name: str, tmp_path: Path) -> None:
    model = of_preset(name, d_ff=48, **({"d_head": 8} if name == "t5-small" else {}))
    exported = onnx.to_onnx(Run(model, None), tmp_path / "out")
    assert exported.graphs == ("encoder_model", "decoder_model", "decoder_with_past_model") and exported.error < 1e-4
    source, mask = torch.randint(60, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
    mask[1, 4:] = 0
    made = generate(model, source, attention_mask=mask, bos_id=0, max_new_tokens=8).sequences
    assert translated(tmp_path / "out", source.numpy(), mask.numpy(), 0, 8) == [row[0] for row in made]


HEADS = {
    "none": (None, ["last_hidden_state"]),
    "mlm": ("language-model", ["logits"]),
    "classes": ({"kind": "sequence-classifier", "labels": 3}, ["logits"]),
    "tags": ({"kind": "token-classifier", "labels": 5}, ["logits"]),
    "span": ("span", ["start_logits", "end_logits"]),
    "vector": ("sentence-vector", ["token_embeddings", "sentence_embedding"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_exported_encoders_give_the_same_outputs(name: str, tmp_path: Path) -> None:
    head, names = HEADS[name]
    spec = of_preset("bert-base", d_ff=48, max_positions=32).spec.replace(head=head, classification_head=None)
    model = qkv.build(spec, seed=5).eval()
    assert onnx.to_onnx(Run(model, None), tmp_path / "out").error < 1e-4
    ids, mask = torch.randint(60, (3, 6)), (torch.arange(6) < torch.tensor([[6], [2], [4]])).long()
    types = torch.randint(2, (3, 6))
    feed = {"input_ids": ids.numpy(), "attention_mask": mask.numpy(), "token_type_ids": types.numpy()}
    out = run(session(tmp_path / "out"), feed)
    assert list(out) == names
    wanted = model(ids, attention_mask=mask, token_types=types).detach().numpy()
    got = np.stack(list(out.values()), -1) if name == "span" else out[names[-1]]
    real = mask.numpy().astype(bool) if got.ndim == 3 else slice(None)
    np.testing.assert_allclose(got[real], wanted[real], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_exported_models_of_images_give_the_same_outputs(tmp_path: Path) -> None:
    sizes = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "image": (32, 32), "patch": (8, 8), "labels": 4}
    model = qkv.build(qkv.preset("vit-base-16", **sizes), seed=5).eval()
    onnx.to_onnx(Run(model, None), tmp_path / "out")
    pixels = torch.rand(3, 3, 32, 32)
    out = run(session(tmp_path / "out"), {"pixel_values": pixels.numpy()})
    np.testing.assert_allclose(out["logits"], model(pixels).detach().numpy(), rtol=1e-4, atol=1e-5)
