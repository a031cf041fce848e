"""The version of the distribution, of the kernel's half of the lab, and of the front end."""

__version__ = "0.2.0"
