"""Run: programs of kernels on a device and its memory."""
