"""Runs a chat template in Jinja's sandbox, in a separate process with limits on time and memory.

A template is a program that comes with a model. It can access only its inputs and call only the functions, filters and
methods listed below. Steps and text lengths are counted, so a runaway template ends with a clear error; anything else
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

LARGEST_TEXT = 4 << 20  # characters of one text that a template computes
ALL_TEXTS = 16 * LARGEST_TEXT  # characters of all texts that it computes
MOST_STEPS = 200_000  # loop iterations and calls
MOST_SECONDS = 2  # CPU time for one conversation
MOST_WAITING = 30  # seconds of wall-clock time for one conversation
MOST_MEMORY = 256 << 20  # bytes beyond what the process used at its start
READY = b"ready\n"  # the first line of the process's output
OPENED, CLOSED = "\ue0f0", "\ue0f1"  # markers around the text of a {% generation %} block

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
    """A template exceeded a limit."""


class Refused(Exception):
    """Raised by `raise_exception` in a template."""


class Program:
    """A compiled template, with a budget of steps and characters for each run."""

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
        """Render the template. Raises ValueError if it refuses, fails, or exceeds a limit."""
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
            raise ValueError(f"the chat template uses something that templates may not use: {_line(error)}") from None
        except RecursionError:
            raise ValueError("the chat template calls itself without end, so it was stopped") from None
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(f"the chat template fails on this conversation: {_line(error)}") from None
        return "".join(pieces)

    def step(self) -> None:
        """Count one loop iteration, call or operation."""
        self.steps -= 1
        if self.steps < 0:
            raise TooMuch(f"takes more than {MOST_STEPS:,} steps")

    def room(self, characters: int) -> None:
        """Count the characters of a text before it is computed."""
        self.characters -= characters
        if characters > LARGEST_TEXT:
            raise TooMuch(f"makes a text of more than {LARGEST_TEXT:,} characters")
        if self.characters < 0:
            raise TooMuch(f"makes texts of more than {ALL_TEXTS:,} characters together")

    def counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """Iterate over a loop's items, counting each as a step."""
        for item in items:
            self.step()
            yield item

    def joined(self, parts: Iterable[Any], between: str = "", attribute: object = None) -> str:
        texts = [str(part if attribute is None else part[attribute]) for part in parts]
        self.room(sum(map(len, texts)) + len(between) * len(texts))
        return between.join(texts)

    def replaced(self, text: object, old: str, new: str, count: int = -1) -> str:
        text = str(text)
        self.room(len(text) + text.count(old) * len(new))
        return text.replace(old, new, count)

    def method_called(self, owner: str, name: str, args: Sequence[Any]) -> None:
        """Count the characters of the result of a string method before the call."""
        if name == "replace" and len(args) > 1 and isinstance(args[0], str) and isinstance(args[1], str):
            self.room(len(owner) + owner.count(args[0]) * len(args[1]))
        elif name == "join" and args and isinstance(args[0], str | list | tuple):
            self.room(len(owner) * len(args[0]) + sum(map(len, map(str, args[0]))))
        else:
            self.room(len(owner))

    def computed(self, operator: str, left: Any, right: Any) -> None:
        """Count the characters of the result of an operator; refuse operators with unbounded results."""
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if not numbers and operator == "+":
            self.room(sum(len(value) for value in (left, right) if isinstance(value, str | list | tuple)))
        elif not numbers and operator == "*" and any(isinstance(value, int) for value in (left, right)):
            times, repeated = (left, right) if isinstance(left, int) else (right, left)
            self.room(len(repeated) * max(0, times))
        elif not numbers or operator == "**" or (operator == "*" and abs(left * 1.0) * abs(right * 1.0) > 2**53):
            raise TooMuch(f"uses {operator[:40]!r} on values for which it isn't allowed")

    def _environment(self) -> jinja2.sandbox.SandboxedEnvironment:
        program = self

        class Sandbox(jinja2.sandbox.SandboxedEnvironment):
            """Jinja's sandbox with an allowlist of methods. Lists may change, because each run has its own copies."""

            intercepted_binops = frozenset({"+", "*", "**", "%"})

            def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
                if not super().is_safe_attribute(obj, attr, value):
                    return False
                is_jinja = type(obj).__module__.startswith("jinja2")  # such as `loop`
                return is_jinja or not callable(value) or attr in METHODS

            def wrap_str_format(self, value: Any) -> None:
                """Refuse `str.format` like other unlisted methods, because formats may request any width."""

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

        environment = Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationTag]
        )
        environment.filters = {name: environment.filters[name] for name in FILTERS}
        environment.filters |= {"tojson": _tojson, "replace": self.replaced, "join": self.joined}
        environment.filters |= {"_counted": self.counted, "_concat": self.joined}
        environment.globals = {"range": _range, "namespace": Namespace, "dict": _dict}
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _strftime_now}
        return environment


class Namespace(jinja2.utils.Namespace):
    """Jinja's `namespace`, without names that begin with an underscore: they could replace Python's own attributes."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, values = args[0], dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"the variable {name[:40]!r}, which begins with an underscore")


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _refuse(message: Any = "") -> NoReturn:
    raise Refused(str(message)[:200])


def _strftime_now(pattern: str) -> str:
    if len(pattern) > 100:
        raise TooMuch("asks for the date in more than 100 characters")
    return datetime.datetime.now().strftime(pattern)


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > 10_000:
        raise TooMuch(f"counts to {len(numbers):,}; 10,000 is the limit")
    return numbers


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's `tojson` filter without HTML escapes."""
    if (len(indent) if isinstance(indent, str) else indent or 0) > 16:
        raise TooMuch("indents JSON by more than 16 characters")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _replace_concat(tree: Any) -> None:
    """Replace `a ~ b` by a filter whose result has a limited length."""
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


class GenerationTag(jinja2.ext.Extension):
    """The tag {% generation %} … {% endgeneration %} around the assistant's text."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)

        def mark(text: str) -> jinja2.nodes.Output:
            return jinja2.nodes.Output([jinja2.nodes.TemplateData(text)], lineno=line)

        return [mark(OPENED), *body, mark(CLOSED)]


# -- the process ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer requests, one line of JSON each, from stdin: {"source": …} compiles a template, "values" renders it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process
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
    """Write a line of bytes to stdout, since text mode would write CRLF line ends on Windows."""
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def limit_memory() -> None:
    """Limit this process's memory, and forbid core dumps and writing files, if the system supports it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    used = 0
    with contextlib.suppress(OSError, ValueError):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bounds = [
        (resource.RLIMIT_AS, (used or 1 << 30) + MOST_MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ]
    for which, most in bounds:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (most, most))


def renew_time() -> None:
    """Renew the time limits for the next request; the system ends a process that exceeds them."""
    faulthandler.dump_traceback_later(MOST_WAITING, exit=True)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        limit = int(used.ru_utime + used.ru_stime) + MOST_SECONDS + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit if hard < 0 else min(limit, hard), hard))


if __name__ == "__main__":
    main()
