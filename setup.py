"""Compiles the C++ kernels into wheels for Linux on x86-64, where there is a compiler; makes the README's links absolute;
adds the tour.

Everything else is in pyproject.toml.

An editable install compiles nothing: kernels are then built when they are first wanted. `QKV_PREBUILT=0` leaves them out.
"""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_py import build_py

NATIVE = Path("src/qkv/nn/kernels/native")


def load_prebuilt():
    spec = spec_from_file_location("prebuilt", NATIVE / "prebuilt.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


prebuilt = load_prebuilt()


def compiler():
    """The C++ compiler, where kernels are to be compiled at all."""
    if not prebuilt.supported() or os.environ.get("QKV_PREBUILT") == "0":
        return None
    return os.environ.get("CXX", "").strip() or shutil.which("g++") or shutil.which("clang++")


class BuildKernels(Command):
    """Compile each source for each of its instruction sets. What can't be compiled is left out, and told."""

    description = "compile the C++ kernels"
    user_options: ClassVar[list[tuple[str, str, str]]] = []

    def initialize_options(self):
        self.build_lib = None
        self.editable_mode = False

    def finalize_options(self):
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self):
        if self.editable_mode or compiler() is None:
            return
        folder = Path(self.build_lib, *NATIVE.parts[1:])
        folder.mkdir(parents=True, exist_ok=True)
        for earlier in folder.glob("*.so"):
            earlier.unlink()
        jobs = [(NATIVE / f"{stem}.cpp", target) for stem, targets in prebuilt.TARGETS.items() for target in targets]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda job: self.compile(folder, *job), jobs))

    def compile(self, folder, source, target):
        library = folder / prebuilt.file_name(source, target)
        compiled, linked, command = library.with_suffix(".o"), library.with_suffix(".tmp"), shlex.split(compiler())
        try:
            for step in (
                [*prebuilt.FLAGS, *target.flags, "-Wno-psabi", str(source), "-o", str(compiled)],
                [*prebuilt.LINK, str(compiled), "-o", str(linked)],
            ):
                subprocess.run([*command, *step], check=True)
            linked.replace(library)
        except (OSError, subprocess.CalledProcessError) as error:
            self.warn(f"{source.name} is not compiled for {target.name}: {error}")
        finally:
            compiled.unlink(missing_ok=True)
            linked.unlink(missing_ok=True)

    def get_source_files(self):
        return [str(path) for path in sorted(NATIVE.glob("*.cpp")) + sorted(NATIVE.glob("*.h"))]

    def get_outputs(self):
        return [str(path) for path in Path(self.build_lib, *NATIVE.parts[1:]).glob("*.so")]

    def get_output_mapping(self):
        return {}


class BuildPython(build_py):
    """Copies the pages of the tour from docs/ into the package."""

    def run(self):
        super().run()
        if not self.editable_mode:
            shutil.copytree("docs/tour", Path(self.build_lib, "qkv", "learn", "tour", "pages"), dirs_exist_ok=True)


class Build(build):
    sub_commands: ClassVar = [*build.sub_commands, ("build_kernels", None)]


class Platform(Distribution):
    """Its wheels are for one platform where they bring compiled kernels."""

    def has_ext_modules(self):
        return compiler() is not None


class PlatformWheel(bdist_wheel):
    """For any Python: the kernels don't use its interface."""

    def get_tag(self):
        python, abi, platform = super().get_tag()
        return ("py3", "none", platform) if self.distribution.has_ext_modules() else (python, abi, platform)


def readme():
    """README.md for PyPI, where relative links lead nowhere: links to the repository, and pictures from it."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project["urls"]["Repository"]
    text = Path("README.md").read_text(encoding="utf-8")
    relative = r"\((?![a-z]+:|#)([^()\s]+)\)"
    pictures = re.sub(rf"(!\[[^\]]*\]){relative}", rf"\1({repository}/raw/main/\2)", text)
    return re.sub(rf"(?<=\]){relative}", rf"({repository}/blob/main/\1)", pictures)


setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    distclass=Platform,
    cmdclass={"build": Build, "build_py": BuildPython, "build_kernels": BuildKernels, "bdist_wheel": PlatformWheel},
)
