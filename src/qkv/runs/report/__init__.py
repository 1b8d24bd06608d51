"""`report.html`: the report of a training."""
