"""Print the distributions that qkv brings beyond torch and numpy, with the megabytes of their files, as installed here.

    python docs/examples/installed_sizes.py              what `pip install qkv` brings
    python docs/examples/installed_sizes.py EXTRA …      what these extras add to that

Bytecode, which pip compiles after installing, is counted apart.
"""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement


def reached(requirement: str, seen: dict[str, Distribution]) -> dict[str, Distribution]:
    """Add what a requirement installs here, and what that requires, to `seen`, by name and extra."""
    wanted = Requirement(requirement)
    for extra in ("", *sorted(wanted.extras)):
        name = wanted.name.lower().replace("_", "-")
        if (key := f"{name}[{extra}]") in seen:
            continue
        try:
            seen[key] = distribution(name)
        except PackageNotFoundError:
            continue
        for line in seen[key].requires or ():
            each = Requirement(line)
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                reached(f"{each.name}[{','.join(each.extras)}]" if each.extras else each.name, seen)
    return seen


def megabytes(one: Distribution) -> tuple[float, float]:
    """The size of a distribution's files, and of its bytecode."""
    sizes = [0, 0]
    for file in one.files or ():
        path = one.locate_file(file)
        if path.is_file():  # type: ignore[attr-defined]
            sizes[file.suffix == ".pyc"] += path.stat().st_size  # type: ignore[attr-defined]
    return sizes[0] / 1e6, sizes[1] / 1e6


def names(*requirements: str) -> set[str]:
    """What requirements install here."""
    return {key.partition("[")[0] for one in requirements for key in reached(one, {})}


def main() -> None:
    there = names("torch", "numpy") | {"qkv"}
    ours = names(f"qkv[{','.join(sys.argv[1:])}]") - names("qkv") if sys.argv[1:] else names("qkv")
    rows = {name: megabytes(distribution(name)) for name in sorted(ours - there)}
    for name, (files, bytecode) in rows.items():
        print(f"{name:24}{files:8.1f} MB{bytecode:8.1f} MB of bytecode")
    files, bytecode = (sum(row[kind] for row in rows.values()) for kind in (0, 1))
    print(f"{len(rows)} distributions, {files:.1f} MB and {bytecode:.1f} MB of bytecode")


if __name__ == "__main__":
    main()
