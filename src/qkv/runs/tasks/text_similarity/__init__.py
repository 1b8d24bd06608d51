"""Text similarity: vectors of texts whose cosine says how alike the texts are."""
