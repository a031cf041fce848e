"""Networks of the literature, ready to train or to fill with saved weights."""

from . import vision
from .vision import get_model

__all__ = ["get_model", "vision"]
