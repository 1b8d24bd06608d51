"""Model cards: what they say, that the Hub's library reads them, and that their code runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_untrained import of, words

from qkv.io.directories.layout import is_stamped
from qkv.runs.inference.publish.model_card import model_card
from qkv.runs.inference.run import load


def parts(text: str) -> tuple[dict[str, Any], str]:
    """The YAML header and the rest of a card."""
    _, header, body = text.split("---\n", 2)
    return yaml.safe_load(header), body


@pytest.fixture(scope="module")
def card(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = load(trained).save(tmp_path_factory.mktemp("cards") / "turns", to="hub")
    return folder / "README.md"


def test_a_card_has_the_metrics_with_their_signatures_as_the_evaluation_has_them(card: Path, trained: Path) -> None:
    header, body = parts(card.read_text())
    said = json.loads((trained / "evaluation.json").read_text())
    (result,) = header["model-index"][0]["results"]
    assert {one["type"]: one["value"] for one in result["metrics"]} == said["metrics"]
    signatures = {one["type"]: one["args"]["signature"] for one in result["metrics"] if "args" in one}
    assert signatures == said["signatures"] and "exact_match" in signatures
    assert all(f"`{signature}`".replace("|", "\\|") in body for signature in signatures.values())
    assert header["library_name"] == "transformers" and header["pipeline_tag"] == "translation"
    assert "license" not in header and "base_model" not in header and "language" not in header
    for title in ("How to use it", "Data", "Training", "Evaluation", "Limits"):
        assert f"\n## {title}\n" in body


def test_the_library_of_the_hub_reads_the_header(card: Path) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="an optional dependency")
    data = hub.ModelCard.load(card).data
    assert data.model_name == "turns" and {one.metric_type for one in data.eval_results} >= {"loss", "exact_match"}
    assert data.tags[0] == "qkv"


def test_languages_license_base_and_data_of_the_hub(trained: Path, tmp_path: Path) -> None:
    run = load(trained)
    recipe = run.recipe.to_dict()  # type: ignore[union-attr]
    recipe["model"] = {"directory": "some/base@v1"}
    recipe["data"] |= {"kind": "datasets", "path": "some/data", "source_language": "en", "target_language": "pt_BR"}

    folder = load(trained).save(tmp_path / "x", to="hub")
    object.__setattr__(run, "recipe", _Recipe(recipe))
    header, _ = parts(model_card(run, folder, "me/x", license="mit"))
    assert header["language"] == ["en", "pt-BR"] and header["license"] == "mit"
    assert header["base_model"] == "some/base" and header["datasets"] == ["some/data"]
    assert parts(model_card(run, folder, "me/x", languages=("de",)))[0]["language"] == ["de"]


class _Recipe:
    """A recipe as far as a card asks."""

    source = data = task = None

    def __init__(self, tree: dict[str, Any]) -> None:
        self.tree = tree

    def to_dict(self) -> dict[str, Any]:
        return self.tree


def test_a_card_names_no_folders_and_shows_no_examples_of_other_peoples_data(trained_lm: Path, tmp_path: Path) -> None:
    shutil.copytree(trained_lm, tmp_path / "run")
    said = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    said["samples"] = [{"source": "a secret", "output": "b"}]
    said["notes"] = ["/home/person/file.txt was cut", "2 lines were cut"]
    (tmp_path / "run" / "evaluation.json").write_text(json.dumps(said))
    recipe = (tmp_path / "run" / "recipe.yaml").read_text()
    (tmp_path / "run" / "recipe.yaml").write_text(re.sub(r"^data:", "data:\n  # home", recipe, flags=re.M))
    text = (load(tmp_path / "run").save(tmp_path / "hub", to="hub") / "README.md").read_text()
    assert "secret" not in text and "/home/" not in text and str(tmp_path) not in text and "2 lines were cut" in text


def test_figures_of_other_weights_are_not_in_the_header(tmp_path: Path) -> None:
    sizes = {"d_model": 32, "d_ff": 32, "max_positions": 32}
    folder = of("llama", words(), "continue", **sizes).save(tmp_path / "run", to="qkv")
    (folder / "evaluation.json").write_text('{"split": "test", "examples": 500, "metrics": {"loss": 1.5}}')
    measured = (load(folder).save(tmp_path / "whole", to="hub") / "README.md").read_text()
    assert parts(measured)[0]["metrics"] == ["loss"]
    rounded = (load(folder).quantize("int8").save(tmp_path / "int8", to="hub") / "README.md").read_text()
    header, body = parts(rounded)
    assert "model-index" not in header and "those of the weights before they were quantized" in body


def test_an_edited_card_is_not_replaced_and_an_unedited_one_is(trained: Path, tmp_path: Path) -> None:
    run = load(trained)
    folder = run.save(tmp_path / "x", to="hub")
    assert is_stamped(folder / "README.md")
    run.save(folder, to="hub")
    load(trained).save(folder, to="hub", overwrite=True)
    (folder / "README.md").write_text((folder / "README.md").read_text().replace("# x", "# Mine"))
    with pytest.raises(
        ValueError, match=r"README\.md has the name of a file of a model's directory, but holds something"
    ):
        load(trained).save(folder, to="hub", overwrite=True)
    assert "# Mine" in (folder / "README.md").read_text()


def test_without_an_evaluation_the_card_says_so(tmp_path: Path) -> None:
    folder = of("gpt2", words(), "continue", max_positions=32).save(tmp_path / "plain", to="hub")
    header, body = parts((folder / "README.md").read_text())
    assert header == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["qkv"],
    }
    assert "No evaluation was recorded" in body and "## Evaluation" not in body and "None" not in body
    assert not (of("gpt2", words(), "continue").save(tmp_path / "own", to="qkv") / "README.md").exists()
