"""Operators that make, move, choose and reduce elements."""
