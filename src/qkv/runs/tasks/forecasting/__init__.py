"""Forecasting: how a time series goes on."""
