"""Errors for unknown names of modules: similar names, and replacements for names that only MXNet has."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping

from hybrid_lab.aliases import older_name
from hybrid_lab.system.provided import Provided

from .errors import UnknownNameError
from .location import Location

_LIMITS = "see Limits in the README"

#: Module, as users write it -> names of MXNet that are not here -> what to use instead, or "".
_ABSENT: dict[str, dict[str, str]] = {
    "mx": {
        "rtc": "use autograd.Function for an operator of your own",
    },
    "contrib": {
        "quantization": "",
        "tensorboard": "",
    },
    "contrib.amp": {"convert_bucketing_module": "use amp.convert_hybrid_block"},
}

#: Module, as users write it -> names of MXNet 2, PyTorch and others -> the name here with their meaning.
ELSEWHERE: dict[str, dict[str, str]] = {
    "mx": {
        "Block": "gluon.Block",
        "Device": "mx.Context",
        "Sequential": "gluon.nn.HybridSequential",
        "Tensor": "nd.NDArray",
        "Trainer": "gluon.Trainer",
        "amp": "mx.contrib.amp",
        "array": "nd.array",
        "device": "mx.context",
        "layer": "gluon.nn",
        "load": "gluon.load for models, nd.load for arrays",
        "nn": "gluon.nn",
        "opt": "mx.optimizer",
        "save": "gluon.Block.save for models, nd.save for arrays",
        "tensor": "nd.array",
    },
    "gluon": {"metric": "mx.metric"},
    "gluon.data.batchify": {
        "Group": "gluon.data.DataLoader(batchify_fn=f) with a function f that batches each part of the samples",
        "Pad": "gluon.data.DataLoader(batchify_fn=f) with a function f that pads the samples by numpy.pad",
        "Stack": "gluon.data.batchify.default_batchify_fn, which stacks samples",
    },
    "gluon.nn": {
        "AdaptiveAvgPool2d": "gluon.nn.GlobalAvgPool2D",
        "BatchNorm1d": "gluon.nn.BatchNorm",
        "BatchNorm2d": "gluon.nn.BatchNorm",
        "BatchNorm3d": "gluon.nn.BatchNorm",
        "ConvTranspose2d": "gluon.nn.Conv2DTranspose",
        "CrossEntropyLoss": "gluon.loss.SoftmaxCrossEntropyLoss",
        "GRU": "gluon.rnn.GRU",
        "LSTM": "gluon.rnn.LSTM",
        "LSTMCell": "gluon.rnn.LSTMCell",
        "Linear": "gluon.nn.Dense",
        "MSELoss": "gluon.loss.L2Loss",
        "Module": "gluon.HybridBlock",
        "ModuleList": "gluon.nn.HybridSequential",
        "Parameter": "gluon.Parameter",
        "PixelShuffle1D": "gluon.contrib.nn.PixelShuffle1D",
        "PixelShuffle2D": "gluon.contrib.nn.PixelShuffle2D",
        "PixelShuffle3D": "gluon.contrib.nn.PixelShuffle3D",
        "RNN": "gluon.rnn.RNN",
        "ReLU": "gluon.nn.Activation",
        "Sigmoid": "gluon.nn.Activation",
        "SyncBatchNorm": "gluon.contrib.nn.SyncBatchNorm",
        "Tanh": "gluon.nn.Activation",
    },
}


def unknown_name(
    where: str,
    name: str,
    known: Iterable[str],
    advice: str = "",
    location: Location | None = None,
    block: str | None = None,
) -> AttributeError:
    """The error for `where.name`, which an AttributeError is too, so that hasattr() works.

    known : the existing names; advice : text in place of similar names
    location, block : where in the user's code it was asked while a graph was traced
    """
    if name.startswith("_"):  # asked by Python and its tools, never by people
        return AttributeError(f"{where} has no {name!r}")
    instead = _ABSENT.get(where, {}).get(name)
    if instead is not None:
        advice = f"only MXNet has it, {_LIMITS}" + (f"; {instead}" if instead else "")
    elsewhere = ELSEWHERE.get(where, {}).get(name)
    if elsewhere is not None:
        advice = f"use {elsewhere}"
    return UnknownNameError(where, name, known, advice, location=location, block=block)


def unknown_method(kind: str, name: str, operators: str = "nd") -> AttributeError:
    """The error for an attribute that an object of `kind` does not have. operators : how users write F there"""
    message = f"{kind!r} object has no attribute {name!r}"
    if name.startswith("_"):  # asked by Python and its tools, never by people
        return AttributeError(message)
    from .foreign_names import foreign_method

    if (foreign := foreign_method(name)) is not None:
        message += f"; it is {foreign.framework}'s name, write {foreign.instead.replace('F.', f'{operators}.')}"
    return AttributeError(message)


def suggest_names(module: str, where: str = "", later: Mapping[str, Provided[..., object] | str] | None = None) -> None:
    """Let a wrong name of a public module raise UnknownNameError with the nearest names.

    It sets the module's `__getattr__` at run time, so that a wrong name stays an error for type checkers.

    module : its `__name__`; where : what users call it, by default its older name behind `hybrid_lab.`
    later : name -> its source, imported on first use: a function that another module provides, with its help, or the
    name of a module inside this one; "" for a module itself
    """
    there = sys.modules[module]

    def missing(name: str) -> object:
        place = later.get(name) if later else None
        if isinstance(place, str):
            found = importlib.import_module(f"{module}.{place or name}")
            vars(there)[name] = found = getattr(found, name) if place else found
            return found
        if place is not None:
            return place.function
        known = [*(vars(there).get("__all__") or vars(there)), *(later or ())]
        raise unknown_name(where or older_name(module).removeprefix("hybrid_lab."), name, known)

    vars(there)["__getattr__"] = missing
    if later:
        vars(there)["__dir__"] = lambda: sorted({*vars(there), *later})
