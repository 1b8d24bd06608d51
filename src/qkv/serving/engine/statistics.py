"""What the engine counts while it works, in Prometheus' text format."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds


class Statistics:
    """Counters of one engine. Each is written by one thread."""

    def __init__(self) -> None:
        self.prompt_tokens = self.new_tokens = self.steps = self.failures = self.joined = 0
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self._first = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def first_token(self, seconds: float) -> None:
        """Record the time to first token of a request."""
        self._first[bisect.bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def lines(self, gauges: dict[str, tuple[str, float]], crashes: int = 0) -> Iterator[str]:
        """Everything in Prometheus' text format; `gauges` are help and value by name."""
        counters = {
            "prompt_tokens_total": ("Tokens of prompts that were read.", self.prompt_tokens),
            "generated_tokens_total": ("Tokens that were generated.", self.new_tokens),
            "engine_steps_total": ("Steps of the engine.", self.steps),
            "joined_requests_total": ("Requests that were computed in the batch of another.", self.joined),
            "engine_failures_total": ("Steps of the engine and requests that failed.", self.failures),
            "engine_crashes_total": ("Crashes after which the engine or a model started again.", crashes),
        }
        for kind, table in (("counter", counters), ("gauge", gauges)):
            for name, (text, value) in table.items():
                yield f"# HELP qkv_{name} {text}\n# TYPE qkv_{name} {kind}\nqkv_{name} {value}\n"
        yield "# HELP qkv_requests_total Requests by path and status.\n# TYPE qkv_requests_total counter\n"
        for (path, status), count in sorted(self.requests.items()):
            yield f'qkv_requests_total{{path="{path}",status="{status}"}} {count}\n'
        yield "# HELP qkv_first_token_seconds From a request to its first token.\n# TYPE qkv_first_token_seconds histogram\n"
        total = 0
        for bound, count in zip((*BOUNDS, "+Inf"), self._first, strict=True):
            total += count
            yield f'qkv_first_token_seconds_bucket{{le="{bound}"}} {total}\n'
        yield f"qkv_first_token_seconds_sum {self._seconds}\nqkv_first_token_seconds_count {total}\n"
