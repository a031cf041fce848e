"""NDArray: a view on a Buffer, with MXNet's API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, HybridLabError, ShapeError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.ndarray import calls, changes, tape
from hybrid_lab.ndarray.buffer import Buffer, DeviceBuffer, copies, tensor_of, wait_for
from hybrid_lab.ndarray.context import CPU, Context, device_of, resolve
from hybrid_lab.ndarray.overloads import Overloads
from hybrid_lab.ops.arrays.slicing import split_v2_operator
from hybrid_lab.ops.framework.dtypes import DTYPES, dtype_of
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.system.provided import Provided

py_slice = slice
"""Python's slice, under the name that MXNet's module of NDArray gives it."""
array_html: Provided[[Any], str | None] = Provided("array_html")
to_sparse: Provided[[Any, str], Any] = Provided("to_sparse")
sparse_zeros: Provided[[str, tuple[int, ...], DTypeLike, Context], Any] = Provided("sparse_zeros")
numpy_class: Provided[[], Any] = Provided("numpy_class")
"""The class of `mx.np` arrays."""


class NDArray(Overloads):
    """An array of numbers on a device. Made by `nd.array(...)`, `nd.zeros(...)` and by operators.

    Every operator whose first input is an array is a method too: `x.softmax(axis=1)` is `nd.softmax(x, axis=1)`.
    `x.reshape(...)`, and basic indexing whose result is contiguous in memory (`x[0]`, `x[1:3]`), share memory with x as
    in MXNet; everything else copies.
    """

    __slots__ = ("__weakref__", "buffer", "host_view", "tape_link")

    is_np = False
    """Whether operators give `mx.np` arrays for it, and `x[0]` of a vector has the shape ()."""

    # NumPy leaves `numpy_scalar * array` to the array.
    __array_priority__ = 1000.0

    buffer: Buffer
    """The memory, which several arrays may share."""
    host_view: np.ndarray
    """The array's part of the buffer's memory on the host, always C-contiguous. It may be stale: `raw()` is not."""
    tape_link: tape.Link
    """What the array is on autograd's tape: see `tape`."""

    def __init__(self, source: Any = None, *arguments: Any, **keywords: Any):
        raise TypeError(
            "create arrays with nd.array(values), nd.zeros(shape) or a similar function, not with NDArray(...)"
        )

    # -- construction ------------------------------------------------------------------------------------------

    @staticmethod
    def wrap(host: np.ndarray, context: Context = CPU) -> NDArray:
        """Take over a C-contiguous NumPy array of a supported dtype, unchecked and uncopied."""
        buffer = _new(Buffer)  # Buffer(host, context), in line: every eager call comes here
        buffer.host = host
        buffer.context = context
        buffer.device = buffer.saved_version = None
        buffer.host_stale = buffer.device_stale = False
        buffer.version = 0
        buffer.exported = buffer.watched = False
        array = _new(NDArray)
        array.buffer = buffer
        array.host_view = host
        array.tape_link = None
        return array

    @classmethod
    def from_host(cls, host: np.ndarray, context: Context) -> NDArray:
        """As `wrap`, for any context and class: on a GPU the numbers go there when they are first read."""
        buffer = DeviceBuffer(host, context) if context.is_gpu else Buffer(host, context)
        return cls.view_of(buffer, host)

    @classmethod
    def wrap_device(cls, tensor: object, context: Context) -> NDArray:
        """Take over a contiguous torch tensor on a GPU; the host's copy follows when it is read."""
        array = _new(cls)
        array.buffer = buffer = Buffer.on_device(tensor, context)
        array.host_view = buffer.host
        array.tape_link = None
        return array

    @classmethod
    def view_of(cls, buffer: Buffer, view: np.ndarray, link: tape.Link = None) -> NDArray:
        """Another array on the same buffer."""
        array = _new(cls)
        array.buffer, array.host_view, array.tape_link = buffer, view, link
        return array

    # -- memory ------------------------------------------------------------------------------------------------

    @property
    def _data(self) -> np.ndarray:
        """The host's memory, up to date. Code that writes to it calls `written()` afterwards."""
        buffer = self.buffer
        if buffer.host_stale:
            buffer.pull()
        return self.host_view

    def written(self) -> None:
        """Record that the host's memory was written to."""
        self.buffer.written()

    def assign(self, values: np.ndarray) -> None:
        """Overwrite the values without the tape: for optimizers and for new values of auxiliary states."""
        try:
            np.copyto(self._data, values, casting="same_kind")
            self.buffer.written()
        except BaseException:  # an interrupt may leave it half written
            self.buffer.written()
            raise

    @property
    def version(self) -> int:
        """How often the memory was written to."""
        return self.buffer.version

    def raw(self, device: object = None) -> Any:
        """The memory that executables take: a NumPy array on the host (None, "cpu"), or a torch tensor on `device`."""
        if device is None or device == "cpu":
            return self._data
        if type(device) is str:
            import torch

            device = torch.device(device)
        return tensor_of(self.buffer, self.host_view, device)

    def _take(self, tensor: Any) -> None:
        """`assign` from a tensor on the device; afterwards the copy on the host is stale."""
        target = self.memory_on(tensor.device)
        if target.data_ptr() != tensor.data_ptr():
            target.copy_(tensor)
        self.buffer.written_on_device()

    def memory_on(self, device: str | None) -> Any:
        """The array's memory on a device, for a caller who writes to the whole array."""
        buffer, view = self.buffer, self.host_view
        if view.size == buffer.host.size:
            return buffer.space(device).view(view.shape)
        return tensor_of(buffer, view, device)

    def fill(self, number: float) -> None:
        """Overwrite all numbers where they are."""
        device = self.buffer.device
        if device is None:
            self._data.fill(number)
            self.written()
            return
        self.memory_on(device.device).fill_(number)
        self.buffer.written_on_device()

    # -- attributes --------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes along the axes."""
        return self.host_view.shape

    @property
    def dtype(self) -> Any:
        """The NumPy type, `numpy.float32`."""
        return self.host_view.dtype.type

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.host_view.size

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.host_view.ndim

    @property
    def context(self) -> Context:
        """The device the array was asked for on."""
        return self.buffer.context

    ctx = context

    @property
    def stype(self) -> str:
        """Storage type: 'default' (dense); sparse arrays are of other classes, see `nd.sparse`."""
        return "default"

    @property
    def T(self) -> NDArray:
        """A copy with the axes reversed."""
        return self.transpose()

    @property
    def handle(self) -> int:
        """A number that is equal for arrays that share their memory."""
        return id(self.buffer)

    @property
    def writable(self) -> bool:
        """Always true, as in MXNet."""
        return True

    # -- values out --------------------------------------------------------------------------------------------

    def asnumpy(self) -> np.ndarray:
        """A copy as a NumPy array."""
        copies.reads += 1
        return self._data.copy()

    def asscalar(self) -> Any:
        """The only element as a NumPy scalar. Raises ShapeError for any other size."""
        copies.reads += 1
        if self.size != 1:
            raise ShapeError(f"The current array is not a scalar: it has shape {self.shape}")
        return self._data.reshape(-1)[0]

    def item(self) -> Any:
        """The only element as a Python number. Raises ShapeError for any other size."""
        return self.asscalar().item()

    def tolist(self) -> Any:
        """The elements as nested Python lists."""
        copies.reads += 1
        return self._data.tolist()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        copies.reads += 1
        values = self._data
        if dtype is not None and np.dtype(dtype) != values.dtype:
            if copy is False:
                raise ValueError(f"a {values.dtype} array cannot become {np.dtype(dtype)} without a copy")
            return values.astype(dtype)
        # A view would let writes go past the version counter.
        if copy is False:
            view = values.view()
            view.flags.writeable = False
            return view
        return values.copy()

    def __dlpack__(self, **keywords: Any) -> Any:
        """A DLPack capsule of the memory, on a GPU of its memory there; torch orders the receiver's `stream` after the
        launched work. Raises BufferError for copy=False to another device.
        """
        memory = self._for_others()
        wanted = keywords.get("dl_device")
        if wanted is not None and tuple(wanted) != tuple(memory.__dlpack_device__()):
            if keywords.get("copy") is False:
                raise BufferError(f"an array on {self.context} cannot be read on another device without a copy")
            return self.asnumpy().__dlpack__(dl_device=wanted, max_version=keywords.get("max_version"))
        copies.reads += 1
        self.buffer.exported = True
        changes.happened()
        return memory.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind of the device (1: CPU, 2: CUDA, 10: ROCm) and its number."""
        kind, number = self._for_others().__dlpack_device__()
        return int(kind), int(number)

    def _for_others(self) -> Any:
        """The memory that DLPack hands over."""
        return self.raw(device_of(self.context)) if self.buffer.lives_on_device else self._data

    def to_dlpack_for_read(self) -> Any:
        """A DLPack capsule of the memory; the receiver must not write to it."""
        return self.__dlpack__()

    def to_dlpack_for_write(self) -> Any:
        """A DLPack capsule of the memory; writes through it are not noticed by the tape."""
        self.written()
        return self.__dlpack__()

    def __bool__(self) -> bool:
        if self.size == 1:
            return bool(self.asscalar())
        if self.size == 0:
            return False
        raise ShapeError(
            "The truth value of an NDArray with multiple elements is ambiguous; use (x != 0).sum() or asscalar()"
        )

    def __float__(self) -> float:
        return float(self.asscalar())

    def __int__(self) -> int:
        return int(self.asscalar())

    def __index__(self) -> int:
        if self.dtype is np.bool_ or self.host_view.dtype.kind not in "iu" or self.size != 1:
            raise DTypeError(
                f"only an integer array with one element can be an index, not {self.host_view.dtype.name} {self.shape}"
            )
        return int(self.asscalar())

    def __len__(self) -> int:
        if not self.host_view.ndim:
            raise ShapeError("an array without dimensions has no length")
        return self.host_view.shape[0]

    def __iter__(self) -> Iterator[NDArray]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"\n{self.asnumpy()!s}\n<NDArray {shape} @{self.context}>"

    def _repr_html_(self) -> str | None:
        """Values, numbers, histogram and picture as HTML without scripts, where a notebook shows the array."""
        return array_html(self)

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.asnumpy(), self.context)

    def __copy__(self) -> NDArray:
        return self.copy()

    def __deepcopy__(self, memo: object) -> NDArray:
        copy = self.alike(NDArray.from_host(self._data.copy(), self.context))
        if type(self.tape_link) is tape.Leaf:
            copy.attach_grad(self.tape_link.req)
        return copy

    # -- copies and conversions --------------------------------------------------------------------------------

    def copy(self) -> NDArray:
        """A copy on the same device; recorded."""
        return calls.invoke(get("identity").bind(), (self,))

    def astype(self, dtype: DTypeLike | None, copy: bool = True) -> NDArray:
        """The array with another dtype; recorded. `copy=False` returns the array itself if it has that dtype."""
        wanted = check_dtype(dtype)
        if not copy and wanted == self.host_view.dtype:
            return self
        return calls.invoke(get("Cast").bind(dtype=wanted.name), (self,))

    def copy_from(self, source: Any) -> NDArray:
        """Overwrite all values, in place, with the values of an array or nested lists of the same shape, converted to
        this dtype; returns the array. As SINGA's tensors do.

        Raises ShapeError for another shape.
        """
        values = source if isinstance(source, NDArray) else np.asarray(source)
        if values.shape != self.shape:
            raise ShapeError(f"copy_from: the array has shape {self.shape}, the values have {values.shape}")
        self[:] = values
        return self

    def copyto(self, other: NDArray | Context) -> NDArray:
        """Write into another array of the same shape (converting the dtype), or copy to a context; returns it."""
        if isinstance(other, Context):
            context = resolve(other)
            if context == self.context or not (context.is_gpu or self.context.is_gpu):
                copy = self.copy()
                copy.buffer.context = context
                return copy
            copy = self.alike(NDArray.from_host(self._data.copy(), context))
            if context.is_gpu:
                copy.buffer.push(device_of(context))
            calls.note_operator(get("identity").bind(), (self,), (copy,))
            return copy
        if not isinstance(other, NDArray):
            raise DTypeError(f"copyto takes an NDArray or a Context, not {type(other).__name__}")
        if other.shape != self.shape:
            raise ShapeError(f"copyto: the array has shape {self.shape}, the target {other.shape}")
        if other is not self:
            other[:] = self
        return other

    def as_in_context(self, context: Context) -> NDArray:
        """The array itself if it is on `context`, else a copy there. Raises EngineUnavailable."""
        context = resolve(context)
        return self if context == self.context else self.copyto(context)

    as_in_ctx = as_in_context
    to_device = as_in_context

    def as_nd_ndarray(self) -> NDArray:
        """The array itself; of an `mx.np` array the NDArray on the same memory, with the same history."""
        return self

    def as_np_ndarray(self) -> Any:
        """An `mx.np` array on the same memory, with the same history and gradient."""
        return numpy_class().view_of(self.buffer, self.host_view, self.tape_link)

    def alike(self, other: NDArray) -> Any:
        """An array of this one's class with the memory and the history of `other`, a new array."""
        return other if type(self) is NDArray else self.view_of(other.buffer, other.host_view, other.tape_link)

    def tostype(self, stype: str) -> NDArray:
        """A copy in another storage type, 'default' (dense), 'row_sparse' or 'csr'; recorded. See `nd.sparse`.

        Raises ShapeError for csr of an array without two dimensions.
        """
        if stype == "default":
            return self.copy()
        return to_sparse(self, stype)

    def wait_to_read(self) -> None:
        """Wait for a GPU to compute these numbers; calls on the host are synchronous."""
        wait_for(self.buffer.device)

    wait_to_write = wait_to_read

    # -- shape -------------------------------------------------------------------------------------------------

    def reshape(self, *shape: Any, reverse: bool = False, **keywords: Any) -> NDArray:
        """The same memory in another shape, a view. `x.reshape(0, -1)` or `x.reshape((0, -1))`.

        Codes: 0 keeps the dimension, -1 infers it, -2 keeps all remaining dimensions, -3 merges two, -4 splits one into
        the next two numbers. `reverse` applies them from the right. Raises ShapeError.
        """
        if "shape" in keywords:
            if shape:
                raise AttributeSpecError("reshape: the shape is given twice")
            shape = keywords.pop("shape")
            shape = (shape,) if isinstance(shape, Integral) else tuple(shape)
        elif len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        if keywords:
            raise AttributeSpecError(f"reshape: unknown attribute {next(iter(keywords))}")
        op = get("Reshape").bind(shape=shape, reverse=reverse)
        view = self.host_view
        if not shape and view.size != 1:
            raise ShapeError(f"Reshape: an array of shape {view.shape} cannot take the shape ()")
        wanted = infer(op, (view.shape,), (view.dtype,))[0][0] if shape else ()
        result = NDArray.view_of(self.buffer, view.reshape(wanted))
        calls.note_operator(op, (self,), (result,))
        return result

    def flatten(self, inplace: bool = False, **keywords: Any) -> NDArray:
        """A copy as a matrix, of the first dimension and the product of all other dimensions; inplace : a view."""
        if inplace:
            return self.reshape((self.shape[0], -1))
        return calls.invoke(get("Flatten").bind(**keywords), (self,))

    def expand_dims(self, axis: int, inplace: bool = False) -> NDArray:
        """A copy with a further axis of size 1; inplace : a view."""
        copied = get("expand_dims").bind(axis=axis)
        if inplace:
            return self.reshape(infer(copied, (self.shape,), (self.host_view.dtype,))[0][0])
        return calls.invoke(copied, (self,))

    def squeeze(self, axis: int | Sequence[int] | None = None, inplace: bool = False) -> NDArray:
        """A copy without axes of size 1, all such axes or the named axes; inplace : a view."""
        copied = get("squeeze").bind(axis=axis)
        if inplace:
            return self.reshape(infer(copied, (self.shape,), (self.host_view.dtype,))[0][0])
        return calls.invoke(copied, (self,))

    def split_v2(self, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False) -> Any:
        """The array cut along `axis`, a list of arrays (one array if there is one part); see `nd.split_v2`."""
        return calls.invoke(split_v2_operator(indices_or_sections, axis, squeeze_axis), (self,))

    def transpose(self, *axes: Any, **keywords: Any) -> NDArray:
        """A copy with permuted axes, reversed without arguments: `x.transpose(1, 0)` or `x.transpose((1, 0))`."""
        if "axes" in keywords:
            axes = tuple(keywords.pop("axes"))
        elif len(axes) == 1 and (isinstance(axes[0], (tuple, list)) or axes[0] is None):
            axes = tuple(axes[0] or ())
        return calls.invoke(get("transpose").bind(axes=axes, **keywords), (self,))

    # -- elements ----------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> NDArray:
        return calls.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        calls.setitem(self, key, value)

    def __contains__(self, value: object) -> bool:
        return bool(np.any(self._data == (value._data if isinstance(value, NDArray) else value)))

    # -- autograd ----------------------------------------------------------------------------------------------

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Give the array a gradient (zeros at first) that backward() fills, and cut it off from its history.

        grad_req : "write", "add" (gradients accumulate) or "null" (no gradient)
        stype : the storage type of the gradient, 'default' or 'row_sparse'
        """
        check_choice("grad_req", grad_req, tape.GRAD_REQS, AttributeSpecError)
        if grad_req == "null":
            self.tape_link = None
        elif stype in (None, "default"):
            gradient = self.alike(NDArray.from_host(np.zeros(self.shape, self.dtype), self.context))
            self.tape_link = tape.Leaf(gradient, grad_req)
        else:
            self.tape_link = tape.Leaf(sparse_zeros(stype, self.shape, self.dtype, self.context), grad_req)
        if self.buffer.watched:
            changes.happened()

    def mark_variable(self, gradient: NDArray, grad_req: str) -> None:
        """Attach an existing array as the gradient (`autograd.mark_variables`)."""
        check_choice("grad_req", grad_req, tape.GRAD_REQS, AttributeSpecError)
        if gradient.shape != self.shape or gradient.dtype != self.dtype:
            raise ShapeError(
                f"the gradient is {gradient.host_view.dtype.name} {gradient.shape}, "
                f"its array {self.host_view.dtype.name} {self.shape}; they must agree"
            )
        self.tape_link = None if grad_req == "null" else tape.Leaf(gradient, grad_req)
        if self.buffer.watched:
            changes.happened()

    @property
    def grad(self) -> NDArray | None:
        """The gradient that the last backward() wrote; None without attach_grad()."""
        link = self.tape_link
        return link.grad if type(link) is tape.Leaf else None

    @property
    def _fresh_grad(self) -> bool:
        """Whether backward() wrote the gradient since this was set to False (the Trainer does)."""
        link = self.tape_link
        return type(link) is tape.Leaf and link.fresh

    @_fresh_grad.setter
    def _fresh_grad(self, value: bool) -> None:
        if type(self.tape_link) is tape.Leaf:
            self.tape_link.fresh = bool(value)

    def detach(self) -> NDArray:
        """The same memory without history: a constant for autograd."""
        return type(self).view_of(self.buffer, self.host_view)

    def backward(self, out_grad: NDArray | None = None, retain_graph: bool = False, train_mode: bool = True) -> None:
        """Fill the gradients of everything this array was computed from. See `autograd.backward`."""
        calls.backward([self], None if out_grad is None else [out_grad], retain_graph, train_mode)


_new = object.__new__


def _restore(values: np.ndarray, context: Context) -> NDArray:
    """Unpickle: the numbers, on the CPU if the context cannot be used here."""
    try:
        context = resolve(context)
    except HybridLabError:
        context = CPU
    return NDArray.from_host(np.ascontiguousarray(values).reshape(values.shape), context)


def check_dtype(dtype: DTypeLike | None) -> np.dtype:
    """The NumPy dtype of a dtype argument. Raises DTypeError for what arrays cannot hold."""
    try:
        if dtype is None:  # NumPy's float64
            raise TypeError
        checked = dtype_of(dtype)
    except DTypeError:  # bfloat16, and ml_dtypes is missing
        raise
    except TypeError:
        raise DTypeError(f"{dtype!r} is not a dtype; use one of {', '.join(DTYPES)}") from None
    if checked.name not in DTYPES:
        raise DTypeError(f"arrays of {checked.name} are not supported; use one of {', '.join(DTYPES)}")
    return checked
