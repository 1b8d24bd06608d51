"""`report.html`: what a training did, on one page."""
