"""Mixed precision: products and convolutions in float16 or bfloat16, numerically sensitive operators in float32.

    from hybrid_lab.contrib import amp

    amp.init()
    net = ...                                                   # before or after; parameters stay float32
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    amp.init_trainer(trainer)
    for x, y in data:
        with autograd.record():
            loss = loss_function(net(x), y)
            with amp.scale_loss(loss, trainer) as scaled:
                autograd.backward(scaled)
        trainer.step(batch_size)                                # a step whose gradients overflowed is skipped

With `amp.init("bfloat16")` gradients stay in range without scaling: no `init_trainer`, no `scale_loss`.

The names are MXNet's. Eager calls and compiled graphs convert the same values in the same places.
"""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from .convert import convert_hybrid_block, convert_model, convert_symbol
from .lists import (
    list_conditional_fp32_ops,
    list_fp32_ops,
    list_loss_output_functions,
    list_lp16_fp32_ops,
    list_lp16_ops,
    list_lp16_use_fp32_params,
    list_widest_type_cast,
)
from .loss_scaler import LossScaler
from .mode import disable, init
from .training import init_trainer, scale_loss, unscale

__all__ = [
    "LossScaler",
    "convert_hybrid_block",
    "convert_model",
    "convert_symbol",
    "disable",
    "init",
    "init_trainer",
    "list_conditional_fp32_ops",
    "list_fp32_ops",
    "list_loss_output_functions",
    "list_lp16_fp32_ops",
    "list_lp16_ops",
    "list_lp16_use_fp32_params",
    "list_widest_type_cast",
    "scale_loss",
    "unscale",
]

_suggest_names(__name__)
