"""The workers of a notebook: processes that train together."""
