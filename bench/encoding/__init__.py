"""`python -m bench encoding`: BERT-base and ViT-B/16 beside other libraries."""
