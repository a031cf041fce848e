"""One step of a recurrent cell as operators, with MXNet's names of the nodes: `t0_i2h`, `t0_slice`, `t0_out`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

from hybrid_lab.ops.framework.protocols import Functions, Tensor

Activation: TypeAlias = Callable[[Tensor, "str | None"], Tensor]
"""`activation(x, name)`."""

_AS_FUNCTIONS = ("tanh", "relu", "sigmoid", "softsign")
"""Activations for which MXNet's cells use an operator of that name instead of `Activation`."""


class StepNames(NamedTuple):
    """The names of the nodes of one step.

    prefix : begins each name, `t0_`
    inner : whether sums and products inside the step are named, too; else they are numbered as any other Symbol
    part_prefix : begins the names of all but the output; None is `prefix`
    """

    prefix: str
    inner: bool = True
    part_prefix: str | None = None

    def part(self, name: str) -> str:
        """The name of a gate or another part of the step."""
        return (self.prefix if self.part_prefix is None else self.part_prefix) + name

    def inside(self, name: str) -> str | None:
        """The name of a sum or product inside the step, or None."""
        return self.prefix + name if self.inner else None

    @property
    def out(self) -> str:
        """The name of the output."""
        return f"{self.prefix}out"


def activated(F: Functions, x: Tensor, activation: Any, name: str | None) -> Tensor:
    """x after an activation.

    activation : 'tanh', 'relu', 'sigmoid', 'softsign', another act_type of `Activation`, or a function of x and `name`
    """
    if not isinstance(activation, str):
        return cast(Tensor, activation(x, name=name))
    if activation in _AS_FUNCTIONS:
        return cast(Tensor, getattr(F, activation)(x, name=name))
    return F.Activation(x, act_type=activation, name=name)


def _sum(F: Functions, x: Tensor, y: Tensor, name: str | None) -> Tensor:
    return x + y if name is None else F.elemwise_add(x, y, name=name)


def _product(F: Functions, x: Tensor, y: Tensor, name: str | None) -> Tensor:
    return x * y if name is None else F.elemwise_mul(x, y, name=name)


def elman_step(F: Functions, i2h: Tensor, h2h: Tensor, activation: Activation, names: StepNames) -> Tensor:
    """h' = activation(i2h + h2h)."""
    return activation(_sum(F, i2h, h2h, names.inside("plus0")), names.out)


def lstm_step(
    F: Functions,
    i2h: Tensor,
    h2h: Tensor,
    cell: Tensor,
    gate: Activation,
    activation: Activation,
    last: Activation,
    names: StepNames,
    out: str = "out",
) -> tuple[Tensor, Tensor]:
    """c' = f c + i g, h' = o last(c'); returns h' and c'.

    i2h, h2h : (N, 4 * units, ...), gates in the order i, f, g, o; gate : of i, f and o; activation : of g
    out : the name of h'
    """
    parts: Any = F.SliceChannel(_sum(F, i2h, h2h, names.inside("plus0")), num_outputs=4, name=names.part("slice"))
    i, f = gate(parts[0], names.part("i")), gate(parts[1], names.part("f"))
    g, o = activation(parts[2], names.part("c")), gate(parts[3], names.part("o"))
    kept, new = _product(F, f, cell, names.inside("mul0")), _product(F, i, g, names.inside("mul1"))
    c = F.elemwise_add(kept, new, name=names.part("state"))
    return F.elemwise_mul(o, last(c, names.inside("activation0")), name=names.part(out)), c


def gru_step(
    F: Functions, i2h: Tensor, h2h: Tensor, h: Tensor, gate: Activation, activation: Activation, names: StepNames
) -> Tensor:
    """h' = (1 - z) n + z h with n = activation(i2h + r h2h).

    i2h, h2h : (N, 3 * units, ...), gates in the order r, z, n; gate : of r and z
    """
    inner: Any = F.SliceChannel(i2h, num_outputs=3, name=names.part("i2h_slice"))
    outer: Any = F.SliceChannel(h2h, num_outputs=3, name=names.part("h2h_slice"))
    r = gate(_sum(F, inner[0], outer[0], names.inside("plus0")), names.part("r_act"))
    z = gate(_sum(F, inner[1], outer[1], names.inside("plus1")), names.part("z_act"))
    reset = _product(F, r, outer[2], names.inside("mul0"))
    n = activation(_sum(F, inner[2], reset, names.inside("plus2")), names.part("h_act"))
    if names.inner:
        rest = F.elemwise_sub(F.ones_like(z, name=names.inside("ones_like0")), z, name=names.inside("minus0"))
    else:
        rest = 1.0 - z
    new, kept = _product(F, rest, n, names.inside("mul1")), _product(F, z, h, names.inside("mul20"))
    return F.elemwise_add(new, kept, name=names.out)
