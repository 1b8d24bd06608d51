"""What pre-training tasks on text share: corruption, the lexicon of a vocabulary, pairs of sentences."""
