"""Networks of the literature, ready to train or to fill with saved weights."""

from . import model_store, vision
from .vision import get_model

__all__ = ["get_model", "model_store", "vision"]
