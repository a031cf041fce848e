"""Which models are alive in the kernel, what they are called, and their Blocks as the rows of a tree."""
