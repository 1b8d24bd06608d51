"""The Python reference: public classes and functions of each package, read from the source without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .docstrings import first, markdown, table

SOURCE = Path(__file__).parents[3] / "src" / "qkv"
Definition = ast.ClassDef | ast.FunctionDef


def pages() -> dict[str, str]:
    """A page for each package, and one with all names of `qkv` itself."""
    return {"python/index.md": _index(), **{f"python/{name}.md": package_page(name) for name in packages()}}


@cache
def packages() -> tuple[str, ...]:
    """The storeys, or their rooms if all modules of a storey are in rooms."""
    found = []
    for storey in sorted(path.parent for path in SOURCE.glob("*/__init__.py")):
        rooms = sorted(path.parent.name for path in storey.glob("*/__init__.py"))
        only_rooms = rooms and [path.name for path in storey.glob("*.py")] == ["__init__.py"]
        found += [f"{storey.name}.{room}" for room in rooms] if only_rooms else [storey.name]
    return tuple(found)


@cache
def modules(package: str) -> dict[str, ast.Module]:
    """The syntax trees of a package's public modules that define public names, by dotted name below `qkv`."""
    found = {}
    for path in sorted((SOURCE / package.replace(".", "/")).rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        name = ".".join(part for part in parts if part != "__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def definitions(tree: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """Public classes, and public functions that have a docstring."""
    for node in tree.body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef) or ast.get_docstring(node):
            yield node


def exported() -> dict[str, str]:
    """The names of `qkv` itself, by the module that defines each."""
    import qkv

    return {name: qkv._NAMES[name].removeprefix("qkv.") for name in qkv.__all__}


def _index() -> str:
    """The names of `qkv`, and the packages."""
    trees = {name: tree for package in packages() for name, tree in modules(package).items()}
    places = {(module, node.name): node for module, tree in trees.items() for node in definitions(tree)}
    rows = []
    for name, module in exported().items():
        node = places.get((module, name))
        target = f"[`qkv.{name}`]({_package(module)}.md#qkv.{module}.{name})" if node else f"`qkv.{name}`"
        rows.append((target, first(ast.get_docstring(node)) if node else _constant(module, name)))
    about = [(f"[`qkv.{p}`]({p}.md)", first(ast.get_docstring(modules(p)[p]))) for p in packages()]
    return (
        "# Python\n\nNames that `import qkv` offers:\n\n"
        + table(("name", ""), rows)
        + "\nAll packages, from which everything else is imported:\n\n"
        + table(("package", "contents"), about)
    )


def _package(module: str) -> str:
    return next(name for name in packages() if f"{module}.".startswith(f"{name}."))


def _constant(module: str, name: str) -> str:
    return f"From `qkv.{module}`."


def package_page(package: str) -> str:
    """The page of a package."""
    parts = ["---\ntoc_depth: 3\n---", f"# qkv.{package}"]
    for name, tree in modules(package).items():
        found = list(definitions(tree))
        if name == package:
            parts.append(markdown(ast.get_docstring(tree)))
        elif found:
            parts += [f"## {name} {{ #qkv.{name} }}", markdown(ast.get_docstring(tree))]
        parts += [_definition(node, name) for node in found]
    return "\n\n".join(part for part in parts if part) + "\n"


def _definition(node: Definition, module: str) -> str:
    anchor = f"qkv.{module}.{node.name}"
    parts = [f"### {node.name} {{ #{anchor} }}", _code(_signature(node)), markdown(ast.get_docstring(node))]
    if isinstance(node, ast.ClassDef):
        methods = [one for one in definitions(node) if isinstance(one, ast.FunctionDef)]
        parts += [f"- `{_short(method)}`: {first(ast.get_docstring(method))}" for method in methods]
        if methods:
            return "\n\n".join(filter(None, parts[: -len(methods)])) + "\n\n" + "\n".join(parts[-len(methods) :])
    return "\n\n".join(part for part in parts if part)


def _code(text: str) -> str:
    return f'``` {{.python data-search-exclude=""}}\n{text}\n```'


def _signature(node: Definition) -> str:
    if isinstance(node, ast.FunctionDef):
        return _call(node)
    bases = ", ".join([*map(ast.unparse, node.bases), *(f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords)])
    fields = [
        f"    {ast.unparse(one)}"
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_")
    ]
    own = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    if own is not None:
        fields.append("    " + _call(own).replace("\n", "\n    "))
    return "\n".join([f"class {node.name}({bases})" if bases else f"class {node.name}", *fields])


def _call(node: ast.FunctionDef) -> str:
    """`def name(…) -> …`, over several lines if it is long."""
    arguments, returns = ast.unparse(node.args), f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"def {node.name}({arguments}){returns}"
    if len(line) <= 100:
        return line
    return f"def {node.name}(\n    " + ",\n    ".join(_arguments(node.args)) + f",\n){returns}"


def _arguments(arguments: ast.arguments) -> list[str]:
    """The parameters of a function one by one, as they are written."""

    def shown(argument: ast.arg, default: ast.expr | None, before: str = "") -> str:
        value = "" if default is None else f" = {ast.unparse(default)}"
        return f"{before}{ast.unparse(argument)}{value}"

    plain = [*arguments.posonlyargs, *arguments.args]
    missing = [None] * (len(plain) - len(arguments.defaults))
    parts = [shown(*pair) for pair in zip(plain, [*missing, *arguments.defaults], strict=True)]
    if arguments.posonlyargs:
        parts.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        parts.append(shown(arguments.vararg, None, "*"))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [shown(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return parts + ([shown(arguments.kwarg, None, "**")] if arguments.kwarg else [])


def _short(method: ast.FunctionDef) -> str:
    """`name(a, b=1)` of a method, without types."""
    if any(isinstance(one, ast.Name) and one.id == "property" for one in method.decorator_list):
        return method.name
    arguments = method.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names = [name for name in names if name not in ("self", "cls")]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return f"{method.name}({', '.join(names)})"
