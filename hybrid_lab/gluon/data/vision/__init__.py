"""Data sets of images and their transforms."""

from . import transforms

__all__ = ["transforms"]
