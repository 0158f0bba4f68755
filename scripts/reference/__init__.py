"""The pages of docs/reference/ that are generated from the code. `python -m scripts.reference` writes them."""
