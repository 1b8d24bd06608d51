"""`Run.quantize`: a run with quantized weights, and its calibration data."""
