"""The tour of docs/tour: its pages in the terminal, as HTML and as Jupyter notebooks."""
