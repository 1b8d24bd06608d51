"""The files that strangers meet first agree: workflows, templates, citation, changelog, extras, the page on PyPI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_string
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from built_wheel import copied_sources

import qkv

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"all", "dev", "docs"}  # not part of `all`


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


WORKFLOWS = {path.stem: parsed(path) for path in sorted((GITHUB / "workflows").glob("*.yml"))}
STEPS = [
    (name, step) for name, workflow in WORKFLOWS.items() for job in workflow["jobs"].values() for step in job["steps"]
]


def test_every_workflow_has_least_permissions_and_time_limits() -> None:
    assert set(WORKFLOWS) >= {"ci", "release"}
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
        assert all(job["timeout-minutes"] <= 90 for job in workflow["jobs"].values())
        assert all(name in workflow["jobs"] for job in workflow["jobs"].values() for name in job.get("needs", []))


def test_the_tests_run_on_every_python_that_the_project_names() -> None:
    versions = WORKFLOWS["ci"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    classified = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", name) for name in PROJECT["classifiers"]]
    assert versions == [match[1] for match in classified if match]
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_what_the_workflows_run_exists() -> None:
    makefile = text("Makefile").replace("$(STAMP)", ".venv/.installed")
    commands = [step["run"] for _, step in STEPS if "run" in step]
    targets = [target for command in commands for target in re.findall(r"^make ([\w./-]+)", command, re.MULTILINE)]
    assert "lint" in targets
    assert all(re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE) for target in targets)
    paths = [step["with"]["cache-dependency-path"] for _, step in STEPS if "cache" in step.get("with", {})]
    paths += WORKFLOWS["release"][True]["pull_request"]["paths"]  # YAML reads the key `on` as true
    assert all((ROOT / path.removesuffix("/**")).exists() for path in paths)
    assert all("uses" in step or "run" in step for _, step in STEPS)
    assert all(
        re.fullmatch(r"[\w-]+/[\w-]+@(v[\d.]+|release/v\d+)", step["uses"]) for _, step in STEPS if "uses" in step
    )


def test_issue_forms_are_complete() -> None:
    for path in (GITHUB / "ISSUE_TEMPLATE" / "bug.yml", GITHUB / "ISSUE_TEMPLATE" / "feature.yml"):
        form = parsed(path)
        assert form["name"] and form["description"]
        ids = [item["id"] for item in form["body"]]
        assert len(set(ids)) == len(ids)
        assert all(item["type"] in ("textarea", "input", "dropdown", "checkboxes") for item in form["body"])
        assert all(item["attributes"]["label"] for item in form["body"])
    assert "`qkv doctor`" in (GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8")


def test_the_links_of_the_pull_request_template_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", text(".github/PULL_REQUEST_TEMPLATE.md"))
    assert targets and all((GITHUB / target).exists() for target in targets)


@pytest.mark.parametrize("name", [*PROJECT["urls"]])
def test_urls_of_files_and_folders_are_in_the_repository(name: str) -> None:
    url = PROJECT["urls"][name]
    assert url.startswith(REPOSITORY)
    match = re.fullmatch(r"/(?:blob|tree)/main/(.+)", url.removeprefix(REPOSITORY))
    assert match is None or (ROOT / match[1]).exists()


def test_every_file_names_the_same_repository() -> None:
    assert parsed(ROOT / "CITATION.cff")["repository-code"] == REPOSITORY
    (contact,) = parsed(GITHUB / "ISSUE_TEMPLATE" / "config.yml")["contact_links"]
    assert contact["url"] == f"{REPOSITORY}/security/advisories/new"
    urls = re.findall(r"^\[\S+\]: (\S+)$", text("CHANGELOG.md"), re.MULTILINE)
    assert urls and all(url.startswith(f"{REPOSITORY}/") for url in urls)


def test_the_version_is_the_same_everywhere() -> None:
    citation, version = parsed(ROOT / "CITATION.cff"), qkv.__version__
    assert "version" in PROJECT["dynamic"] and citation["version"] == version
    assert citation["license"] == PROJECT["license"] and citation["keywords"] == PROJECT["keywords"]
    changelog = text("CHANGELOG.md")
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert headings[:2] == ["[Unreleased]", f"[{version}] - {citation['date-released']}"]
    assert f"[{version}]: {REPOSITORY}/releases/tag/v{version}" in changelog


def test_all_contains_every_extra_for_users() -> None:
    (requirement,) = EXTRAS["all"]
    match = re.fullmatch(r"qkv\[([\w,-]+)\]", requirement)
    assert match is not None and set(match[1].split(",")) == set(EXTRAS) - FOR_DEVELOPERS


def test_every_extra_that_a_file_names_exists() -> None:
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("src/qkv/**/*.py"),
        *ROOT.glob("src/qkv/**/*.yaml"),
    ]
    named = {
        (extra, path.name)
        for path in [*pages, ROOT / "Makefile"]
        for names in re.findall(r"(?:install .*?qkv|[ '\"]\.)\[([a-z,]+)\]", path.read_text(encoding="utf-8"))
        for extra in names.split(",")
    }
    assert {"hub", "video", "dev"} <= {extra for extra, _ in named}
    assert not {(extra, page) for extra, page in named if extra not in EXTRAS}


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The metadata that a wheel would have, PyPI's page included."""
    folder = tmp_path_factory.mktemp("metadata")
    program = f"from setuptools.build_meta import prepare_metadata_for_build_wheel as p; p({str(folder)!r})"
    copy = folder / "project"
    (copy / "src").mkdir(parents=True)
    (copy / "src" / "qkv").symlink_to(ROOT / "src" / "qkv")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (copy / name).symlink_to(ROOT / name)
    subprocess.run([sys.executable, "-c", program], cwd=copy, capture_output=True, timeout=120, check=True)
    (path,) = folder.glob("*.dist-info/METADATA")
    return message_from_string(path.read_text(encoding="utf-8"))


def test_the_metadata_of_a_wheel(metadata: Any) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("qkv", qkv.__version__)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert len(metadata.get_all("Project-URL")) == len(PROJECT["urls"])


def test_links_and_pictures_on_pypi_are_absolute_and_exist(metadata: Any) -> None:
    targets = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", metadata.get_payload())
    assert len(targets) > 30
    assert all(target.startswith(("https://", "#")) for _, target in targets)
    pictures = [target for sign, target in targets if sign]
    assert len(pictures) >= 2 and all(target.startswith(f"{REPOSITORY}/raw/main/") for target in pictures)
    own = [match[1] for _, url in targets if (match := re.fullmatch(rf"{REPOSITORY}/(?:blob|raw)/main/([^#]+).*", url))]
    assert len(own) > 30 and all((ROOT / path).exists() for path in own)


@pytest.mark.slow
def test_the_wheel_and_the_sources_bring_the_small_model_and_the_tour(tmp_path: Path) -> None:
    copy = copied_sources(tmp_path / "project")
    program = "from setuptools.build_meta import build_sdist, build_wheel; build_wheel('..'); build_sdist('..')"
    environment = {**os.environ, "QKV_PREBUILT": "0"}
    subprocess.run(
        [sys.executable, "-c", program], cwd=copy, env=environment, capture_output=True, timeout=300, check=True
    )
    (wheel,), (sources,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    in_wheel = {info.filename: info.file_size for info in ZipFile(wheel).infolist()}
    with tarfile.open(sources) as archive:
        in_sources = {member.name.partition("/")[2]: member.size for member in archive}
    folder = ROOT / "src" / "qkv" / "io" / "directories" / "shipped" / "small-english"
    sizes = {f"qkv/io/directories/shipped/small-english/{path.name}": path.stat().st_size for path in folder.iterdir()}
    assert sizes.items() <= in_wheel.items() and sum(sizes.values()) <= 3_000_000
    assert {f"src/{name}": size for name, size in sizes.items()}.items() <= in_sources.items()
    assert "qkv/learn/tour/pages/index.md" in in_wheel and "docs/tour/index.md" in in_sources
