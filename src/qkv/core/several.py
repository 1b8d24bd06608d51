"""Arguments of public functions: one text or several, paths, numbers; and errors that name an argument of a wrong type."""

from __future__ import annotations

import dis
import functools
import inspect
import os
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union

from .spec import brief, nearest, with_article

Given = ParamSpec("Given")
Result = TypeVar("Result")
_VARIABLE = inspect.Parameter.VAR_KEYWORD


def texts(value: object, what: str = "texts") -> list[str]:
    """One text, or several in a list, tuple, array, column of a data frame or iterator, as a list.

    Raises ValueError that names the first item that is no text: a string is one text, never its characters.
    """
    return _items(value, what, str, "a text")


def texts_beside(texts_given: object, others: object, name: str) -> list[str] | None:
    """The texts that go with others, as a list. Raises ValueError if one is a single text and the other a list."""
    if others is None:
        return None
    listed = texts(others, name)
    if isinstance(texts_given, str) != isinstance(others, str):
        raise ValueError(f"give the texts and {name} both as single texts or both as lists")
    return listed


def paths(value: object, what: str = "paths", named: str = "a path") -> list[str]:
    """One path, or several, as a list of strings. Raises ValueError as `texts` does."""
    return [os.fspath(item) for item in _items(value, what, (str, os.PathLike), named)]


def inputs(value: object, what: str = "inputs") -> list[str | tuple[str, ...]]:
    """One text or path, or several in a list, in which a tuple of texts is one input. Raises ValueError as `texts` does."""
    items = _items(
        value, what, (str, os.PathLike, tuple), "a text, a path or a tuple of texts", alone=(str, os.PathLike)
    )
    return [tuple(texts(item, what)) if isinstance(item, tuple) else os.fspath(item) for item in items]


def text(value: object, what: str = "the text") -> str:
    """A text. Raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is a string, not {shown(value)}")
    return value


def path(value: object, what: str = "the path") -> Path:
    """A path that is given as a string or an object. Raises ValueError for anything else."""
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{what} is a string or a path, not {shown(value)}")
    if not (text := os.fspath(value)) or not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{what} is a string or a path, not {shown(value)}")
    return Path(text)


def numbers(least: float, **named: Any) -> None:
    """Check numbers by name; None is allowed. Raises ValueError for another type, NaN and less than `least`."""
    for name, value in named.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= least):
            raise ValueError(f"{name} must be a number of at least {least:g}, not {shown(value)}")


def whole_numbers(least: int, **named: Any) -> None:
    """`numbers` for whole ones."""
    numbers(least, **named)
    for name, value in named.items():
        if value is not None and not isinstance(value, Integral):
            raise ValueError(f"{name} must be a whole number of at least {least}, not {shown(value)}")


def flags(**named: Any) -> None:
    """Check that values are True or False. Raises ValueError for anything else."""
    for name, value in named.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} is True or False, not {shown(value)}")


def instance(value: object, kind: type, what: str, how: str) -> None:
    """Check the type of an argument. Raises ValueError that says `how` to make one."""
    if not isinstance(value, kind):
        raise ValueError(f"{what} has to be of type {kind.__name__}, as {how} makes one, not {shown(value)}")


def beside(**named: Sequence[object]) -> None:
    """Check that lists have equal lengths, and that there is something in them. Raises ValueError otherwise."""
    sizes = {name: len(value) for name, value in named.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{' and '.join(named)} belong together one by one, and there are {_listed(sizes)}")
    if not any(sizes.values()):
        raise ValueError(f"there are no {' and '.join(named)}; give at least one of each")


def _listed(sizes: Mapping[str, int]) -> str:
    return " and ".join(f"{size:,} {name}" for name, size in sizes.items())


def shown(value: object) -> str:
    """A value of the wrong type for a message: `3, an int`; None is `None`."""
    if value is None:
        return "None"
    return f"{' '.join(brief(value).split())}, {with_article(type(value).__name__)}"


def _items(value: Any, what: str, allowed: Any, named: str, alone: Any = None) -> list[Any]:
    if isinstance(value, alone or allowed):
        return [value]
    single = getattr(value, "ndim", 1) == 0  # an array with one number
    if single or isinstance(value, bytes | bytearray | Mapping | Set) or not isinstance(value, Iterable):
        raise ValueError(f"{what} are {named} or a list, not {shown(value)}")
    items = list(value)
    wrong = next((i for i, item in enumerate(items) if not isinstance(item, allowed)), None)
    if wrong is not None:
        raise ValueError(f"{what} are {named} or a list, and number {wrong + 1} of them is {shown(items[wrong])}")
    return items


# -- arguments that don't fit their annotations --------------------------------------------------------------------------


def worded(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a public function: an error that an argument of a wrong type causes becomes a ValueError that names it.

    Arguments are compared with the annotations only after an error, so calls that work cost nothing more.
    """

    @functools.wraps(function)
    def call(*args: Given.args, **given: Given.kwargs) -> Result:
        try:
            return function(*args, **given)
        except Exception as error:
            reworded = in_words(error, function, *args, **given)
            if reworded is error:
                raise
        raise reworded

    return call


def in_our_names(*options: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Return a decorator: the function then also accepts other libraries' names for its arguments, if they mean the same.

    options: names of keywords that the function accepts besides its parameters.
    """

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result]:
        names = list(inspect.signature(function).parameters)
        known = frozenset((*names, *options))

        @functools.wraps(function)
        def call(*args: Given.args, **given: Given.kwargs) -> Result:
            if given.keys() <= known:
                return function(*args, **given)
            from .synonyms import arguments_in_ours

            renamed: Any = arguments_in_ours(function.__name__, names, len(args), given)
            return function(*args, **renamed)

        return call

    return decorate


def checked(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a public function that uses its arguments later: they are compared with the annotations first."""

    @functools.wraps(function)
    def call(*args: Given.args, **given: Given.kwargs) -> Result:
        if (why := _misfit(function, args, given)) is not None:
            raise ValueError(why)
        return worded(function)(*args, **given)

    return call


def in_words(error: Exception, function: Callable[..., Any], *args: object, **given: object) -> Exception:
    """The ValueError that names the argument by which a call failed; the error itself if it says so in words already, or if
    all arguments fit their annotations."""
    if _is_meant(error):
        return error
    if isinstance(error, TypeError) and (unknown := _unknown(function, args, given)) is not None:
        return ValueError(unknown)
    why = _misfit(function, args, given) or _out_of_range(function, args, given, error)
    return error if why is None else ValueError(why)


def unknown_argument(what: str, name: str, known: Sequence[str]) -> str:
    """A sentence on an argument that there is not: what another library's name is here, or the nearest names."""
    from .synonyms import elsewhere

    advice = elsewhere(name, known) or nearest(name, known)
    if "changes" in known and advice.startswith("it is ") and "." in advice.split()[2]:
        advice += f": changes={{{advice.split()[2]!r}: …}}"
    return f"{what} has no argument {brief(name)}; {advice}"


def wrong_call(function: Callable[..., Any], given: Mapping[str, Any]) -> ValueError:
    """The error for a call with unknown arguments, or without its first one."""
    parameters = inspect.signature(function).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind is not _VARIABLE]
    unknown = next((name for name in given if name not in names), None)
    if unknown is None:
        return ValueError(f"{names[0]} is missing; give it as the first argument")
    return ValueError(unknown_argument("a model", unknown, names))


def _unknown(function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> str | None:
    """A sentence on an argument that a function has not, if this is why Python refuses a call."""
    from .synonyms import elsewhere

    signature = inspect.signature(function)
    try:
        signature.bind(*args, **given)
    except TypeError:
        kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
        more = _VARIABLE in kinds.values()
        known = [name for name, kind in kinds.items() if kind not in (_VARIABLE, inspect.Parameter.VAR_POSITIONAL)]
        for name in given:
            if name not in known and (not more or elsewhere(name) is not None):
                return unknown_argument(function.__name__, name, [one for one in known if one != "self"])
    return None


def _is_meant(error: Exception) -> bool:
    """Whether a statement of qkv has raised an error, and not Python or a library because of a value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not isinstance(error, ValueError):
        return False
    code = trace.tb_frame.f_code.co_code
    return code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"] and "qkv" in trace.tb_frame.f_globals["__name__"]


def _misfit(function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> str | None:
    """Which argument does not fit its annotation, in a sentence; None if all do."""
    for name, value, hint in _bound(function, args, given):
        if not _fits(value, hint):
            return f"{_of(function, name)} has to be {_described(hint)}, not {shown(value)}"
    return None


def _out_of_range(
    function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any], error: Exception
) -> str | None:
    """Which number is negative or too large for a library, in a sentence with the library's."""
    for name, value, hint in _bound(function, args, given):
        if isinstance(value, Integral) and not isinstance(value, bool) and not -1 < int(value) < 2**63:
            said = " ".join(str(error).split())
            return f"{_of(function, name)} is {brief(int(value))}, which is out of range: {said[:200]}"
        if isinstance(value, str) and "torch.device" in str(hint) and "device" in str(error):
            return f"{_of(function, name)} is {brief(value)}; give a device, such as 'cpu' or 'cuda'"
    return None


def _bound(
    function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """The arguments of a call with their names and annotations; none if Python refuses the call itself."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **given)
    except TypeError:
        return
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            yield name, value, _resolved(function, parameter.annotation)


def _of(function: Callable[..., Any], name: str) -> str:
    return f"{name} of {function.__qualname__.rpartition('<locals>.')[2]}"


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    """An annotation as an object; Any for one whose names are imported for type checkers only."""
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    module = inspect.getmodule(inspect.unwrap(function))
    try:
        return eval(annotation, dict(vars(module)) if module else {})
    except (NameError, AttributeError, TypeError):
        return Any


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _fits(value, parts[0])
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    kind = NoneType if hint is None else origin or hint
    if not isinstance(kind, type) or kind is Any:
        return True
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if getattr(kind, "_is_protocol", False):
        named = (name for one in kind.__mro__ if getattr(one, "_is_protocol", False) for name in vars(one))
        return all(hasattr(value, name) for name in named if name == "__call__" or not name.startswith("_"))
    if (
        isinstance(value, str | bytes | Mapping)
        and kind.__module__ == "collections.abc"
        and not issubclass(kind, Mapping)
    ):
        return kind is Hashable
    return isinstance(value, kind) and _parts_fit(value, kind, parts)


def _parts_fit(value: Any, kind: type, parts: tuple[Any, ...]) -> bool:
    """Whether the items of a list, tuple or dictionary fit."""
    if not parts or isinstance(value, str | bytes):
        return True
    if isinstance(value, Mapping):
        return len(parts) != 2 or all(_fits(a, parts[0]) and _fits(b, parts[1]) for a, b in value.items())
    if not isinstance(value, Sequence | Set):
        return not hasattr(value, "shape") or (
            parts[0] in (int, float) and len(value.shape) == 1
        )  # iterators are left alone
    if issubclass(kind, tuple) and Ellipsis not in parts:
        return len(value) == len(parts) and all(map(_fits, value, parts))
    return all(_fits(item, parts[0]) for item in value)


_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "True or False",
    NoneType: "None",
    os.PathLike: "a path",
    Path: "a path",
}


def _described(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint]
    if origin is Annotated:
        return _described(parts[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_described, parts)))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    kind = origin or hint
    if hasattr(kind, "dim_str"):  # jaxtyping's
        return f"a tensor ({', '.join(kind.dim_str.split())}) of {kind.__name__.partition('[')[0].lower()}"
    if not isinstance(kind, type):
        return "a function" if kind is Callable else str(hint)
    if issubclass(kind, Mapping):
        return "a dictionary"
    if kind is not str and issubclass(kind, Iterable) and kind.__module__ in ("builtins", "collections.abc"):
        return "a list" + (f" of {_plural(_described(parts[0]))}" if parts else "")
    return "a function" if kind.__name__ == "Callable" else with_article(kind.__name__)


def _plural(words: str) -> str:
    """`a string or a list of strings` as `strings or lists of strings`."""
    nouns = [word.removeprefix("a ").removeprefix("an ") for word in words.split(" or ")]
    return " or ".join(
        f"lists{noun[4:]}" if noun.startswith("list ") else noun if noun == "None" else f"{noun}s" for noun in nouns
    )
