"""`bench` stands beside the package, not in it: importable from the repository's root only."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
