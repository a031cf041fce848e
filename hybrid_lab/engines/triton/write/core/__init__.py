"""The five common kinds of kernel: pointwise, rows in one tile, rows in a loop, rows in parts, products."""
