"""The layout, kept: import order, no circles, sizes of folders and files, and where tests are."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "qkv"
MODULES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
MOST_LINES = 500
MOST_MODULES = 16
ORDER = (
    "lab",
    "learn",
    "cli",
    "serving",
    "testing",
    "runs",
    "io",
    "training",
    "generation",
    "look",
    "data",
    "nn",
    "core",
)
"""A package imports those to the right of it. `qkv/__init__.py` names everything lazily; no package imports it."""
LEFT_OUT = ("lab", "learn")
WITHIN = {
    "serving": ("http", "engine"),
    "runs": (
        "compare",
        "train",
        "planning",
        "report",
        "evaluate",
        "leaderboards",
        "export",
        "inference",
        "recipes",
        "tasks",
    ),
    "io": ("transformers", "directories", "families", "hub"),
    "nn": (
        *("pruning", "activations", "cost", "models", "attention", "layers", "quantization"),
        *("kernels", "kv_cache", "positions", "patterns"),
    ),
}
"""The same for the packages of a package."""


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def dotted_folder(path: Path) -> str:
    return dotted(path / "__init__.py")


NAMES = frozenset(map(dotted, MODULES))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every module that a file imports: at its top, in functions, and for types alone."""
    package = dotted(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:  # its own module, or a name in one
                whole = f"{name}.{alias.name}"
                yield node.lineno, whole if whole in NAMES or name not in NAMES else name


def _attributes(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every dotted expression in a file."""
    nodes = (node for node in ast.walk(_tree(path)) if isinstance(node, ast.Attribute))
    return ((node.lineno, ast.unparse(node)) for node in nodes)


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _named(path: Path) -> str:
    return str(path.relative_to(SOURCE))


DOORS = {
    "qkv",
    "qkv.__main__",
    "qkv.lm_eval",
    "qkv.mteb",
    "qkv.serve",
    "qkv.transformers",
}  # they import what they open


@functools.cache
def edges() -> list[tuple[str, str, str]]:
    """(importing module, imported module, place) of every import within the package."""
    return [
        (dotted(path), name, f"{_named(path)}:{line}")
        for path in MODULES
        if dotted(path) not in DOORS
        for line, name in imports(path)
        if name in NAMES
    ]


def test_every_package_has_its_place_in_the_order():
    assert {path.name for path in PACKAGES if path.parent == SOURCE} == set(ORDER)


def test_packages_import_only_what_is_below_them():
    wrong = [
        f"{place}: {importing} imports {imported}"
        for importing, imported, place in edges()
        if imported == "qkv" or ORDER.index(importing.split(".")[1]) > ORDER.index(imported.split(".")[1])
    ]
    assert len(ORDER) <= 13 and not wrong, "\n".join(wrong)


@pytest.mark.parametrize("storey", WITHIN)
def test_rooms_import_only_what_is_below_them(storey: str) -> None:
    order, inside = WITHIN[storey], f"qkv.{storey}."
    assert {path.name for path in PACKAGES if path.parent == SOURCE / storey} == set(order)
    rooms = [
        (importing.split(".")[2], imported.split(".")[2], place)
        for importing, imported, place in edges()
        if importing.startswith(inside) and imported.startswith(inside)
    ]
    wrong = [f"{place}: {one} imports {two}" for one, two, place in rooms if order.index(one) > order.index(two)]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_the_storeys_that_can_be_left_out():
    wrong = [
        f"{place}: {importing} imports {imported}"
        for importing, imported, place in edges()
        if imported.split(".")[1] in LEFT_OUT and importing.split(".")[1] != imported.split(".")[1]
    ]
    assert not wrong, "\n".join(wrong)


WITHOUT = """
import sys
from pathlib import Path
import qkv
from qkv.cli import main
from qkv.data.tokenizers.tokenizer import train

assert not (Path(qkv.__file__).parent / "lab").exists() and Path(qkv.__file__).is_relative_to(sys.argv[1])
small = ["data.train=60", "data.validation=8", "data.test=8", "model.d_model=16", "model.n_heads=2", "model.n_layers=1"]
small += ["training.max_steps=2", "evaluation.test_examples=4", "evaluation.examples=4", "generation.max_new_tokens=4"]
assert main(["train", "reverse", "--out", "run", *small]) == 0
assert main(["translate", "run", "a b"]) == 0
assert main(["convert", "run", "hub", "--to", "hub"]) in (0, 2)
assert main(["--help"]) == 0
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that imports a library without lab and learn."""
    for path in SOURCE.iterdir():
        if path.name not in (*LEFT_OUT, "__pycache__"):
            (tmp_path / "qkv").mkdir(exist_ok=True)
            (tmp_path / "qkv" / path.name).symlink_to(path)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def test_a_library_without_lab_and_learn_trains_and_generates(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "ablate" not in done.stdout and "translate" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_library_without_lab_and_learn_passes_the_tests_of_the_other_storeys(environment: dict[str, str]) -> None:
    tests = Path(__file__).parent
    folders = [str(tests / path.name) for path in SOURCE.iterdir() if path.name not in LEFT_OUT and path.is_dir()]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "not slow and not lab", "-p", "no:cacheprovider", "-n", "2"]
        + [folder for folder in folders if Path(folder).is_dir()],
        capture_output=True,
        text=True,
        cwd=tests.parent,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("folder", PACKAGES, ids=dotted_folder)
def test_no_import_circle_among_the_files_and_folders_of(folder: Path) -> None:
    """Each file, and each folder as a whole, is one node."""
    inside, graph = dotted(folder / "__init__.py") + ".", defaultdict(set)
    for importing, imported, _ in edges():
        if importing.startswith(inside) and imported.startswith(inside):
            first, second = (name.removeprefix(inside).split(".")[0] for name in (importing, imported))
            if first != second:
                graph[first].add(second)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


@pytest.mark.parametrize("folder", PACKAGES, ids=dotted_folder)
def test_a_folder_holds_few_modules_or_many_alike(folder: Path) -> None:
    """More than a screen of modules only if all are of one kind, which the package's first line says: "one … a file"."""
    children = [path for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    first = (ast.get_docstring(_tree(folder / "__init__.py")) or "").split("\n\n")[0]
    alike = "one " in first and (" a file" in first or " a folder" in first or " each" in first)
    assert folder == SOURCE or len(children) <= MOST_MODULES or alike, f"{len(children)} modules: {first}"


def test_only_parallel_knows_how_processes_are_connected():
    wrong = [
        f"{_named(path)}:{line}"
        for path in MODULES
        if SOURCE / "training" / "parallel" not in path.parents and "distributed" in path.read_text(encoding="utf-8")
        for line, name in [*imports(path), *_attributes(path)]
        if f"{name}.".startswith("torch.distributed.")
    ]
    assert not wrong, f"torch.distributed belongs in training/parallel/: {wrong}"


def test_a_public_class_name_means_one_thing():
    homes = defaultdict(list)
    for path in MODULES:
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(_named(path))
    assert not (several := {name: files for name, files in homes.items() if len(files) > 1}), several


def test_a_file_holds_one_idea():
    tests = Path(__file__).parent
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (*MODULES, *tests.rglob("*.py"))}
    long = {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > MOST_LINES}
    assert not long, f"more than {MOST_LINES} lines probably hold two ideas: {long}"


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """The statements of a function, without its docstring."""
    return function.body[1:] if ast.get_docstring(function) else function.body


def _functions(path: Path) -> list[tuple[str, int]]:
    """The name of every function in a file, and the number of lines of its body."""
    found = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    bodies = [(one.name, _body(one)) for one in found]
    return [(name, (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0) for name, body in bodies]


def test_no_function_needs_scrolling():
    """Signatures and docstrings don't count: a command declares each option in a few lines."""
    long = [f"{_named(path)}: {name}, {lines}" for path in MODULES for name, lines in _functions(path) if lines > 60]
    assert not long, "\n".join(long)


MOST_ANY = 79
"""Public parameters, results and fields annotated as plain `Any`; `*args` and `**options` that are passed on don't count."""


def _plain_any(body: list[ast.stmt]) -> Iterator[str]:
    """The public functions and fields of a module or a class that are annotated as `Any`, each as often as it is."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            yield from (f"{node.name}.{ast.unparse(one.target)}" for one in fields if _is_any(one.annotation))
            yield from (f"{node.name}.{name}" for name in _plain_any(node.body))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.removeprefix("__").startswith(
            "_"
        ):
            given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            annotations = [*(one.annotation for one in given), node.returns]
            yield from [node.name] * sum(map(_is_any, annotations))


def _is_any(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def test_public_functions_name_their_types():
    found = [f"{_named(path)}: {name}" for path in MODULES for name in _plain_any(_tree(path).body)]
    assert len(found) <= MOST_ANY, "\n".join(found)


def test_a_module_says_what_it_is_about():
    silent = [_named(path) for path in MODULES if _tree(path).body and not ast.get_docstring(_tree(path))]
    assert not silent, f"a module docstring says in a sentence or two what its file is about: {silent}"


WRITERS = {
    "core/atomic.py": "it is the one that replaces and removes",
    "nn/kernels/native/compiler.py": "its cache of libraries, and a source that it tries",
    "data/files/parquet.py": "its own temporary file",
    "io/directories/lock.py": "the lock, and the folders that it made",
    "io/directories/sentence_transformers.py": "copies into a new folder",
    "training/parallel/launch.py": "the ranks' messages in a temporary folder, and logs that grow",
    "training/logging/metrics_file.py": "a log that grows",
    "serving/http/uploads.py": "an upload, in a temporary folder of its own",
}
REPLACING = {
    *("unlink", "rmdir", "rename", "rmtree", "move", "copy", "copyfile", "copytree", "touch", "truncate"),
    *("write_text", "write_bytes", "remove", "symlink_to", "hardlink_to"),
}
OURS = ("atomic", "layout", "tokenizer_json")  # modules whose functions have such names and replace as a whole


def _replacements(path: Path) -> Iterator[str]:
    """The calls in a file that could replace, remove or cut what is on disk."""
    within: set[ast.AST] = set()  # blocks that write to a temporary path
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.With) and any("replacing" in ast.unparse(item) for item in node.items):
            within.update(inner for item in (*node.items, *node.body) for inner in ast.walk(item))
        if node in within or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        if name != "open" and name not in REPLACING:
            continue
        of = ast.unparse(node.func.value)
        opens = name == "open" and any(
            isinstance(one, ast.Constant) and isinstance(one.value, str) and set(one.value) <= set("wax+bt")
            for one in node.args
        )
        is_of_objects = name in ("remove", "copy", "move") and of not in ("os", "shutil")
        if (opens or name != "open") and of not in OURS and not is_of_objects:
            yield f"{of}.{name}, line {node.lineno}"


def test_one_module_replaces_and_removes_what_is_on_disk() -> None:
    found = {_named(path): list(_replacements(path)) for path in MODULES}
    assert set(WRITERS) <= {name for name, calls in found.items() if calls}, "one of these needs no exception"
    others = {name: calls for name, calls in found.items() if calls and name not in WRITERS}
    assert not others, f"use core.atomic, so a kill or a full disk leaves the old file or the new one: {others}"


# -- tests stand where their modules do ---------------------------------------------------------------------------------

TESTED_ELSEWHERE = {
    "io/families/": "io/families/test_parity.py",  # one table of cases holds every family to transformers
    "nn/kernels/flash/kernels/language.py": "nn/kernels/flash/test_flash.py",  # imports Triton, which the kernels need
    "nn/kernels/native/decoding_step.py": "nn/models/fused_step/test_step.py",  # one call of C++, with a whole model
    "nn/kernels/native/encoding.py": "nn/models/fused_step/test_encoding.py",  # the same
}
"""Modules, and folders, whose logic is only seen through another one, the tests that see it, and why."""
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try, ast.Match, ast.comprehension, ast.BoolOp)
MOST_PLAIN = 10  # lines of a function without branches that is no logic


def _has_logic(path: Path) -> bool:
    """Whether some function branches or is longer than a few lines."""
    functions = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    branches = any(isinstance(node, BRANCHES) for one in functions for node in ast.walk(one))
    return branches or any(lines > MOST_PLAIN for _, lines in _functions(path))


def test_a_module_with_logic_has_its_tests_at_the_same_place() -> None:
    tests = Path(__file__).parent
    modules = [path for path in MODULES if not path.name.startswith("__") and _has_logic(path)]
    missing = [
        name for name in map(_named, modules) if not (tests / name).with_name(f"test_{Path(name).name}").is_file()
    ]
    known = {name: next((one for one in TESTED_ELSEWHERE if f"{name}/".startswith(one)), None) for name in missing}
    homeless = [name for name, place in known.items() if place is None]
    assert not homeless, f"write tests/FOLDER/test_NAME.py for src/qkv/FOLDER/NAME.py: {homeless}"
    assert set(known.values()) == set(TESTED_ELSEWHERE), "one of these needs no exception any more"
    assert all((tests / place).is_file() for place in TESTED_ELSEWHERE.values())


# -- what errors quote ------------------------------------------------------------------------------------------------

CUT_LATER = ("cli", "testing", "commands")
"""What these quote is an argument of a command, which `cli/errors.py` shortens, or what a developer's part gave."""
OF_OURS = ("kind", "model_type", "weights")
"""Attributes whose values are names that our own code gives."""


def _is_bounded(value: ast.expr) -> bool:
    """Whether a value is a constant, a name of ours, or cut: `text[:60]`."""
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Slice) and value.slice.upper is not None
    named = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    return isinstance(value, ast.Constant) or named in OF_OURS * isinstance(value, ast.Attribute) or named.isupper()


def _quoted_whole(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Raise) or node.exc is None or ast.unparse(node.exc).startswith("AttributeError("):
            continue  # an attribute's name stands in code
        for part in ast.walk(node.exc):
            if isinstance(part, ast.FormattedValue) and part.conversion == ord("r") and not _is_bounded(part.value):
                yield f"line {part.lineno}: {ast.unparse(part.value)}"


def test_an_error_quotes_no_value_of_any_length() -> None:
    files = [path for path in MODULES if not {*path.relative_to(SOURCE).parts} & {*CUT_LATER}]
    assert not (found := {_named(path): quoted for path in files if (quoted := [*_quoted_whole(_tree(path))])}), (
        f"write {{brief(value)}}, of core.spec, in place of {{value!r}}: {found}"
    )
