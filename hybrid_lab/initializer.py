"""Initializers: how a parameter gets its first values.

Random initializers draw from a generator of their own per parameter (`drawing`), numbered when `initialize()` was
called. The values therefore depend on the seed and on the parameter's place in `collect_params()` only, not on when its
shape becomes known, and never shift the numbers of a Dropout.
"""

from __future__ import annotations

import json
import logging
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.diagnostics.formatting import check_choice, lookup
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.mxnet.registry import table
from hybrid_lab.ops.kernels.philox import generator
from hybrid_lab.ops.rnn.packed import Packing

if TYPE_CHECKING:
    from hybrid_lab.ndarray import NDArray

__all__ = [
    "Bilinear",
    "Constant",
    "FusedRNN",
    "InitDesc",
    "Initializer",
    "LSTMBias",
    "Load",
    "MSRAPrelu",
    "Mixed",
    "Normal",
    "One",
    "Orthogonal",
    "Uniform",
    "Xavier",
    "Zero",
    "alias",
    "create",
    "drawing",
    "register",
]

_logger = logging.getLogger("hybrid_lab")

_RULES: tuple[tuple[str, str], ...] = (
    ("weight", "_init_weight"),
    ("bias", "_init_bias"),
    ("gamma", "_init_gamma"),
    ("beta", "_init_beta"),
    ("moving_mean", "_init_zero"),
    ("running_mean", "_init_zero"),
    ("moving_var", "_init_one"),
    ("running_var", "_init_one"),
    ("min", "_init_zero"),
    ("max", "_init_one"),
)
"""The end of a parameter's name and the rule that applies to it; the first match counts."""


class InitDesc(str):
    """A parameter's name with its attributes; `attrs['__init__']` overrides the rule its name would choose."""

    attrs: dict[str, object]
    global_init: object

    def __new__(cls, name: str, attrs: Mapping[str, object] | None = None, global_init: object = None) -> InitDesc:
        desc = super().__new__(cls, name)
        desc.attrs = dict(attrs or {})
        desc.global_init = global_init
        return desc


# -- random numbers ------------------------------------------------------------------------------------------------


class _Current(threading.local):
    generator: np.random.Generator | None = None


_current = _Current()


@contextmanager
def drawing(seed: int, draw: int) -> Iterator[None]:
    """Within this block, random initializers use the generator numbered (seed, draw)."""
    with drawing_from(generator(seed, draw)):
        yield


@contextmanager
def drawing_from(source: Any) -> Iterator[None]:
    """Within this block, random initializers draw from `source`, a generator of NumPy or an equivalent."""
    before = _current.generator
    _current.generator = source
    try:
        yield
    finally:
        _current.generator = before


def _generator() -> np.random.Generator:
    if _current.generator is not None:
        return _current.generator
    from hybrid_lab.ndarray.random_state import state

    return generator(*state.next_initializer_draw())


# -- the base ------------------------------------------------------------------------------------------------------


class Initializer:
    """Base of all initializers. Keyword arguments given here are what `dumps()` writes.

        @mx.init.register
        class Half(mx.init.Initializer):
            def _init_weight(self, name, array):
                array[:] = 0.5

        layer = nn.Dense(1, in_units=2, weight_initializer="half")
        layer.initialize()
        layer.weight.data()

    A custom initializer overrides `_init_weight(self, name, arr)` and writes `arr[:] = values`; to create it by
    its name, decorate it with `@init.register`.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs
        self._verbose = False
        self._print_func: Callable[[object], str] | None = None

    def set_verbosity(self, verbose: bool = False, print_func: Callable[[object], str] | None = None) -> Initializer:
        """Log a line for every array that is initialized; `print_func(array)` gives the text of the line."""
        check_switches("Initializer.set_verbosity", verbose=verbose)
        self._verbose = verbose
        self._print_func = print_func
        return self

    def dumps(self) -> str:
        """The initializer as JSON text, `["xavier", {"magnitude": 3}]`, which `create` reads."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, desc: str, arr: NDArray) -> None:
        """Fill `arr` in place, by `desc.attrs['__init__']` if there is one, else by the name's ending.

        Raises ValueError for a name that no rule covers.
        """
        attrs = getattr(desc, "attrs", {})
        if isinstance(desc, InitDesc) and desc.global_init is None:
            desc.global_init = self
        chosen = attrs.get("__init__")
        if chosen:
            initializer = create(chosen)
            # Mixed, Load and plain functions choose by name themselves.
            getattr(initializer, "_init_weight", initializer)(desc, arr)
            self._log(desc, chosen, arr)
            return
        for ending, rule in _RULES:
            if desc.endswith(ending):
                getattr(self, rule)(desc, arr)
                self._log(desc, ending, arr)
                return
        self._init_default(desc, arr)

    def _log(self, desc: str, rule: object, arr: NDArray) -> None:
        if self._verbose:
            shown = self._print_func(arr) if self._print_func else f"norm {np.linalg.norm(arr.asnumpy()):.4g}"
            _logger.info("Initialized %s as %s: %s", desc, rule, shown)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not override _init_weight(name, arr)")

    def _init_zero(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_one(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0

    def _init_bias(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_gamma(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0

    def _init_beta(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0

    def _init_default(self, name: str, arr: NDArray) -> None:
        endings = ", ".join(ending for ending, _ in _RULES)
        raise ValueError(
            f"no initialization rule for the name {str(name)!r}: names ending with {endings} have one. "
            "Give the parameter an initializer of its own: init=mx.init.Normal()"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Initializer):
            return NotImplemented
        return type(self) is type(other) and self.dumps() == other.dumps()

    def __hash__(self) -> int:
        return hash(self.dumps())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self._kwargs.items())})"


# -- the registry --------------------------------------------------------------------------------------------------

_registry: dict[str, type[Initializer]] = table(Initializer)


def register(klass: type[Initializer]) -> type[Initializer]:
    """Class decorator: the initializer can be named by its class name in lower case."""
    _registry[klass.__name__.lower()] = klass
    return klass


def alias(*names: str) -> Callable[[type[Initializer]], type[Initializer]]:
    """Class decorator: further names of an initializer."""

    def add(klass: type[Initializer]) -> type[Initializer]:
        _registry.update((name.lower(), klass) for name in names)
        return klass

    return add


#: An Initializer, the name of one, or None for the default.
InitializerLike: TypeAlias = "Initializer | Mixed | Load | str | None"


def described_by(text: str) -> bool:
    """Whether a text is the name of an initializer or JSON as `dumps()` writes it, so that `create` takes it."""
    return text.startswith("[") or text.lower() in _registry


def create(initializer: Any, **kwargs: Any) -> Any:
    """The initializer for a name ('xavier'), for JSON text as `dumps()` writes it, or the given one itself.

    Raises ValueError for a name that is not registered.
    """
    if not isinstance(initializer, str):
        return initializer
    name = initializer
    if name.startswith("["):
        try:
            name, kwargs = json.loads(name)
        except ValueError as error:
            raise ValueError(f"this text does not describe an initializer: {initializer!r} ({error})") from None
    return lookup("initializer", name, _registry)(**kwargs)


# -- constants -----------------------------------------------------------------------------------------------------


@register
@alias("zeros")
class Zero(Initializer):
    """All zeros."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 0.0


@register
@alias("ones")
class One(Initializer):
    """All elements are 1."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 1.0


@register
class Constant(Initializer):
    """One number, or an array of the parameter's shape."""

    def __init__(self, value: Any) -> None:
        array = value.asnumpy() if hasattr(value, "asnumpy") else value
        super().__init__(value=array if isinstance(array, (int, float)) else np.asarray(array).tolist())
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = self.value


# -- random --------------------------------------------------------------------------------------------------------


def _at_least_0(name: str, setting: str, value: float) -> float:
    """A setting that must be at least 0, such as a standard deviation. Raises AttributeSpecError, also for NaN."""
    if not value >= 0:
        raise AttributeSpecError(f"init.{name}: {setting}={value!r}; a number of at least 0 is needed")
    return value


@register
class Uniform(Initializer):
    """Uniform in [-scale, scale)."""

    def __init__(self, scale: float = 0.07) -> None:
        super().__init__(scale=scale)
        self.scale = _at_least_0("Uniform", "scale", scale)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = _generator().uniform(-self.scale, self.scale, arr.shape).astype(arr.dtype)


@register
class Normal(Initializer):
    """Normal with mean 0 and standard deviation `sigma`."""

    def __init__(self, sigma: float = 0.01) -> None:
        super().__init__(sigma=sigma)
        self.sigma = _at_least_0("Normal", "sigma", sigma)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = _generator().normal(0.0, self.sigma, arr.shape).astype(arr.dtype)


@register
class Xavier(Initializer):
    """Glorot's rule: the variance is `magnitude / fan`, so that activations keep their scale from layer to layer.

        net = nn.Dense(2, in_units=3)
        net.initialize(mx.init.Xavier())

    rnd_type : 'uniform' in [-c, c) with c = sqrt(magnitude / fan), or 'gaussian' with that standard deviation
    factor_type : fan is the number of inputs ('in'), of outputs ('out'), or their mean ('avg'); for a kernel of shape
        (out, in, k1, k2 ...) both are multiplied by k1 * k2 ...

    Raises ShapeError for a vector: it has no fan.
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        check_choice("rnd_type", rnd_type, ("uniform", "gaussian"))
        check_choice("factor_type", factor_type, ("avg", "in", "out"))
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(_at_least_0(type(self).__name__, "magnitude", magnitude))

    def _init_weight(self, name: str, arr: NDArray) -> None:
        shape = arr.shape
        if len(shape) < 2:
            raise ShapeError(
                f"{type(self).__name__} needs at least two dimensions (outputs, inputs); {str(name)!r} has shape "
                f"{shape}. "
                "Give it an initializer of its own: init='zeros'"
            )
        window = math.prod(shape[2:])
        fan_in, fan_out = shape[1] * window, shape[0] * window
        fan = {"avg": (fan_in + fan_out) / 2.0, "in": fan_in, "out": fan_out}[self.factor_type]
        scale = math.sqrt(self.magnitude / fan)
        if self.rnd_type == "uniform":
            arr[:] = _generator().uniform(-scale, scale, shape).astype(arr.dtype)
        else:
            arr[:] = _generator().normal(0.0, scale, shape).astype(arr.dtype)


@register
class MSRAPrelu(Xavier):
    """He's rule for (P)ReLU networks (arXiv 1502.01852): gaussian with variance 2 / (1 + slope^2) / fan."""

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register
class Orthogonal(Initializer):
    """`scale` times a matrix with orthonormal rows or columns (arXiv 1312.6120).

    An array of more dimensions is seen as the matrix (first dimension, rest).
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        super().__init__(scale=scale, rand_type=rand_type)
        check_choice("rand_type", rand_type, ("uniform", "normal"))
        self.scale = scale
        self.rand_type = rand_type

    def _init_weight(self, name: str, arr: NDArray) -> None:
        rows, columns = arr.shape[0], math.prod(arr.shape[1:])
        generator = _generator()
        if self.rand_type == "uniform":
            matrix = generator.uniform(-1.0, 1.0, (rows, columns))
        else:
            matrix = generator.normal(0.0, 1.0, (rows, columns))
        left, _, right = np.linalg.svd(matrix, full_matrices=False)
        basis = left if left.shape == matrix.shape else right
        arr[:] = (self.scale * basis.reshape(arr.shape)).astype(arr.dtype)


# -- for particular layers -----------------------------------------------------------------------------------------


@register
class Bilinear(Initializer):
    """The kernel (..., height, width) of a deconvolution that upsamples bilinearly."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if len(arr.shape) != 4:
            raise ShapeError(f"Bilinear fills a kernel with four dimensions; {str(name)!r} has shape {arr.shape}")
        height, width = arr.shape[2:]
        half = math.ceil(width / 2.0)
        centre = (2 * half - 1 - half % 2) / (2.0 * half)
        across = 1 - np.abs(np.arange(width) / half - centre)
        down = 1 - np.abs(np.arange(height) / half - centre)
        arr[:] = np.broadcast_to(down[:, None] * across, arr.shape).astype(arr.dtype)


@register
class LSTMBias(Initializer):
    """Zeros, and `forget_bias` for the forget gate, the second of the four gates."""

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        values = np.zeros(arr.shape, arr.dtype)
        hidden = arr.shape[0] // 4
        values[hidden : 2 * hidden] = self.forget_bias
        arr[:] = values


@register
class FusedRNN(Initializer):
    """The packed parameters of the operator RNN: each gate's weights and biases by a rule of their own.

    init : for the parts, an initializer, its name or its JSON text; None for the initializer of the model
    num_hidden, num_layers, mode, bidirectional : as in `mx.rnn.FusedRNNCell`
    forget_bias : the first value of the forget gates' biases in mode 'lstm'
    """

    def __init__(
        self,
        init: Initializer | str | None,
        num_hidden: int,
        num_layers: int,
        mode: str,
        bidirectional: bool = False,
        forget_bias: float = 1.0,
    ) -> None:
        check_switches("FusedRNN", bidirectional=bidirectional)
        self._init = create(init)
        super().__init__(
            init=None if self._init is None else self._init.dumps(),
            num_hidden=num_hidden,
            num_layers=num_layers,
            mode=mode,
            bidirectional=bidirectional,
            forget_bias=forget_bias,
        )
        self._packing = Packing(mode, num_hidden, num_layers, bidirectional)
        self._forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        initializer = self._init or getattr(name, "global_init", None)
        if initializer is None:
            raise ValueError(f"FusedRNN of {str(name)!r} needs an initializer for the weights: FusedRNN(init, ...)")
        start = 0
        for part, shape in self._packing.parts(self._packing.num_input(arr.size)):
            values = arr[start : start + math.prod(shape)].reshape(shape).copy()
            start += math.prod(shape)
            if part.endswith("_f_bias"):
                values[:] = self._forget_bias
            else:
                initializer(InitDesc(part, global_init=initializer), values)
            arr[start - math.prod(shape) : start] = values.reshape((-1,))


# -- choosing among several ----------------------------------------------------------------------------------------


class Mixed:
    """The first initializer whose pattern (a regular expression, matched at the start) fits the parameter's name.

        net = nn.Dense(1, in_units=2)
        net.initialize(mx.init.Mixed([".*bias", ".*"], [mx.init.One(), mx.init.Zero()]))
        net.weight.data()

    Raises ValueError if none fits.
    """

    def __init__(self, patterns: Sequence[str], initializers: Sequence[Any]) -> None:
        if len(patterns) != len(initializers):
            raise ValueError(f"{len(patterns)} patterns for {len(initializers)} initializers; each pattern needs one")
        self.map = [(re.compile(pattern), create(each)) for pattern, each in zip(patterns, initializers, strict=True)]

    def set_verbosity(self, verbose: bool = False, print_func: Callable[[object], str] | None = None) -> Mixed:
        """As `Initializer.set_verbosity`, for each initializer."""
        check_switches("Mixed.set_verbosity", verbose=verbose)
        for _, initializer in self.map:
            initializer.set_verbosity(verbose, print_func)
        return self

    def __call__(self, name: str, arr: NDArray) -> None:
        for pattern, initializer in self.map:
            if pattern.match(name):
                initializer(name, arr)
                return
        raise ValueError(
            f"the name {str(name)!r} fits none of the patterns {', '.join(repr(p.pattern) for p, _ in self.map)}; "
            "add '.*' with a default initializer at the end"
        )


class Load:
    """Values by name from a `.params` file or a dict of arrays; names not in it go to `default_init`.

    The prefixes `arg:` and `aux:` of exported files are dropped. Raises ShapeError for a value of another shape, and
    KeyError for a missing name if there is no default.
    """

    def __init__(self, param: str | Mapping[str, Any], default_init: Any = None, verbose: bool = False) -> None:
        check_switches("Load", verbose=verbose)
        if isinstance(param, str):
            from hybrid_lab.ndarray import load

            loaded = load(param)
            if isinstance(loaded, list):
                raise ValueError(f"{param!r} holds arrays without names; Load finds values by name")
            param = loaded
        self.param = {name[4:] if name[:4] in ("arg:", "aux:") else name: value for name, value in param.items()}
        self.default_init = None if default_init is None else create(default_init)
        self.verbose = verbose

    def set_verbosity(self, verbose: bool = False, print_func: Callable[[object], str] | None = None) -> Load:
        """Log where each array's values came from."""
        check_switches("Load.set_verbosity", verbose=verbose)
        self.verbose = verbose
        return self

    def __call__(self, name: str, arr: NDArray) -> None:
        value = self.param.get(str(name))
        if value is None:
            if self.default_init is None:
                raise KeyError(f"{str(name)!r} is not among the loaded parameters, and there is no default_init")
            self.default_init(name, arr)
        else:
            if tuple(value.shape) != tuple(arr.shape):
                raise ShapeError(
                    f"{str(name)!r} has shape {tuple(arr.shape)}, but the loaded value has {tuple(value.shape)}"
                )
            arr[:] = value
        if self.verbose:
            _logger.info("Initialized %s by %s", name, "default" if value is None else "loading")


_suggest_names(__name__, "init")
