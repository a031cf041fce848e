"""Training with an Estimator, whose loop calls event handlers, under MXNet's names."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from . import batch_processor, estimator, event_handler
from .batch_processor import BatchProcessor
from .checkpoint_handler import CheckpointHandler
from .estimator import Estimator
from .event_handler import (
    BatchBegin,
    BatchEnd,
    EarlyStoppingHandler,
    EpochBegin,
    EpochEnd,
    GradientUpdateHandler,
    LoggingHandler,
    MetricHandler,
    StoppingHandler,
    TrainBegin,
    TrainEnd,
    ValidationHandler,
)

__all__ = [
    "BatchBegin",
    "BatchEnd",
    "BatchProcessor",
    "CheckpointHandler",
    "EarlyStoppingHandler",
    "EpochBegin",
    "EpochEnd",
    "Estimator",
    "GradientUpdateHandler",
    "LoggingHandler",
    "MetricHandler",
    "StoppingHandler",
    "TrainBegin",
    "TrainEnd",
    "ValidationHandler",
]

_suggest_names(__name__)
