"""Static word vectors: word2vec, GloVe, and their files."""
