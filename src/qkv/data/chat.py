"""Conversations as one text, by the template that a model was trained with: Jinja, in a sandbox, with a bound on everything.

A template is a program that came with a model. Here it can name nothing but what is given to it (Jinja's immutable
sandbox), calls only the functions, filters and methods listed below, and every loop, call and joined text is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LARGEST_TEMPLATE = 256 << 10  # characters
LARGEST_TEXT = 4 << 20  # characters of anything that a template makes
MOST_STEPS = 200_000  # loops' turns and calls
OPENED, CLOSED = "\ue0f0", "\ue0f1"  # what a {% generation %} block stands between, until the text is taken apart

FILTERS = frozenset(
    {
        *("capitalize", "default", "d", "dictsort", "first", "int", "items", "join", "last", "length", "count", "list"),
        *("lower", "map", "reject", "rejectattr", "replace", "reverse", "safe", "select", "selectattr", "sort"),
        *("string", "title", "tojson", "trim", "unique", "upper"),
    }
)
METHODS = frozenset(
    {
        *("capitalize", "endswith", "find", "get", "index", "items", "join", "keys", "lower", "lstrip"),
        *("removeprefix", "removesuffix", "replace", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip"),
        *("title", "upper", "values"),
    }
)


class Said(NamedTuple):
    """A stretch of a conversation's text, and whether the model is to learn to say it."""

    text: str
    learned: bool


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template; `tokens` are those that it may name (`bos_token`, `eos_token` …).

    Raises ValueError for one that is too long or no template.
    """

    source: str
    tokens: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.source) > LARGEST_TEMPLATE:
            raise ValueError(f"the chat template has {len(self.source):,} characters, more than any template")
        object.__setattr__(self, "_program", _Program(self.source))

    @classmethod
    def of(cls, config: Mapping[str, Any], tokens: Mapping[str, str]) -> ChatTemplate:
        """The template in a tokenizer's configuration. Raises ValueError where there is none."""
        found = config.get("chat_template")
        if isinstance(found, list):
            named = {item.get("name"): item.get("template") for item in found if isinstance(item, dict)}
            found = named.get("default", next(iter(named.values()), None))
        if not isinstance(found, str):
            raise ValueError("this tokenizer has no chat template; put a chat_template.jinja beside its tokenizer.json")
        return cls(found, {f"{role}_token": token for role, token in tokens.items()})

    def render(self, messages: Sequence[Mapping[str, Any]], prompt: bool = False, **values: Any) -> str:
        """The text of a conversation; `prompt` ends it where the model is to answer.

        Raises ValueError in one sentence where the template refuses, fails, or takes more than it may.
        """
        return self._run(messages, prompt, values).replace(OPENED, "").replace(CLOSED, "")

    def _run(self, messages: Sequence[Mapping[str, Any]], prompt: bool, values: Mapping[str, Any]) -> str:
        given = {**self.tokens, "messages": list(messages), "add_generation_prompt": prompt, **values}
        program: _Program = getattr(self, "_program")  # noqa: B009
        return program.run(given)

    def parts(self, messages: Sequence[Mapping[str, Any]]) -> list[Said]:
        """A conversation in stretches: what the assistant says is to be learned, everything else is read.

        Where the template marks it by {% generation %}, that is it. Else an assistant's turn is what the text has more
        than the one that ends where the model is to answer. A template may write a turn in another way once more follow
        (Qwen 3 leaves earlier thoughts out). Such a turn is not what the model is to say, so it is only read: what is
        learned is each turn that the text has exactly as the model would be asked for it, the last one above all.

        Raises ValueError where that is none.
        """
        whole = self._run(messages, False, {})
        if OPENED in whole:
            pieces = whole.replace(CLOSED, OPENED).split(OPENED)
            return [Said(piece, bool(i % 2)) for i, piece in enumerate(pieces) if piece]
        said, at, turns = [], 0, [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
        for i in turns:
            before, after = self.render(messages[:i], prompt=True), self.render(messages[: i + 1])
            if at <= len(before) and after.startswith(before) and whole.startswith(after):
                said += [Said(whole[at : len(before)], False), Said(whole[len(before) : len(after)], True)]
                at = len(after)
        if turns and not said:
            raise ValueError(
                f"the chat template writes message {turns[-1]} of a conversation in another way once more follow, or "
                "elsewhere than where it has the model answer, so what the assistant said can't be told from the rest; "
                "end the conversation there, or mark it in the template by {% generation %}"
            )
        return [part for part in (*said, Said(whole[at:], False)) if part.text]


# -- the sandbox ----------------------------------------------------------------------------------------------------


class TooMuch(Exception):
    """A template took more than it may."""


class _Program:
    """A compiled template. One run at a time has the budget of steps."""

    def __init__(self, source: str) -> None:
        jinja2 = _jinja()
        self.left = MOST_STEPS
        environment = self._environment(jinja2)
        try:
            tree = environment.parse(source)
            for node in list(tree.find_all(jinja2.nodes.For)):
                node.iter = jinja2.nodes.Filter(node.iter, "_counted", [], [], None, None, lineno=node.lineno)
            _replace_concat(tree, jinja2.nodes)
            code = environment.compile(tree)
            self.template = jinja2.Template.from_code(environment, code, environment.globals)
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template is not valid: {error}") from None
        except RecursionError:
            raise ValueError("the chat template is nested too deep") from None

    def run(self, values: Mapping[str, Any]) -> str:
        jinja2 = _jinja()
        self.left = MOST_STEPS
        pieces, length = [], 0
        try:
            for piece in self.template.generate(**values):
                length += len(piece)
                if length > LARGEST_TEXT:
                    raise TooMuch(f"makes more than {LARGEST_TEXT:,} characters")
                pieces.append(piece)
        except TooMuch as error:
            raise ValueError(f"the chat template {error}, so it was stopped") from None
        except _Refused as error:
            raise ValueError(f"the chat template refuses this conversation: {error}") from None
        except jinja2.exceptions.SecurityError as error:
            raise ValueError(f"the chat template asks for what no template may: {error}") from None
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"the chat template fails on this conversation: {error}") from None
        except RecursionError:
            raise ValueError("the chat template calls itself without end, so it was stopped") from None
        return "".join(pieces)

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise TooMuch(f"takes more than {MOST_STEPS:,} steps")

    def counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """What a loop goes through, each turn a step."""
        for item in items:
            self.step()
            yield item

    def _environment(self, jinja2: Any) -> Any:
        program = self

        class Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc]
            intercepted_binops = frozenset({"+", "*", "**", "%"})

            def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
                if not super().is_safe_attribute(obj, attr, value):
                    return False
                own = type(obj).__module__.startswith("jinja2")  # `loop`, `namespace`
                return own or not callable(value) or attr in METHODS

            def wrap_str_format(self, value: Any) -> None:
                """Formats may ask for any width, so `format` is a method like any other that is not listed."""

            def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
                program.step()
                name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
                if isinstance(owner, str) and name in ("replace", "join"):
                    _bounded_text(name, [owner, *args])
                return super().call(context, function, *args, **kwargs)

            def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
                program.step()
                _check_operator(operator, left, right)
                return super().call_binop(context, operator, left, right)

        made = Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation(jinja2)]
        )
        made.filters = {name: made.filters[name] for name in FILTERS}
        made.filters |= {"tojson": _tojson, "replace": _replaced, "join": _joined, "_counted": program.counted}
        made.filters["_concat"] = lambda parts: _joined(parts)
        made.globals = {"range": _range, "namespace": jinja2.utils.Namespace, "dict": dict, "raise_exception": _refuse}
        return made


class _Refused(Exception):
    """What a template says by `raise_exception`."""


def _refuse(message: Any = "") -> None:
    raise _Refused(str(message)[:200])


def _range(*bounds: int) -> range:
    made = range(*bounds)
    if len(made) > 10_000:
        raise TooMuch(f"counts to {len(made):,}")
    return made


def _tojson(value: Any, indent: int | None = None, ensure_ascii: bool = False, **options: Any) -> str:
    """JSON without the escapes for HTML that Jinja's own has."""
    return json.dumps(value, indent=min(indent, 16) if indent else None, ensure_ascii=ensure_ascii)


def _joined(parts: Iterable[Any], between: str = "", attribute: Any = None) -> str:
    texts = [str(part if attribute is None else part[attribute]) for part in parts]
    if sum(map(len, texts)) + len(between) * len(texts) > LARGEST_TEXT:
        raise TooMuch(f"makes a text of more than {LARGEST_TEXT:,} characters")
    return between.join(texts)


def _replaced(text: Any, old: str, new: str, count: int = -1) -> str:
    text = str(text)
    _bounded_text("replace", [text, old, new])
    return text.replace(old, new, count)


def _bounded_text(name: str, values: Sequence[Any]) -> None:
    """That a method of texts makes none that is too large: each character could give way to the longest argument."""
    lengths = [_length(value) for value in values]
    if name == "replace":
        grown = values[0].count(values[1]) * len(values[2]) if len(values) > 2 else 0
        lengths = [lengths[0], grown]
    elif len(values) > 1 and isinstance(values[1], str | list | tuple):
        lengths = [lengths[0] * len(values[1]), lengths[1]]
    if sum(lengths) > LARGEST_TEXT:
        raise TooMuch(f"makes a text of more than {LARGEST_TEXT:,} characters")


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return sum(len(str(item)) for item in value) if isinstance(value, list | tuple) else 0


def _check_operator(operator: str, left: Any, right: Any) -> None:
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if operator == "+" and not numbers:
        sizes = [len(value) for value in (left, right) if isinstance(value, str | list | tuple)]
        if sum(sizes) > LARGEST_TEXT:
            raise TooMuch(f"makes a text of more than {LARGEST_TEXT:,} characters")
    elif not numbers or operator == "**" or (operator == "*" and abs(left * 1.0) * abs(right * 1.0) > 2**53):
        raise TooMuch(f"computes with {operator!r} what no template needs to")


def _replace_concat(tree: Any, nodes: Any) -> None:
    """Let `a ~ b` be a filter, which has a bound, in place of a join without."""
    for node in list(tree.find_all(nodes.Node)):
        for name in node.fields:
            value = getattr(node, name)
            if isinstance(value, nodes.Concat):
                setattr(node, name, _as_filter(value, nodes))
            elif isinstance(value, list):
                value[:] = [_as_filter(item, nodes) if isinstance(item, nodes.Concat) else item for item in value]


def _as_filter(node: Any, nodes: Any) -> Any:
    items = nodes.List(node.nodes, lineno=node.lineno)
    return nodes.Filter(items, "_concat", [], [], None, None, lineno=node.lineno)


def _generation(jinja2: Any) -> Any:
    """The tag {% generation %} … {% endgeneration %} around what the assistant says."""

    class Generation(jinja2.ext.Extension):  # type: ignore[misc]
        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> list[Any]:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)

            def mark(text: str) -> Any:
                return jinja2.nodes.Output([jinja2.nodes.TemplateData(text)], lineno=line)

            return [mark(OPENED), *body, mark(CLOSED)]

    return Generation


def _jinja() -> Any:
    try:
        import jinja2
        import jinja2.ext
        import jinja2.nodes
        import jinja2.sandbox
        import jinja2.utils
    except ImportError:
        raise ValueError("chat templates are Jinja; install it: pip install jinja2") from None
    return jinja2
