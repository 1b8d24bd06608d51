"""Training: from batches to weights.

`loop.fit` is the loop. `settings.Training` says how a run goes; its parts are values of their own: what is minimized
(`objective`), how weights move (`optimizer`, `schedule`, `update`), in which numbers (`precision`), what is kept
(`checkpoint`, `weights`, `average`, `state`, `rng`), and what is told (`meter`, `metrics`, `boards`, `progress`).
"""
