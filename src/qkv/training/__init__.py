"""Training: from batches to weights.

`loop.fit` is the training loop and `settings.Training` its settings. Each part is a module: the loss (`objective`), the step
(`step`, `gradient_accumulation`, `gradient_clipping`, `mixed_precision`), `optimizers` and `schedules`, weight averaging and
early stopping, checkpoints and `resume`, and logging (`run_log`, `logging`).
"""
