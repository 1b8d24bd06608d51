"""`qkv list` names everything that a recipe or a model may name."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import qkv
from qkv.cli import main
from qkv.cli.catalog import _MEANINGS, LISTS, ROLES
from qkv.core.spec import Spec

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_each_list_has_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    for what, named in (
        ("recipes", "localise"),
        ("presets", "63,082,496 parameters"),
        ("patterns", "window"),
        ("positions", "alibi"),
        ("objectives", "next-token"),
        ("norms", "rmsnorm"),
        ("feedforwards", "moe"),
        ("optimizers", "muon"),
        ("schedules", "wsd"),
        ("heads", "span"),
        ("caches", "quantized"),
        ("scores", "additive"),
        ("tasks", "forecast"),
        ("sources", "pairs"),
        ("metrics", "exact_match"),
    ):
        assert main(["list", what]) == 0
        assert named in capsys.readouterr().out
        assert main(["list", what, "--json"]) == 0
        texts = json.loads(capsys.readouterr().out).values()
        assert all(text.endswith(".") for text in texts)


def test_lists_are_whole() -> None:
    """Every kind of every role that a recipe or a model may name is in a list, in a process that imports no more."""
    code = "import json; from qkv.cli.catalog import LISTS; print(json.dumps({n: dict(LISTS[n]()) for n in LISTS}))"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    listed = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=here).stdout)
    for module in pkgutil.walk_packages(qkv.__path__, "qkv."):
        if not module.name.startswith("qkv.core.") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    roles = set()
    for name, place in ROLES.items():
        module_name, _, base_name = place.rpartition(".")
        base = getattr(importlib.import_module(f"qkv.{module_name}"), base_name)
        ours = {kind for kind, cls in base.kinds.items() if cls.__module__.startswith("qkv.")}
        assert set(listed[name]) == ours - {"fixed", "scaled-series"}, (
            name
        )  # which evaluation makes of its own examples
        roles.add(base.role)
    assert all(about.endswith(".") and len(about) > 3 for rows in listed.values() for about in rows.values())
    # Patterns have their own list, models are presets, and the others belong to one part, a study or `qkv vectors`.
    others = {"pattern", "model", "context", "connections", "initialization", "feature-map", "vector method", "measure"}
    others |= {"media-numbers"}  # which the task omni names by the media of its data
    declared = {cls.role for cls in _specs(Spec) if cls.role and cls.__module__.startswith("qkv.")}
    alone = {cls.role for cls in _specs(Spec) if cls.role and len(cls.kinds) == 1}  # kinds without a choice
    assert declared - roles - alone <= others


def _specs(base: type[Spec]) -> Iterator[type[Spec]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _specs(cls)


def test_help_names_every_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--help"]) == 0
    words = set(re.findall(r"[a-z]+", capsys.readouterr().out))
    assert set(LISTS) <= words


def test_presets_have_their_sizes_and_are_described_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "presets", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["gpt2-medium"] == "354,823,168 parameters: 24 × 1024, 16 heads."
    assert sum("GPT-2's" in text for text in about.values()) == 1


def test_families_have_their_classes_tokenizers_differences_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    from qkv.io.families import FAMILIES
    from qkv.io.families.differences import DIFFERENCES
    from qkv.io.families.held import HELD

    assert main(["list", "families", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert list(about) == list(FAMILIES) and DIFFERENCES.keys() <= about.keys() == HELD.keys()
    assert about["opt"].startswith("OPTForCausalLM, OPTModel, ") and "merges of GPT2Tokenizer" in about["opt"]
    assert "; equal to transformers 5.23.0; differs: projected states (350M)" in about["opt"]


def test_the_text_of_an_objective_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "objectives", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["detection"].endswith(
        "objects b of their image (Carion et al. 2020, §3.1)."
    )


def test_meanings_are_of_lists_and_hide_none() -> None:
    words = [word for text in _MEANINGS.values() for word in text.split()]
    assert set(_MEANINGS) <= set(LISTS)
    assert len(words) == len(set(words)) and not {*words} & {*LISTS}


@pytest.mark.parametrize(
    ("word", "meant"),
    [("models", "presets"), ("datasets", "sources"), ("loss", "objectives"), ("schduler", "schedules")],
)
def test_a_word_of_the_field_leads_to_the_list_that_it_means(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", word]) == 2
    assert f"did you mean '{meant}'" in capsys.readouterr().err


def test_positions_say_which_criteria_they_meet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "positions", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    everything = "Unique: yes, consistent: yes, bounded: yes, deterministic: yes; its dot product rises at distances "
    assert everything + "5–6, 10–12, 16–18 and 5 more." in said["sinusoidal"]
    assert "Unique: yes, consistent: yes, bounded: no, deterministic: yes; its bias never rises" in said["alibi"]
    assert said["none"].endswith("Unique: no, consistent: yes, bounded: yes, deterministic: yes.")


@pytest.mark.parametrize("what", ["patterns", "positions"])
def test_pictures_never_come_among_other_files(what: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.svg").write_text("<svg/>")
    assert main(["list", what, "--out", str(tmp_path)]) == 2
    assert "mine.svg is not one of the pictures of qkv list, which are not mixed with others" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.svg"]
