"""Runs a chat template in Jinja's sandbox, in a separate process with limits on time and memory.

A template is a program that comes with a model. It can access only its inputs and call only the functions, filters and
methods listed below. Steps and text lengths are counted, so that a runaway template ends with a clear error; anything else
ends at the limits that the operating system sets for this process.

This file is a script (see process.py) and imports nothing but the standard library and Jinja.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import json
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils

LARGEST_TEXT = 4 << 20  # characters of anything that a template makes
ALL_TEXTS = 16 * LARGEST_TEXT  # characters of everything that it makes together
MOST_STEPS = 200_000  # loops' turns and calls
MOST_SECONDS = 2  # of computing, for one conversation
MOST_WAITING = 30  # seconds by the clock, where computing can't be told apart
MOST_MEMORY = 256 << 20  # bytes beyond what the process began with
READY = b"ready\n"  # what it says first
OPENED, CLOSED = "\ue0f0", "\ue0f1"  # what a {% generation %} block stands between, until the text is taken apart

_FILTERS = """
abs batch capitalize count d default dictsort e escape first float groupby indent int items join last length list
lower map max min reject rejectattr replace reverse round safe select selectattr slice sort string sum title tojson
trim truncate unique upper wordcount
"""
FILTERS = frozenset(_FILTERS.split())
_METHODS = """
append capitalize clear copy count endswith extend find get index insert isalnum isalpha isdigit islower isnumeric
isspace isupper items join keys lower lstrip partition pop remove removeprefix removesuffix replace reverse rfind
rindex rpartition rsplit rstrip setdefault sort split splitlines startswith strip swapcase title update upper values
"""
METHODS = frozenset(_METHODS.split())


class TooMuch(Exception):
    """A template took more than it may."""


class Refused(Exception):
    """What a template says by `raise_exception`."""


class Program:
    """A compiled template. One run at a time has the budget of steps and characters."""

    def __init__(self, source: str) -> None:
        self.steps, self.characters = MOST_STEPS, ALL_TEXTS
        environment = self._environment()
        try:
            tree = environment.parse(source)
            for node in list(tree.find_all(jinja2.nodes.For)):
                node.iter = jinja2.nodes.Filter(node.iter, "_counted", [], [], None, None, lineno=node.lineno)
            _replace_concat(tree)
            code = environment.compile(tree)
            self.template = jinja2.Template.from_code(environment, code, environment.globals)
        except (jinja2.TemplateError, SyntaxError, ValueError) as error:
            raise ValueError(f"the chat template is not valid: {_line(error)}") from None
        except RecursionError:
            raise ValueError("the chat template is nested too deep") from None

    def run(self, values: Mapping[str, Any]) -> str:
        """Raises ValueError in one sentence where the template refuses, fails, or takes more than it may."""
        self.steps, self.characters = MOST_STEPS, ALL_TEXTS
        pieces, length = [], 0
        try:
            for piece in self.template.generate(**values):
                length += len(piece)
                if length > LARGEST_TEXT:
                    raise TooMuch(f"makes more than {LARGEST_TEXT:,} characters")
                pieces.append(piece)
        except TooMuch as error:
            raise ValueError(f"the chat template {error}, so it was stopped") from None
        except Refused as error:
            raise ValueError(f"the chat template refuses this conversation: {_line(error)}") from None
        except jinja2.exceptions.SecurityError as error:
            raise ValueError(f"the chat template asks for what no template may: {_line(error)}") from None
        except RecursionError:
            raise ValueError("the chat template calls itself without end, so it was stopped") from None
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(f"the chat template fails on this conversation: {_line(error)}") from None
        return "".join(pieces)

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise TooMuch(f"takes more than {MOST_STEPS:,} steps")

    def room(self, characters: int) -> None:
        """Count a text that is about to be made."""
        self.characters -= characters
        if characters > LARGEST_TEXT:
            raise TooMuch(f"makes a text of more than {LARGEST_TEXT:,} characters")
        if self.characters < 0:
            raise TooMuch(f"makes texts of more than {ALL_TEXTS:,} characters together")

    def counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """What a loop goes through, each turn a step."""
        for item in items:
            self.step()
            yield item

    def joined(self, parts: Iterable[Any], between: str = "", attribute: Any = None) -> str:
        texts = [str(part if attribute is None else part[attribute]) for part in parts]
        self.room(sum(map(len, texts)) + len(between) * len(texts))
        return between.join(texts)

    def replaced(self, text: Any, old: str, new: str, count: int = -1) -> str:
        text = str(text)
        self.room(len(text) + text.count(old) * len(new))
        return text.replace(old, new, count)

    def method_called(self, owner: str, name: str, args: Sequence[Any]) -> None:
        """Count the text that a method of texts is about to make."""
        if name == "replace" and len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], str):
            self.room(len(owner) + owner.count(args[0]) * len(args[1]))
        elif name == "join" and args and isinstance(args[0], str | list | tuple):
            self.room(len(owner) * len(args[0]) + sum(map(len, map(str, args[0]))))
        else:
            self.room(len(owner))

    def computed(self, operator: str, left: Any, right: Any) -> None:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if not numbers and operator == "+":
            self.room(sum(len(value) for value in (left, right) if isinstance(value, str | list | tuple)))
        elif not numbers and operator == "*" and any(isinstance(value, int) for value in (left, right)):
            times, repeated = (left, right) if isinstance(left, int) else (right, left)
            self.room(len(repeated) * max(0, times))
        elif not numbers or operator == "**" or (operator == "*" and abs(left * 1.0) * abs(right * 1.0) > 2**53):
            raise TooMuch(f"computes with {operator!r} what no template needs to")

    def _environment(self) -> jinja2.sandbox.SandboxedEnvironment:
        program = self

        class Sandbox(jinja2.sandbox.SandboxedEnvironment):
            """Lists may grow here: what a template changes is a copy, made for this one run."""

            intercepted_binops = frozenset({"+", "*", "**", "%"})

            def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
                if not super().is_safe_attribute(obj, attr, value):
                    return False
                own = type(obj).__module__.startswith("jinja2")  # `loop`
                return own or not callable(value) or attr in METHODS

            def wrap_str_format(self, value: Any) -> None:
                """Formats may ask for any width, so `format` is a method like any other that is not listed."""

            def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
                program.step()
                owner = getattr(function, "__self__", None)
                if isinstance(owner, str):
                    program.method_called(owner, getattr(function, "__name__", ""), args)
                return super().call(context, function, *args, **kwargs)

            def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
                program.step()
                program.computed(operator, left, right)
                return super().call_binop(context, operator, left, right)

        made = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])
        made.filters = {name: made.filters[name] for name in FILTERS}
        made.filters |= {"tojson": _tojson, "replace": self.replaced, "join": self.joined, "_counted": self.counted}
        made.filters["_concat"] = self.joined
        made.globals = {"range": _range, "namespace": Namespace, "dict": _dict}
        made.globals |= {"raise_exception": _refuse, "strftime_now": _strftime_now}
        return made


class Namespace(jinja2.utils.Namespace):
    """A template's variables; none may take the place of what Python keeps under `__…__`."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, values = args[0], dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a variable {name!r} that begins with an underscore")


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _refuse(message: Any = "") -> NoReturn:
    raise Refused(str(message)[:200])


def _strftime_now(pattern: str) -> str:
    if len(pattern) > 100:
        raise TooMuch("asks for the date in more than 100 characters")
    return datetime.datetime.now().strftime(pattern)


def _range(*bounds: int) -> range:
    made = range(*bounds)
    if len(made) > 10_000:
        raise TooMuch(f"counts to {len(made):,}")
    return made


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON without the escapes for HTML that Jinja's own has."""
    if (len(indent) if isinstance(indent, str) else indent or 0) > 16:
        raise TooMuch("indents JSON by more than 16 characters")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _replace_concat(tree: Any) -> None:
    """Let `a ~ b` be a filter, which has a bound, in place of a join without."""
    nodes = jinja2.nodes
    for node in list(tree.find_all(nodes.Node)):
        for name in node.fields:
            value = getattr(node, name)
            if isinstance(value, nodes.Concat):
                setattr(node, name, _as_filter(value))
            elif isinstance(value, list):
                value[:] = [_as_filter(item) if isinstance(item, nodes.Concat) else item for item in value]


def _as_filter(node: Any) -> jinja2.nodes.Filter:
    items = jinja2.nodes.List(node.nodes, lineno=node.lineno)
    return jinja2.nodes.Filter(items, "_concat", [], [], None, None, lineno=node.lineno)


class Generation(jinja2.ext.Extension):
    """The tag {% generation %} … {% endgeneration %} around what the assistant says."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Any) -> list[jinja2.nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)

        def mark(text: str) -> jinja2.nodes.Output:
            return jinja2.nodes.Output([jinja2.nodes.TemplateData(text)], lineno=line)

        return [mark(OPENED), *body, mark(CLOSED)]


# -- the process ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer requests, each a line of JSON on stdin: {"source": …} compiles a template, and "values" runs it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that this one serves
    compiled = lru_cache(maxsize=8)(Program)
    limit_memory()
    _say(READY)
    for line in sys.stdin.buffer:
        answer: dict[str, Any]
        renew_time()
        try:
            request = json.loads(line)
            program = compiled(request["source"])
            answer = {"text": program.run(request["values"]) if "values" in request else ""}
        except ValueError as error:
            answer = {"error": str(error)}
        except RecursionError:
            answer = {"error": "the conversation is nested too deep"}
        except MemoryError:
            answer = {
                "error": f"the chat template takes more than {MOST_MEMORY >> 20} MiB of memory, so it was stopped"
            }
            answer["last"] = True
        _say(json.dumps(answer).encode("ascii") + b"\n")
        faulthandler.cancel_dump_traceback_later()
        if "last" in answer:
            return


def _say(line: bytes) -> None:
    """Past the text layer, which on Windows ends lines by two characters."""
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def limit_memory() -> None:
    """Bound what this process may have in memory, and let it open and write nothing, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    now = 0
    with contextlib.suppress(OSError, ValueError):
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bounds = [
        (resource.RLIMIT_AS, (now or 1 << 30) + MOST_MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ]
    for which, most in bounds:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (most, most))


def renew_time() -> None:
    """Give the next request its time; a process that uses it up is ended by the system."""
    faulthandler.dump_traceback_later(MOST_WAITING, exit=True)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        soon = int(used.ru_utime + used.ru_stime) + MOST_SECONDS + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soon if hard < 0 else min(soon, hard), hard))


if __name__ == "__main__":
    main()
