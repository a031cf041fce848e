"""ParameterDict: the parameters of a Block by name, and operations on all parameters."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from os import PathLike, fspath
from typing import Any

import numpy as np

from hybrid_lab import initializer
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.numpy_mode import is_np_shape

from .parameter import Constant, Parameter, _normalized, merged_shape

__all__ = ["ParameterDict"]


class ParameterDict:
    """Parameters by their full names, in order.

    prefix : put before the names given to `get`
    shared : another dictionary; `get` takes a parameter from there if it has the name (shared weights)
    """

    def __init__(self, prefix: str = "", shared: ParameterDict | None = None) -> None:
        self._prefix = prefix
        self._shared = shared
        self._params: dict[str, Parameter] = {}

    def __repr__(self) -> str:
        head = f"{self._prefix} " if self._prefix else ""
        return "\n".join([f"{head}(", *(f"  {parameter!r}" for parameter in self.values()), ")"])

    def __getitem__(self, name: str) -> Parameter:
        try:
            return self._params[name]
        except KeyError:
            import difflib

            near = difflib.get_close_matches(name, self._params, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise KeyError(f"there is no parameter {name!r}{hint}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)

    def __contains__(self, name: object) -> bool:
        return name in self._params

    def items(self) -> ItemsView[str, Parameter]:
        """Pairs of name and parameter."""
        return self._params.items()

    def keys(self) -> KeysView[str]:
        """The full names."""
        return self._params.keys()

    def values(self) -> ValuesView[Parameter]:
        """The parameters."""
        return self._params.values()

    @property
    def prefix(self) -> str:
        """The prefix of names given to `get`."""
        return self._prefix

    # -- getting and adding ------------------------------------------------------------------------------------

    def _find(self, name: str) -> Parameter | None:
        parameter = self._params.get(name)
        if parameter is None and self._shared is not None:
            parameter = self._shared._params.get(name)
            if parameter is not None:
                self._params[name] = parameter
        return parameter

    def get(self, name: str, **kwargs: Any) -> Parameter:
        """The parameter `prefix + name`: an existing or shared one, else a new `Parameter(..., **kwargs)`.

        Raises ValueError if an existing parameter differs from the request (unknown dimensions are completed).
        """
        name = self._prefix + name
        parameter = self._find(name)
        if parameter is None:
            parameter = Parameter(name, **kwargs)
            self.add(parameter)
            return parameter
        for key, wanted in kwargs.items():
            _agree(parameter, key, wanted)
        return parameter

    def get_constant(self, name: str, value: object = None) -> Constant:
        """The Constant `prefix + name`; `value` is needed for a new one and must be equal to an existing one's."""
        name = self._prefix + name
        parameter = self._find(name)
        if parameter is None:
            if value is None:
                raise KeyError(f"there is no constant {name!r}, and no value to create it from")
            parameter = Constant(name, value)
            self.add(parameter)
        elif not isinstance(parameter, Constant):
            raise ValueError(f"{name!r} is a Parameter already, not a Constant")
        elif value is not None:
            array = value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)
            if not np.array_equal(parameter.value.asnumpy(), array):
                raise ValueError(f"Constant {name!r} exists already, with another value")
        assert isinstance(parameter, Constant)
        return parameter

    def update(self, other: ParameterDict | Mapping[str, Parameter]) -> None:
        """Take over all parameters of `other`. Raises ValueError if a name stands for two different parameters. If a
        file gave one of two equal names, the later parameter gets a number behind its name instead.
        """
        added: dict[str, Parameter] = {}
        for name, parameter in other.items():
            key, number = name, 0
            while (known := added.get(key) or self._params.get(key, parameter)) is not parameter:
                if not (parameter.from_file or known.from_file):
                    raise ValueError(
                        f"two different parameters are named {name!r}; make the blocks inside "
                        "`with self.name_scope():`, or give them a prefix"
                    )
                number += 1
                key = f"{name}_{number}"
            added[key] = parameter
        self._params.update(added)

    def add(self, parameter: Parameter) -> None:
        """Put a Parameter under its name; it replaces an earlier Parameter of the name."""
        self._params[parameter.name] = parameter
        parameter.registered = True

    def remove(self, name: str) -> None:
        """Take a Parameter out; does nothing for a name that is not there."""
        self._params.pop(name, None)

    # -- on all of them ----------------------------------------------------------------------------------------

    def initialize(
        self,
        init: InitializerLike | None = None,
        ctx: Context | Sequence[Context] | None = None,
        verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:
        """Initialize every parameter; `init` (default Uniform(0.07)) if it has no initializer of its own."""
        check_switches("ParameterDict.initialize", verbose=verbose, force_reinit=force_reinit)
        default = initializer.Uniform() if init is None else initializer.create(init)
        if verbose and hasattr(default, "set_verbosity"):
            default.set_verbosity(verbose=True)
        for parameter in self.values():
            parameter.initialize(None, ctx, default, force_reinit=force_reinit)

    def zero_grad(self) -> None:
        """Set all gradients to zero."""
        for parameter in self.values():
            parameter.zero_grad()

    def reset_ctx(self, ctx: Context | Sequence[Context] | None) -> None:
        """Move all parameters to other contexts."""
        for parameter in self.values():
            parameter.reset_ctx(ctx)

    def list_ctx(self) -> list[Context]:
        """All contexts the parameters are on."""
        return list(dict.fromkeys(ctx for parameter in self.values() for ctx in parameter.list_ctx()))

    def setattr(self, name: str, value: object) -> None:
        """Set an attribute of every parameter: `setattr('grad_req', 'null')` freezes them."""
        for parameter in self.values():
            setattr(parameter, name, value)

    # -- files -------------------------------------------------------------------------------------------------

    def save(self, filename: str | PathLike[str], strip_prefix: str = "") -> None:
        """Write a `.params` file, or a `.safetensors` one, with the parameters' names, less `strip_prefix`.

        Raises ValueError if a name does not start with it.
        """
        from hybrid_lab.formats.arrays import write_arrays

        for name in self.keys():
            if not name.startswith(strip_prefix):
                raise ValueError(
                    f"the parameter {name!r} does not start with strip_prefix={strip_prefix!r}: "
                    "it is shared from another block, or its block was made outside `with self.name_scope():`"
                )
        arrays = {name[len(strip_prefix) :]: each._reduce().asnumpy() for name, each in self.items()}
        write_arrays(filename, arrays, is_np_shape() or None)

    def load(
        self,
        filename: str | PathLike[str],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Load a `.params` file by names, `restore_prefix` put before them; `arg:` and `aux:` are dropped.

        All or nothing: raises LoadMismatchError listing everything that does not fit.
        """
        check_switches(
            "ParameterDict.load", allow_missing=allow_missing, ignore_extra=ignore_extra, cast_dtype=cast_dtype
        )
        from hybrid_lab.gluon.files.loading import read_arrays

        arrays, path = read_arrays(filename), fspath(filename)
        self.load_dict(arrays, ctx, allow_missing, ignore_extra, restore_prefix, path, cast_dtype, dtype_source)

    def load_dict(
        self,
        param_dict: Mapping[str, object],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        filename: str | None = None,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """As `load`, from a dict of name -> NDArray or NumPy array."""
        check_switches(
            "ParameterDict.load_dict", allow_missing=allow_missing, ignore_extra=ignore_extra, cast_dtype=cast_dtype
        )
        from hybrid_lab.gluon.files.loading import load_parameters, plain_name

        targets = {name: [(name, parameter)] for name, parameter in self.items()}
        arrays = {
            restore_prefix + plain_name(name): value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)
            for name, value in param_dict.items()
        }
        load_parameters(
            targets, arrays, filename, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source,
            restored=restore_prefix,
        )  # fmt: skip


def _agree(parameter: Parameter, key: str, wanted: Any) -> None:
    """Check one wanted attribute against an existing parameter, completing open dimensions."""
    if key in ("allow_deferred_init", "differentiable", "stype", "grad_stype"):
        return  # decided when the parameter was made
    existing = getattr(parameter, key, None)
    if wanted is not None and key == "dtype" and not parameter.dtype_was_given:
        existing = None
    if existing is None:
        setattr(parameter, key, wanted)
        return
    if wanted is None:
        return
    if key == "shape":
        merged = merged_shape(parameter.partial_shape, _normalized(wanted))
        if merged is not None:
            parameter.shape = merged
            return
    elif key == "dtype":
        if np.dtype(wanted) == np.dtype(existing):
            return
    elif wanted == existing:
        return
    raise ValueError(f"the parameter {parameter.name!r} exists already with {key}={existing!r}, not {key}={wanted!r}")
