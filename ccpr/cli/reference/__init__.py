"""The pages of docs/reference/ that are generated from the code. `python -m ccpr.cli.reference` writes them."""
