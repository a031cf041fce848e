"""Write: the text of kernels, from the operators of a group."""
