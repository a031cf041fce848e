"""MXNet's private names that libraries import from its modules of layers, images, texts and data sets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any

from hybrid_lab import symbol as sym
from hybrid_lab.data.image.cropping import choose_interp as _get_interp_method  # noqa: F401
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.gluon.data.dataset import Dataset
from hybrid_lab.ndarray.numpy_mode import is_np_array
from hybrid_lab.ndarray.storage import STORAGE_TYPES
from hybrid_lab.ops.framework.protocols import Functions, Tensor

_STORAGE_TYPE_STR_TO_ID = STORAGE_TYPES
_STORAGE_TYPE_ID_TO_STR = {number: name for name, number in STORAGE_TYPES.items()}


def _indent(s_: str, numSpaces: int) -> str:  # noqa: N803 - MXNet's name
    """A text with all lines but the first indented by `numSpaces` spaces."""
    return s_.replace("\n", "\n" + " " * numSpaces)


def _brief_print_list(lst: Iterable[object], limit: int = 7) -> str:
    """Items in quotation marks, separated by commas; of more than `limit` items the middle ones are left out."""
    items = list(lst)
    if len(items) > limit:
        first, last = items[: limit // 2], items[-limit // 2 :]
        return f"{_brief_print_list(first, limit)}, ..., {_brief_print_list(last, limit)}"
    return ", ".join(f"'{item}'" for item in items)


def _infer_weight_shape(op_name: str, data_shape: Sequence[int], kwargs: dict[str, Any]) -> list[tuple[int, ...]]:
    """The shapes of the arguments of an operator, its data first, 0 for each unknown size.

    op_name : such as "Convolution"; kwargs : its attributes
    """
    data = sym.var("data", shape=tuple(data_shape))
    if is_np_array():
        data = data.as_np_ndarray()
    shapes: list[tuple[int, ...]] = getattr(sym, op_name)(data, **kwargs).infer_shape_partial()[0]
    return shapes


class _Pooling(HybridBlock):
    """The base of MXNet's pooling layers. pool_size : one number per dimension; strides : None is pool_size"""

    def __init__(
        self,
        pool_size: Sequence[int],
        strides: int | Sequence[int] | None,
        padding: int | Sequence[int],
        ceil_mode: bool = False,
        global_pool: bool = False,
        pool_type: str = "max",
        layout: str = "NCHW",
        count_include_pad: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        kernel = tuple(pool_size)
        strides = kernel if strides is None else strides
        self._kwargs: dict[str, Any] = {
            "kernel": kernel,
            "stride": (strides,) * len(kernel) if isinstance(strides, int) else tuple(strides),
            "pad": (padding,) * len(kernel) if isinstance(padding, int) else tuple(padding),
            "global_pool": global_pool,
            "pool_type": pool_type,
            "layout": layout,
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if count_include_pad is not None:
            self._kwargs["count_include_pad"] = count_include_pad

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.Pooling(x, name="fwd", **self._kwargs)


class _DownloadedDataset(Dataset):
    """The base of MXNet's data sets in files. A subclass has `_get_data`, which fills `_data` and `_label`.

    root : the folder, which is made; transform : None, or makes a sample of an item of each of the two
    """

    def __init__(self, root: str | PathLike[str], transform: Callable[..., object] | None) -> None:
        self._transform = transform
        self._data: Any = None
        self._label: Any = None
        self._root = os.path.expanduser(os.fspath(root))
        os.makedirs(self._root, exist_ok=True)
        self._get_data()

    def _get_data(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define _get_data()")

    def __getitem__(self, index: int) -> object:
        sample = self._data[index], self._label[index]
        return sample if self._transform is None else self._transform(*sample)

    def __len__(self) -> int:
        return len(self._label)
