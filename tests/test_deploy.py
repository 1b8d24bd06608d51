"""deploy/: the commands in its files have options that `qkv serve` has; the image copies what building the package needs."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest
import yaml
from built_wheel import built_wheel
from typer.main import get_command

from qkv.cli.app import app

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def commands() -> list[list[str]]:
    docker = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    unit = (DEPLOY / "qkv-serve.service").read_text(encoding="utf-8")
    started = re.findall(r"^CMD (\[.*\])$", docker, re.MULTILINE)
    found = [json.loads(started[-1]), compose["services"]["one"]["command"]]
    return [*found, *(line.split() for line in re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE))]


def test_commands_have_options_that_exist() -> None:
    serve = get_command(app).get_command(None, "serve")  # type: ignore[attr-defined, arg-type]
    options = {name for parameter in serve.params for name in parameter.opts}
    assert len(commands()) == 3
    for command in commands():
        assert command[0].endswith("qkv") and command[1] == "serve"
        assert {word for word in command if word.startswith("--")} <= options


def test_the_image_copies_files_that_exist() -> None:
    for line in re.findall(r"^COPY (.*)$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split()[:-1]), line


def test_docker_is_sent_what_the_image_copies_and_nothing_else() -> None:
    copied = re.findall(r"^COPY (.*) \S+$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[1] == "*" and {line[1:] for line in lines if line.startswith("!")} == {*" ".join(copied).split()}


@pytest.mark.slow
def test_the_image_can_build_the_package_from_what_it_copies(tmp_path: Path) -> None:
    for line in re.findall(r"^COPY (.*)$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE):
        *names, target = line.split()
        for name in names:
            source, place = ROOT / name, tmp_path / "context" / (target if target != "./" else name)
            place.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, place, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
            else:
                shutil.copy(source, place)
    wheel = built_wheel(tmp_path / "context", tmp_path / "wheels", QKV_PREBUILT="0")
    assert any(name.startswith("qkv/learn/tour/pages/") for name in zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "nginx.conf", "qkv-serve.service"])
def test_each_file_names_the_page_that_explains_it(name: str) -> None:
    assert "docs/serving.md" in (DEPLOY / name).read_text(encoding="utf-8").splitlines()[0]
