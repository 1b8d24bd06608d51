"""Denoising: span corruption (T5) and text infilling (BART): tasks, objectives and metric."""
