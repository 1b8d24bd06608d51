"""Chat templates that were written to exhaust time or memory, or to leave the sandbox.

`TEMPLATES` has them by name. Each must end within seconds, in little memory, with a text or a ValueError of one line:
`outcome` says how one ended.
"""

from __future__ import annotations

import time
from typing import NamedTuple

MESSAGES = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "hi " * 50},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "bye"},
]
MOST_SECONDS = 10.0  # by the clock, on a busy machine; the limit is 2 seconds of computing

_LOOP = "{% for i in range(9999) %}"
_END = "{% endfor %}"


def _state(first: str, step: str, times: int, last: str = "") -> str:
    """A variable `n.x`, changed again and again, then shown."""
    return f"{{% set n = namespace(x={first}) %}}{{% for i in range({times}) %}}{{% set n.x = {step} %}}{{% endfor %}}{last}"


def _growth() -> dict[str, str]:
    """Values that share their parts: small in memory, exponential once they are written out or compared."""
    shared = {
        "list": ("[1]", "[n.x, n.x]"),
        "tuple": ("(1,)", "(n.x, n.x)"),
        "dict": ("{'a': 1}", "{'a': n.x, 'b': n.x}"),
        "keyed": ("(1,)", "[{'k': n.x}, {'k': n.x}]"),
        "pairs": ("['ab']", "[n.x, (n.x, n.x)]"),
    }
    uses = {
        "print": "{{ n.x }}",
        "string": "{{ (n.x | string) | length }}",
        "tojson": "{{ n.x | tojson | length }}",
        "concat": "{{ (n.x ~ '') | length }}",
        "join": "{{ n.x | join(',') | length }}",
        "upper": "{{ n.x | upper | length }}",
        "compare": "{{ n.x == 5 }}",
        "replace": "{{ n.x | replace('1', '2') | length }}",
    }
    made = {
        f"shared-{kind}-{use}": _state(first, step, 60, last)
        for kind, (first, step) in shared.items()
        for use, last in uses.items()
    }
    made["shared-compare-two"] = (
        "{% set n = namespace(x=[1], y=[1]) %}"
        "{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}"
    )
    made["shared-sort"] = (
        "{% set n = namespace(x=[1], y=[1]) %}"
        "{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ [n.x, n.y] | sort }}"
    )
    made["shared-hash"] = _state("(1,)", "(n.x, n.x)", 60, "{{ {n.x: 1} | length }}")
    made["shared-unique"] = _state("(1,)", "(n.x, n.x)", 60, "{{ [n.x, n.x] | unique | list | length }}")
    made["contains-itself"] = "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}{{ l | tojson }}"
    made["contains-itself-compared"] = "{% set a = [] %}{% set b = [] %}{{ a.append(b) }}{{ b.append(a) }}{{ a == b }}"
    return made


def _texts() -> dict[str, str]:
    """Texts and lists that double, or that are kept."""
    kept = "{% set l = [] %}{% for i in range(9999) %}{{ l.append(BIG) }}{% endfor %}{{ l | length }}"
    big = {
        "center": "'a' * (4000000 + i)",
        "indent": "('a\\n' * 100000) | indent(10 + i)",
        "upper": "('a' * (2000000 + i)) | upper",
        "list": "range(9999) | list",
        "split": "('a ' * (1000000 + i)).split(' ')",
        "batch": "range(9999) | batch(1) | list",
        "replace": "('a' * 1000000) | replace('a', 'bc')",
        "tojson": "('\"' * (2000000 + i)) | tojson",
        "slice": "('a' * (4000000 + i))[1:]",
        "reversed": "('a' * (4000000 + i)) | reverse",
        "items": "dict(a=1, b=range(9999) | list).items() | list",
        "title": "('a b ' * (900000 + i)).title()",
        "capture": "('a' * (4000000 + i)) | string | trim",
    }
    made = {f"kept-{name}": kept.replace("BIG", what) for name, what in big.items()}
    doubling = {
        "concat": ("'ab'", "n.x ~ n.x"),
        "plus": ("'ab'", "n.x + n.x"),
        "times": ("'ab'", "n.x * 2"),
        "join": ("'ab'", "[n.x, n.x] | join"),
        "join-by": ("'ab'", "n.x | join(n.x)"),
        "join-method": ("'ab'", "n.x.join(n.x)"),
        "replace": ("'ab'", "n.x.replace('a', n.x)"),
        "replace-empty": ("'ab'", "n.x.replace('', n.x)"),
        "replace-filter": ("'ab'", "n.x | replace('a', n.x)"),
        "list-plus": ("[1, 2]", "n.x + n.x"),
        "list-times": ("[1, 2]", "n.x * 3"),
        "list-sum": ("[1, 2]", "[n.x, n.x] | sum(start=[])"),
        "tojson": ("'\"'", "n.x | tojson"),
        "indent": ("'a\\na'", "n.x | indent(100) ~ n.x"),
        "dict": ("{'a': 1}", "dict(n.x, **{'k' ~ (n.x | length): n.x})"),
    }
    made |= {
        f"doubling-{name}": _state(first, step, 200, "{{ n.x | length }}") for name, (first, step) in doubling.items()
    }
    made["extend-self"] = "{% set l = [1] %}{% for i in range(60) %}{{ l.extend(l) }}{% endfor %}{{ l | length }}"
    made["insert-front"] = "{% set l = [] %}" + _LOOP * 2 + "{{ l.insert(0, i) }}" + _END * 2
    made["update-self"] = "{% set d = {} %}" + _LOOP * 2 + "{{ d.update({loop.index ~ 'x' * 9999: 1}) }}" + _END * 2
    made["append-while-looping"] = "{% set l = [1] %}{% for i in l %}{{ l.append(i) }}{% endfor %}"
    made["output"] = _LOOP + "{{ 'a' * 100000 }}" + _END
    made["set-block"] = (
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}"
        "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}"
    )
    made["filter-block"] = _LOOP + "{% filter upper %}{{ 'a' * 400000 }}{% endfilter %}" + _END
    made["sum-of-products"] = _state("2", "n.x * n.x", 9999, "{{ n.x }}")
    made["sum-of-sums"] = _state("1", "n.x + n.x", 9999, "{{ n.x }}")
    made["power"] = "{{ 9 ** 9 ** 9 ** 9 }}"
    made["shift-by-float"] = "{{ 1e308 | int * 10 }}"
    made["constant-text"] = "{{ 'a' * 9999999999 }}"
    made["constant-list"] = "{{ [0] * 999999999 }}"
    made["constant-fold"] = "{{ ('a' * 4000000) ~ ('b' * 4000000) ~ ('c' * 4000000) }}"
    made["constant-filter"] = "{{ 'a' | indent(999999999999) }}"
    made["negative-times"] = "{{ 'a' * -5 }}"
    return made


def _filters() -> dict[str, str]:
    """Filters and methods that are asked for more than anybody needs."""
    return {
        "indent-width": "{{ 'a\\nb' | indent(999999999) }}",
        "indent-json": "{{ messages | tojson(indent=999999999) }}",
        "indent-json-text": "{{ messages | tojson(indent='x' * 999999) }}",
        "separators-json": "{{ range(9999) | list | tojson(separators=('x' * 4000000, 'y')) | length }}",
        "round-digits": "{{ 1.5 | round(999999999) }}",
        "round-negative": "{{ 123456 | round(-999999999) }}",
        "batch-width": "{{ [1] | batch(999999999, 'x') | list | length }}",
        "slice-count": "{{ [1] | slice(999999999) | list | length }}",
        "truncate": "{{ 'a' | truncate(999999999999) }}{{ 'a b' | truncate(1, leeway=-9, end='x' * 4000000) }}",
        "int-base": "{{ 'z' * 4000000 | int(0, 36) }}",
        "int-digits": "{{ ('9' * 4000) | int }}{{ ('9' * 4000000) | int }}",
        "sum-texts": "{{ ['a', 'b'] | sum(start='') }}",
        "sort-many": _LOOP + "{{ range(9999) | sort | length }}" + _END,
        "unique-many": _LOOP + "{{ range(9999) | unique | list | length }}" + _END,
        "map-many": _LOOP + "{{ range(9999) | map('string') | join | length }}" + _END,
        "groupby-many": _LOOP + "{{ messages * 2000 | groupby('role') | list | length }}" + _END,
        "dictsort-many": _LOOP + "{{ dict(a=1) | dictsort | length }}" + _END,
        "wordcount-many": _LOOP + "{{ ('a ' * 900000) | wordcount }}" + _END,
        "find-slow": _LOOP + "{{ ('a' * 900000).find('a' * 1000 ~ 'b') }}" + _END,
        "count-slow": _LOOP + "{{ ('ab' * 900000).count('ba' * 3000 ~ 'c') }}" + _END,
        "split-many": _LOOP + "{{ ('a ' * 900000).split() | length }}" + _END,
        "in-list": _LOOP + "{{ -1 in (range(9999) | list) }}" + _END,
        "in-text": _LOOP + "{{ 'b' in 'a' * 3000000 }}" + _END,
        "date-width": "{{ strftime_now('%0999999999d') }}",
        "date-long": "{{ strftime_now('%c' * 999999) }}",
        "format-filter": "{{ '%999999999d' | format(1) }}",
        "format-method": "{{ '{:999999999}'.format(1) }}",
        "format-map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
        "percent": "{{ '%999999999d' % 1 }}",
        "center": "{{ 'a' | center(999999999) }}{{ 'a'.center(999999999) }}",
        "zfill": "{{ 'a'.zfill(999999999) }}{{ 'a'.ljust(999999999) }}",
        "expandtabs": "{{ '\\t'.expandtabs(999999999) }}",
        "lipsum": "{{ lipsum(n=99999) }}",
        "cycler": "{{ cycler(1, 2).next() }}",
    }


def _programs() -> dict[str, str]:
    """Programs without end, and ones that only the compiler has trouble with."""
    fors = "{% for m in messages %}"
    return {
        "loops-thirty": fors * 30 + "x" + _END * 30,
        "loops-nineteen": fors * 19 + "x" + _END * 19,
        "loops-hundred": fors * 100 + "x" + _END * 100,
        "loops-two": _LOOP * 2 + _END * 2,
        "loops-recursive": "{% for i in [messages] recursive %}{{ loop([messages]) }}{% endfor %}",
        "loops-else": "{% for i in [] %}{% else %}" * 25 + "x" + _END * 25,
        "loops-filtered": "{% for i in range(9999) if i in (range(9999) | list) and i < 0 %}x{% endfor %}",
        "ifs-deep": "{% if true %}" * 2000 + "x" + "{% endif %}" * 2000,
        "ifs-twenty": "{% if messages %}" * 20 + "x" + "{% else %}y{% endif %}" * 20,
        "brackets-deep": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
        "parentheses-deep": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "nots-deep": "{{ " + "not " * 5000 + "1 }}",
        "minus-deep": "{{ " + "-" * 5000 + "1 }}",
        "filters-long": "{{ 'a'" + " | upper" * 5000 + " }}",
        "sums-long": "{{ 1" + " + 1" * 20000 + " }}",
        "concat-long": "{{ 'a'" + " ~ 'a'" * 20000 + " }}",
        "getattr-long": "{{ messages" + ".x" * 5000 + " }}",
        "macro-itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "macro-twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "macro-many": "".join(f"{{% macro f{i}() %}}{{{{ 1 }}}}{{% endmacro %}}" for i in range(5000)),
        "macro-chain": "{% macro f0() %}x{% endmacro %}"
        + "".join(f"{{% macro f{i}() %}}{{{{ f{i - 1}() }}}}{{{{ f{i - 1}() }}}}{{% endmacro %}}" for i in range(1, 60))
        + "{{ f59() }}",
        "caller": "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
        + "{% call f() %}" * 18
        + "x"
        + "{% endcall %}" * 18,
        "sets-many": "{% set x = 'a' * 9 %}" * 9000,
        "names-many": "".join(f"{{{{ a{i} }}}}" for i in range(9000)),
        "generation-deep": "{% generation %}" * 500 + "x" + "{% endgeneration %}" * 500,
        "comment-open": "{# " * 9000,
        "brace-flood": "{" * 200000,
        "block-flood": "{%" * 60000,
        "quotes": "{{ '" + "\\" * 99999 + "' }}",
        "include": "{% include 'x' %}{% import 'y' as y %}",
        "extends-itself": "{% extends self %}",
        "blocks": "{% block a %}{{ self.a() }}{% endblock %}",
        "range-huge": "{{ range(10 ** 18) | list }}",
        "range-steps": "{% for a in range(0, 10**18, 10**15) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    }


def _escapes() -> dict[str, str]:
    """Ways out of the sandbox that are known from elsewhere."""
    return {
        "escape-mro": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "escape-globals": "{{ raise_exception.__globals__ }}{{ strftime_now.__globals__ }}",
        "escape-attr": "{{ '' | attr('__class__') }}",
        "escape-map": "{{ [''] | map(attribute='__class__') | list }}",
        "escape-select": "{{ [''] | selectattr('__class__') | list }}",
        "escape-groupby": "{{ [''] | groupby('__class__') | list }}",
        "escape-sum": "{{ [1] | sum(attribute='__class__') }}",
        "escape-sort": "{{ [1, 2] | sort(attribute='__class__.__base__') }}",
        "escape-join": "{{ [{'a': 1}] | join(attribute='__class__') }}",
        "escape-namespace": "{% set n = namespace(__class__=1) %}{% set n.__init__ = 2 %}{{ n }}",
        "escape-dict": "{{ dict.mro() }}{{ dict.__subclasses__() }}",
        "escape-loop": "{% for i in [1] %}{{ loop.__init__.__globals__ }}{% endfor %}",
        "escape-self": "{{ self.__init__.__globals__ }}{{ self._TemplateReference__context }}",
        "escape-cycler": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "escape-macro": "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}{{ f.__call__ }}",
        "escape-format": "{{ '{0.__class__.__init__.__globals__}'.format(range) }}",
        "escape-item": "{{ messages['__class__'] }}{{ messages[0]['__class__'] }}",
        "escape-range": "{{ range.__self__ }}{{ range.__globals__ }}",
        "escape-generator": "{{ ([1] | map('string')).gi_frame.f_globals }}",
    }


TEMPLATES: dict[str, str] = {**_growth(), **_texts(), **_filters(), **_programs(), **_escapes()}


class Outcome(NamedTuple):
    """How a template ended: "text", "refused" (a ValueError of one line) or "crash", after how many seconds."""

    how: str
    seconds: float
    said: str


def outcome(name: str) -> Outcome:
    """Compile and run one; only an error other than a ValueError of one line is a crash."""
    from qkv.data.tokenizers.chat.template import ChatTemplate

    start = time.monotonic()
    try:
        how, said = "text", ChatTemplate(TEMPLATES[name]).render(MESSAGES)
    except ValueError as error:
        how, said = "refused" if "\n" not in str(error) else "crash", str(error)
    except Exception as error:
        how, said = "crash", repr(error)
    return Outcome(how, time.monotonic() - start, said[:200])
