"""What the documents show is true: their Python runs, their commands run, their links lead somewhere."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import pkgutil
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fast_subset import fast

import qkv
from qkv.cli import main
from qkv.core.spec import Spec

ROOT = Path(__file__).parents[1]
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("bench/*.md"), *ROOT.glob("docs/**/*.md")])


def script(path: Path) -> Any:
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LAYOUT = script(ROOT / "tests" / "test_architecture.py")

# Makes any recipe a matter of seconds: its words stay, its sizes shrink.
TINY = [
    *("training.max_steps=2", "training.eval_every=2", "training.save_every=2", "evaluation.examples=4"),
    *("evaluation.test_examples=4", "model.d_model=16", "model.d_ff=32", "model.n_layers=1", "model.n_heads=2"),
    *("tokenizer.vocab_size=300", "batching.tokens=512", "generation.max_new_tokens=4", "generation.num_beams=1"),
]
FEW = ["data.train=500", "data.validation=20", "data.test=20"]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, as they stand on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(page: Path, program: str) -> list[list[str]]:
    """The arguments of every call of a program in a page's shell blocks."""
    lines = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    return [words[1:] for line in lines if (words := shlex.split(line, comments=True)) and words[0] == program]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which the commands of the README make sense: a trained run, and parallel text of the user's own."""
    folder = tmp_path_factory.mktemp("readme")
    for language, word in (("en", "line"), ("de", "Zeile")):
        lines = (f"{word} {i} , {word} {i * 7 % 100}\n" for i in range(400))
        (folder / f"train.{language}").write_text("".join(lines), encoding="utf-8")
    reviews = (f"a story of {i} words,{'good' if i % 3 else 'bad'}\n" for i in range(200))
    (folder / "reviews.csv").write_text("text,label\n" + "".join(reviews), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "localise", *FEW, *TINY, "--out", "runs/localise"]) == 0
        yield folder


@pytest.mark.usefixtures("place")
def test_the_readmes_python_runs(capsys: pytest.CaptureFixture[str]):
    (block,) = blocks(README, "python")
    names: dict[str, object] = {}
    exec(compile(block, str(README), "exec"), names)
    assert tuple(names["out"].shape) == (1, 512, 8, 64)  # type: ignore[attr-defined]
    assert names["ids"].shape[0] == 1  # type: ignore[attr-defined]
    assert capsys.readouterr().out == f"{names['run'].generate('<de> 3 days ago', num_beams=4)}\n"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("argv", commands(README, "qkv"), ids=" ".join)
def test_the_readmes_commands_run(argv: list[str], capsys: pytest.CaptureFixture[str]):
    shrinks = argv[0] in ("train", "ablate")
    small = [*TINY, *(FEW if "localise" in argv else [])] if shrinks else []
    small += ["data.languages=[de]"] * (
        "localise" in argv and shrinks and not any("languages" in word for word in argv)
    )
    if "reviews.csv" in argv:
        small = [*(setting for setting in TINY if not setting.startswith("generation")), "--yes"]
    if "--seeds" in argv:
        argv = [*argv[: argv.index("--seeds") + 1], "1"]
    assert main([*argv[:2], *small, *argv[2:]]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out


def test_the_readmes_targets_are_in_the_makefile():
    targets = {argv[0] for page in (README, CONTRIBUTING) for argv in commands(page, "make")}
    assert targets == {"demo", "test"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_mechanisms_work(capsys: pytest.CaptureFixture[str]):
    page = ROOT / "docs" / "mechanisms.md"
    (block,) = blocks(page, "python")
    exec(compile(block, str(page), "exec"), {})
    assert re.fullmatch(r"[\d,]+ parameters, [\d,]+ of them used by each token\n", capsys.readouterr().out)


HISTORY = ROOT / "docs" / "attention-history.md"
SAID = ["5.0963", "5.2327", "6.0", "True torch.Size([1])", "torch.Size([1, 8, 100])", "torch.Size([1, 1, 5, 6])"]


def test_the_history_of_attention_says_what_python_prints(capsys: pytest.CaptureFixture[str]):
    names: dict[str, object] = {}
    for block in blocks(HISTORY, "python"):
        exec(compile(block, str(HISTORY), "exec"), names)
    *printed, rnn, lstm, attention = capsys.readouterr().out.splitlines()
    assert printed == SAID and all(said in HISTORY.read_text(encoding="utf-8") for said in SAID)
    left = {line.split(":")[0]: float(line.split()[1]) for line in (rnn, lstm, attention)}
    assert left["rnn"] < 0.01 * left["lstm"] < 0.001 * left["attention"], left


def in_small(argv: list[str]) -> list[str]:
    """A command of the page with settings that make it a matter of seconds."""
    if argv[0] != "train":
        return argv
    given, general = " ".join(argv), [text for text in TINY if not text.startswith(("model.", "tokenizer."))]
    recurrent = ["model.d_e=8", "model.d_h=8", "model.d_s=8"]
    if argv[1] == "bottleneck":
        beside = "measure.beside=[{kind: alignment, examples: 2}]"
        general += [*recurrent, beside, "measure.examples=4", "compare.luong=null", "compare.transformer=null"]
    else:
        older = any(name in given for name in ("rnnsearch", "gnmt", "deep-att"))
        general += recurrent if older else [text for text in TINY if text.startswith("model.")]
    general += ["data.train=500"] if argv[1] != "translate" and "kind: pairs" not in given else []
    general += ["tokenizer.vocab_size=300"] if "kind: bpe" in given or argv[1] == "translate" else []
    settings, options = ([text for text in argv[2:] if ("=" in text) is wanted] for wanted in (True, False))
    return [*argv[:2], *settings, *general, *options]


NO_COMPARISONS = [argv for argv in commands(HISTORY, "qkv") if argv[:2] != ["train", "bottleneck"]]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("argv", fast(commands(HISTORY, "qkv"), *NO_COMPARISONS), ids=" ".join)
def test_the_history_of_attentions_commands_run(argv: list[str], capsys: pytest.CaptureFixture[str]):
    if argv[0] == "generate" and not Path(argv[1]).exists():  # if another process has run what makes it
        (first,) = [made for made in commands(HISTORY, "qkv") if made[-1] == argv[1]]
        assert main(in_small(first)) == 0
    assert main(in_small(argv)) == 0, capsys.readouterr().err
    assert capsys.readouterr().out


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("argv", commands(ROOT / "docs" / "generation.md", "qkv"), ids=" ".join)
def test_the_commands_of_generation_run(argv: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(argv) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert out.count("perplexity") == (3 if argv[0] == "score" else 0) and out  # of each target, and of both


TASKS = ROOT / "docs" / "tasks.md"


@pytest.mark.usefixtures("place")
def test_the_tasks_are_asked_as_the_page_says(capsys: pytest.CaptureFixture[str]):
    for argv in commands(TASKS, "qkv"):
        assert main(in_small(argv)) == 0, capsys.readouterr().err
        assert capsys.readouterr().out
    (block,) = [block for block in blocks(TASKS, "python") if "predict" in block]
    exec(compile(block, str(TASKS), "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    dead = [target for target in local if not (page.parent / target).exists()]
    assert not dead, f"{page.name} links to what is not there: {dead}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_are_closed_and_no_line_is_there_twice(page: Path):
    lines = page.read_text(encoding="utf-8").splitlines()
    fences = [line for line in lines if line.startswith("```")]
    assert len(fences) % 2 == 0 and set(fences[1::2]) <= {"```"}
    twice = [line for line, following in pairwise(lines) if line == following and len(line) > 20]
    assert not twice, f"{page.name} repeats {twice}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page: of its headings, as GitHub makes them, and explicit ones."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'id="([^"]+)"', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_exist(page: Path):
    targets = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    pages = [(page.parent / target if target else page, anchor) for target, anchor in targets]
    dead = [f"{at.name}#{anchor}" for at, anchor in pages if at.suffix == ".md" and anchor not in anchors(at)]
    assert not dead, f"{page.name} links to anchors that do not exist: {dead}"


def test_the_picture_is_what_its_script_draws():
    pictures = script(ROOT / "docs" / "pictures.py")
    drawn = (ROOT / "docs" / "attend.svg").read_text(encoding="utf-8")
    assert drawn == pictures.attend() + "\n", "draw it again: .venv/bin/python docs/pictures.py"


def test_ci_runs_make_test():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run must be executable"
    text = script.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text and "make test" in text
    subprocess.run(["bash", "-n", script], check=True)


GLOSSARY, ARCHITECTURE = ROOT / "docs" / "glossary.md", ROOT / "docs" / "architecture.md"
NAMED = sorted(set(re.findall(r"`(qkv(?:\.\w+)+)`", GLOSSARY.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("name", NAMED)
def test_names_in_the_glossary_exist(name: str):
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, type):
        assert found.__module__ == module, f"{name} is defined in {found.__module__}"


def test_the_glossary_has_every_role():
    for module in pkgutil.walk_packages(qkv.__path__, "qkv."):
        if not module.name.endswith("__main__") and "flash.kernels" not in module.name:
            importlib.import_module(module.name)
    ours = [cls for cls in Spec.__subclasses__() if cls.__module__.startswith("qkv.")]
    roles = {cls for cls in ours if len(vars(cls).get("kinds", ())) > 1}
    missing = {f"{cls.__module__}.{cls.__name__}" for cls in roles} - set(NAMED)
    assert len(roles) > 15 and not missing, f"the glossary lacks {sorted(missing)}"


ROWS = re.findall(
    r"^\| ([^|]+) \| \[`([\w/.]+)`\]\(([^)]+)\) \| ([^|]+) \|$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize(("what", "path", "link", "names"), ROWS, ids=[row[0] for row in ROWS])
def test_a_mechanism_is_in_the_file_that_architecture_names(what: str, path: str, link: str, names: str):
    """All of what the row names is defined in the file, and nowhere else."""
    assert link == f"../src/qkv/{path}"
    for name in re.findall(r"`(\w+)`", names):
        found = [str(module.relative_to(LAYOUT.SOURCE)) for module in LAYOUT.MODULES if name in defined(module)]
        assert path in found, f"{what}: {name} is defined in {found}, not in {path}"


def test_architecture_lists_the_packages_in_their_order():
    listed = re.findall(r"^\| `(\w+)/` \|", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    packages = {path.parent.name for path in LAYOUT.SOURCE.glob("*/__init__.py")}
    assert set(listed) == packages and len(listed) == len(packages) and tuple(listed) == LAYOUT.ORDER


@functools.cache
def defined(module: Path) -> frozenset[str]:
    """Names that a module defines at its top."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef))
