"""The kernel's connection to the front end, and hooks into IPython: messages, cells, tracebacks, magics."""
