"""Forecasting: how a time series continues."""
