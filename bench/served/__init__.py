"""`python -m bench served`: servers under load, beside each other and beside the library."""
