"""Metrics: how good predictions are, accumulated over batches."""

from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.unknown_names import suggesting as _suggesting
from hybrid_lab.metric.base import (
    CompositeEvalMetric,
    CustomMetric,
    EvalMetric,
    alias,
    check_label_shapes,
    create,
    np,
    register,
)
from hybrid_lab.metric.classification import (
    F1,
    MCC,
    PCC,
    Accuracy,
    CrossEntropy,
    NegativeLogLikelihood,
    Perplexity,
    TopKAccuracy,
)
from hybrid_lab.metric.regression import (
    MAE,
    MSE,
    RMSE,
    Loss,
    PearsonCorrelation,
)

__all__ = [
    "F1",
    "MAE",
    "MCC",
    "MSE",
    "PCC",
    "RMSE",
    "Accuracy",
    "CompositeEvalMetric",
    "CrossEntropy",
    "CustomMetric",
    "EvalMetric",
    "Loss",
    "NegativeLogLikelihood",
    "PearsonCorrelation",
    "Perplexity",
    "TopKAccuracy",
    "alias",
    "check_label_shapes",
    "create",
    "np",
    "register",
]


if not TYPE_CHECKING:  # so that a wrong name stays an error for type checkers
    __getattr__ = _suggesting(__name__, "metric")
