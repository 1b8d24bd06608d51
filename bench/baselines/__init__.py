"""What one would try first, for each kind of data: `python -m bench.baselines NAME …` prints one line of JSON."""
