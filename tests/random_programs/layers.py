"""The layers that programs use: a row for each, with its settings and how it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.random_programs.writing import Chance


@dataclass(frozen=True)
class Layer:
    """ranks : of inputs it takes, with the batch; needed : settings that are always given; may : those that may be
    given; calls : how it is called, where `$child` is its name; whole : it takes whole numbers
    """

    name: str
    ranks: Sequence[int]
    needed: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    may: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    calls: Sequence[str] = ("$child($x)",)
    whole: bool = False
    first: Sequence[str] = ()
    """What comes before the settings: functions, other cells."""

    def construct(self, chance: Chance) -> str:
        """Its constructor, with settings of chance."""
        settings = [chance.one_of(self.first)] if self.first else []
        for name, options in self.needed.items():
            settings.append(f"{name}={chance.one_of(options)!r}")
        for name, options in self.may.items():
            if chance.often(0.4):
                settings.append(f"{name}={chance.one_of(options)!r}")
        return f"{self.name}({', '.join(settings)})"


ANY = (2, 3, 4, 5)
_ACTIVATIONS = ("relu", "tanh", "sigmoid", "softrelu", "softsign")
_NORM = {"epsilon": (1e-3, 0.1), "center": (False,), "scale": (False, True)}
_BATCH_NORM = {**_NORM, "axis": (1, -1), "momentum": (0.5, 0.0, 1.0), "use_global_stats": (True,)}
_POOL = {"strides": (1, 2), "padding": (0, 1), "ceil_mode": (True,)}
_RNN = {"num_layers": (2,), "bidirectional": (True,), "dropout": (0.3,)}
_UNROLL = (
    "$new1, $new2 = $child.unroll(${2|4|5}, $x3, layout='NTC', merge_outputs=True)",
    "$new1, $new2 = $child.unroll(${2|4|5}, $x3, layout='NTC', merge_outputs=False)",
)


def _conv(rank: int, **more: Sequence[Any]) -> dict[str, Sequence[Any]]:
    size = (1, 2, (1,) * (rank - 2))
    return {
        "strides": size,
        "padding": (1, 0, (1,) + (0,) * (rank - 3)),
        "dilation": size,
        "groups": (2, 1),
        "activation": _ACTIVATIONS,
        "use_bias": (False,),
        **more,
    }


LAYERS = [
    Layer(
        "nn.Dense",
        ANY,
        {"units": (1, 3, 4, 8)},
        {"activation": _ACTIVATIONS, "use_bias": (False,), "flatten": (False,)},
    ),
    Layer(
        "nn.Dense", ANY, {"units": (2, 4)}, {"flatten": (False,), "weight_initializer": ("xavier", "normal", "ones")}
    ),
    *[
        Layer(f"nn.Conv{rank - 2}D", (rank,), {"channels": (1, 2, 4), "kernel_size": (1, 2, 3)}, _conv(rank))
        for rank in (3, 4, 4, 4, 5)
    ],
    *[
        Layer(
            f"nn.Conv{rank - 2}DTranspose",
            (rank,),
            {"channels": (1, 2, 4), "kernel_size": (1, 2, 3)},
            _conv(rank, output_padding=(0, 1)),
        )
        for rank in (3, 4, 5)
    ],
    *[
        Layer(f"nn.{kind}Pool{rank - 2}D", (rank,), {"pool_size": (1, 2, 3)}, _POOL)
        for kind in ("Max", "Avg")
        for rank in (3, 4, 5)
    ],
    *[
        Layer(
            f"nn.AvgPool{rank - 2}D", (rank,), {"pool_size": (2, 3), "padding": (1,)}, {"count_include_pad": (False,)}
        )
        for rank in (3, 4)
    ],
    *[Layer(f"nn.Global{kind}Pool{rank - 2}D", (rank,)) for kind in ("Max", "Avg") for rank in (3, 4, 5)],
    Layer("nn.BatchNorm", ANY, {}, _BATCH_NORM),
    Layer("nn.BatchNorm", ANY, {}, {"momentum": (0.5, 0.9)}),
    Layer("nn.BatchNormReLU", (4,), {}, _BATCH_NORM),
    Layer("gluon.contrib.nn.SyncBatchNorm", (4,), {}, {"momentum": (0.5,)}),
    Layer("nn.LayerNorm", ANY, {}, {**_NORM, "axis": (1, -1)}),
    Layer("nn.GroupNorm", (3, 4), {}, {**_NORM, "num_groups": (1, 2, 4)}),
    Layer("nn.InstanceNorm", (3, 4), {}, {**_NORM, "axis": (1,)}),
    Layer("nn.Dropout", ANY, {"rate": (0.0, 0.3, 0.5)}, {"axes": ((1,), (0,))}),
    Layer("nn.Activation", ANY, {"activation": _ACTIVATIONS}),
    Layer("nn.LeakyReLU", ANY, {"alpha": (0.1, 0.5)}),
    Layer("nn.PReLU", ANY),
    Layer("nn.ELU", ANY, {}, {"alpha": (0.5,)}),
    Layer("nn.SELU", ANY),
    Layer("nn.GELU", ANY),
    Layer("nn.Swish", ANY, {}, {"beta": (2.0,)}),
    Layer("nn.Flatten", ANY),
    Layer("nn.ReflectionPad2D", (4,), {"padding": (1,)}),
    Layer("gluon.contrib.nn.Identity", ANY),
    *[Layer(f"gluon.contrib.nn.PixelShuffle{rank - 2}D", (rank,), {"factor": (2,)}) for rank in (3, 4)],
    Layer("nn.HybridLambda", ANY, first=("'tanh'", "lambda F, x: F.relu(x) * 2", "lambda F, x: F.softmax(x)")),
    Layer("nn.Embedding", ANY, {"input_dim": (4,), "output_dim": (2, 3)}, whole=True, calls=("$child($i)",)),
    Layer("rnn.LSTM", (3,), {"hidden_size": (2, 3)}, {**_RNN, "layout": ("NTC",)}),
    Layer("rnn.GRU", (3,), {"hidden_size": (2, 3)}, {**_RNN, "layout": ("NTC",)}),
    Layer("rnn.RNN", (3,), {"hidden_size": (2, 3)}, {**_RNN, "layout": ("NTC",), "activation": ("tanh", "relu")}),
    Layer("rnn.LSTMCell", (3,), {"hidden_size": (2, 3)}, calls=_UNROLL),
    Layer("rnn.GRUCell", (3,), {"hidden_size": (2, 3)}, calls=_UNROLL),
    Layer("rnn.RNNCell", (3,), {"hidden_size": (2, 3)}, {"activation": ("relu",)}, calls=_UNROLL),
    Layer(
        "rnn.DropoutCell",  # without states
        (3,),
        {"rate": (0.3,)},
        calls=("$new1, _ = $child.unroll(${2|4|5}, $x3, layout='NTC', merge_outputs=${True|False})",),
    ),
    Layer(
        "rnn.ZoneoutCell",
        (3,),
        {},
        {"zoneout_states": (0.3,)},
        calls=_UNROLL,
        first=("rnn.LSTMCell(2)", "rnn.RNNCell(3)"),
    ),
    Layer(
        "rnn.BidirectionalCell",
        (3,),
        calls=_UNROLL,
        first=("rnn.LSTMCell(2), rnn.LSTMCell(2)", "rnn.GRUCell(2), rnn.RNNCell(3)"),
    ),
    Layer("gluon.contrib.rnn.LSTMPCell", (3,), {"hidden_size": (3,), "projection_size": (2,)}, calls=_UNROLL),
]
