"""Training: from batches to weights.

`loop.fit` is the training loop and `settings.Training` its settings. Each part is a module: the loss (`objective`), the step
(`step`, `gradients`, `mixed_precision`), `optimizers` and their `schedules`, weight averaging and
early stopping, checkpoints and `resume`, and logging (`run_log`, `logging`).
"""
