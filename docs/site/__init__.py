"""The web site: `make docs` builds it from the documents, the notebooks, the docstrings and the operators' records."""
