"""Operators that hold graphs: loops, branches, and their gradients."""
