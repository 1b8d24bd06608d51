"""A language model with templates that write calls in several forms."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

CALLS = {
    "hermes": """{% if message.content %}{{ message.content }}{% endif %}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}""",
    "llama": """{% if message.tool_calls %}
{%- if message.tool_calls | length > 1 %}{{ raise_exception("one call") }}{% endif %}
{%- set call = message.tool_calls[0].function %}{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}
{%- else %}{{ message.content }}{% endif %}""",
    "mistral": """{% if message.tool_calls %}[TOOL_CALLS][{% for call in message.tool_calls %}
{%- set own = call.function %}{"name": "{{ own.name }}", "arguments": {{ own.arguments | tojson }}, "id": "{{ call.id }}"}
{%- if not loop.last %}, {% endif %}{% endfor %}]{% else %} {{ message.content }}{% endif %}""",
    "none": "{{ message.content }}",
    "unknown": "{{ message.content }}{% for c in message.tool_calls %}<call>{{ c.function }}{% endfor %}{# tools #}",
}

LISTED = "{% if tools %}{% for tool in tools %}{{ tool.function.name }} {% endfor %}{% endif %}"

AROUND = """{% for message in messages %}{{ message.role }}: CALLS{{ eos_token }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}{% if shouts %}!{% endif %}"""


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory, trained_lm: Path) -> dict[str, Path]:
    """The same language model with templates that write calls in several forms."""
    folder, made = tmp_path_factory.mktemp("templates"), {}
    for name, call in CALLS.items():
        made[name] = folder / name
        shutil.copytree(trained_lm, made[name])
        template = ("" if name == "none" else LISTED) + AROUND.replace("CALLS", call)
        (made[name] / "chat_template.jinja").write_text(template, encoding="utf-8")
    return made
