"""`python -m bench.baselines NAME …`: a baseline's numbers as one line of JSON. Every module beside this one has some, by
name, in `COMMANDS`: each takes its arguments and gives `{"name": …, figure: number}`."""

from __future__ import annotations

import json
import sys

from ..real import baselines

found = baselines()
if len(sys.argv) < 2 or sys.argv[1] not in found:
    raise SystemExit(f"give the name of a baseline: {', '.join(sorted(found))}")
print(json.dumps(found[sys.argv[1]](sys.argv[2:])))
