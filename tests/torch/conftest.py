"""torch.export does the same work for each of some 300 exports: here, once."""

from __future__ import annotations

import sys
from typing import Any

import pytest


class _CallableType(type):
    def __instancecheck__(cls, item: object) -> bool:
        return callable(item)


class _Callable(metaclass=_CallableType):
    """`collections.abc.Callable` of annotations that torch evaluates 12,000 times an export."""

    def __class_getitem__(cls, item: object) -> type:
        return cls


@pytest.fixture(scope="session", autouse=True)
def operators_are_listed_once():
    """A quarter of an export goes into looking up all composite operators by name, once for each namespace, and into
    annotations of a function in a function. Operators that a test registers are looked up again.
    """
    pytest.importorskip("torch")
    import torch._export
    import torch._ops

    utils: Any = sys.modules.get("torch._export.utils")
    if not hasattr(utils, "_materialize_cpp_cia_ops") or not hasattr(torch._ops, "Callable"):
        yield  # another torch
        return
    find, listed = utils._materialize_cpp_cia_ops, list[str]()

    def find_once() -> None:
        registered = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        if registered != listed:
            find()
            listed[:] = registered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_materialize_cpp_cia_ops", find_once)
        patch.setattr(torch._ops, "Callable", _Callable)
        yield
