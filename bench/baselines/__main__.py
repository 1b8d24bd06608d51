"""`python -m bench.baselines NAME …`: a baseline's numbers as one line of JSON. Every module beside this one has some, by
name, in `COMMANDS`: each takes its arguments and gives `{"name": …, figure: number}`."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys

from .. import baselines

found = {}
for module in pkgutil.iter_modules(baselines.__path__):
    if module.name != "__main__":
        found |= importlib.import_module(f"{baselines.__name__}.{module.name}").COMMANDS
if len(sys.argv) < 2 or sys.argv[1] not in found:
    raise SystemExit(f"give the name of a baseline: {', '.join(sorted(found))}")
print(json.dumps(found[sys.argv[1]](sys.argv[2:])))
