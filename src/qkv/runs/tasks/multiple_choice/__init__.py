"""Multiple choice: which of several candidates is right."""
