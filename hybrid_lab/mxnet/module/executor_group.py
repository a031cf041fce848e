"""DataParallelExecutorGroup: one Executor for each context, between which a batch is divided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.context import Context, cpu
from hybrid_lab.data.io import DataDesc
from hybrid_lab.diagnostics.errors import BindError, SettingError
from hybrid_lab.metric import EvalMetric
from hybrid_lab.mxnet.executor import Executor
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.tape import Mode
from hybrid_lab.symbol import Symbol

Descs = Sequence[DataDesc]
Merged = list[NDArray] | list[list[NDArray]]


class DataParallelExecutorGroup:
    """The Executors of a Module: all have the same Symbol, and each one a part of every batch.

    workload : how large the part of each context is, compared with the other contexts
    param_names : the arguments that are parameters; data_shapes and label_shapes name the data and labels, and
        state_names the values kept from batch to batch
    shared_group : the group of another bucket, whose parameters, gradients and memory of data are used
    fixed_param_names : parameters without a gradient
    grad_req : of the parameters, and of the data if inputs_need_grad; or by name, or one for each argument

    execs : the Executors for the current shapes; the Executors for other shapes are kept
    param_arrays, grad_arrays, aux_arrays : lists of one array for each context, for every parameter or state
    """

    def __init__(
        self,
        symbol: Symbol,
        contexts: Sequence[Context],
        workload: Sequence[float],
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None,
        param_names: Sequence[str],
        for_training: bool,
        inputs_need_grad: bool,
        shared_group: DataParallelExecutorGroup | None = None,
        fixed_param_names: Sequence[str] | None = None,
        grad_req: str | Sequence[str] | Mapping[str, str] = "write",
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
    ) -> None:
        self.symbol, self.contexts, self.workload = symbol, list(contexts), list(workload)
        self.arg_names, self.aux_names = symbol.list_arguments(), symbol.list_auxiliary_states()
        self.param_names, self.output_names = list(param_names), symbol.list_outputs()
        self.state_names, self.fixed_param_names = list(state_names or ()), list(fixed_param_names or ())
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self.group2ctxs = _groups_per_context(group2ctxs, len(self.contexts))
        data, labels = descs(data_shapes), None if label_shapes is None else descs(label_shapes)
        self.grad_req = self._requests(grad_req if for_training else "null", [each.name for each in data])
        self.shared_data_arrays: list[dict[str, NDArray]] = (
            [{} for _ in self.contexts] if shared_group is None else shared_group.shared_data_arrays
        )
        self.output_layouts = [DataDesc.get_batch_axis(Symbol((value,)).attr("__layout__")) for value in symbol.outputs]
        self._executors: dict[Any, list[Executor]] = {}
        self._divide(data, labels)
        self.execs = [self._bind(index, shared_group) for index in range(len(self.contexts))]
        self._executors[self._key()] = self.execs
        self._collect()

    # -- shapes --------------------------------------------------------------------------------------------------

    def _divide(self, data_shapes: Descs, label_shapes: Descs | None) -> None:
        """Take these shapes and the parts of a batch that each context gets. Raises BindError if sizes differ."""
        self.data_layouts = [DataDesc.get_batch_axis(each.layout) for each in data_shapes]
        self.label_layouts = [DataDesc.get_batch_axis(each.layout) for each in label_shapes or ()]
        sizes = {
            each.name: each.shape[axis]
            for each, axis in zip(
                [*data_shapes, *(label_shapes or ())], [*self.data_layouts, *self.label_layouts], strict=True
            )
            if axis >= 0 and each.shape
        }
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise BindError(f"all data and labels must have one batch size, but {listed}")
        self.batch_size = next(iter(sizes.values()), None)
        self.slices = parts(self.batch_size, self.workload)
        self.data_shapes, self.label_shapes = list(data_shapes), None if label_shapes is None else list(label_shapes)
        self.data_names = [each.name for each in data_shapes]
        self.label_names = [each.name for each in label_shapes or ()]

    def _key(self) -> tuple[Any, ...]:
        return tuple((each.name, tuple(each.shape)) for each in [*self.data_shapes, *(self.label_shapes or ())])

    def _part(self, shapes: Descs, layouts: Sequence[int], index: int) -> dict[str, tuple[int, ...]]:
        """The shapes of one context's part, by name."""
        part = self.slices[index]
        sized = {}
        for each, axis in zip(shapes, layouts, strict=True):
            shape = list(each.shape)
            if axis >= 0 and shape:
                shape[axis] = part.stop - part.start
            sized[each.name] = tuple(shape)
        return sized

    def _own_shapes(self, index: int) -> dict[str, tuple[int, ...]]:
        labels = self._part(self.label_shapes or (), self.label_layouts, index)
        return {**self._part(self.data_shapes, self.data_layouts, index), **labels}

    def _requests(self, grad_req: str | Sequence[str] | Mapping[str, str], data_names: Sequence[str]) -> dict[str, str]:
        """The grad_req of each argument: write, add or null."""
        if isinstance(grad_req, (list, tuple)):
            if len(grad_req) != len(self.arg_names):
                raise BindError(f"grad_req has {len(grad_req)} entries for {len(self.arg_names)} arguments")
            return dict(zip(self.arg_names, grad_req, strict=True))
        usual = grad_req if isinstance(grad_req, str) else "write"
        requests = dict.fromkeys(self.arg_names, "null")
        for name in self.arg_names:
            trained = name in self.param_names and name not in self.fixed_param_names
            if trained or (self.inputs_need_grad and name in data_names):
                requests[name] = usual
        if isinstance(grad_req, Mapping):
            requests.update(grad_req)
        return requests

    # -- executors -----------------------------------------------------------------------------------------------

    def _bind(self, index: int, shared_group: DataParallelExecutorGroup | None) -> Executor:
        known = self.symbol.list_inputs()
        types = {each.name: each.dtype for each in [*self.data_shapes, *(self.label_shapes or ())]}
        executor: Executor = self.symbol.simple_bind(
            self.contexts[index],
            self.grad_req,
            type_dict=types,
            group2ctx=self.group2ctxs[index],
            shared_arg_names=self.param_names,
            shared_exec=None if shared_group is None else shared_group.execs[index],
            shared_buffer=self.shared_data_arrays[index],
            **{name: shape for name, shape in self._own_shapes(index).items() if name in known},
        )
        return executor

    @property
    def _total_exec_bytes(self) -> int:
        arrays = [
            array
            for each in self.execs
            for array in [*each.arg_arrays, *each.grad_arrays, *each.aux_arrays, *each.outputs]
        ]
        return sum(array.host_view.nbytes for array in arrays if array is not None)

    def _collect(self) -> None:
        """The arrays of the Executors for the shapes of now."""
        names = [name for name in self.arg_names if name in self.param_names]
        self.param_arrays = self._arrays("arg_dict", names)
        self.grad_arrays = self._arrays("grad_dict", names) if self.for_training else None
        self.state_arrays = self._arrays("arg_dict", self.state_names)
        self.aux_arrays = self._arrays("aux_dict", self.aux_names)
        self.input_grad_arrays = self._arrays("grad_dict", self.data_names) if self.inputs_need_grad else None

    def _arrays(self, dictionary: str, names: Sequence[str]) -> list[list[NDArray]]:
        return [[getattr(each, dictionary)[name] for each in self.execs] for name in names]

    def reshape(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None) -> None:
        """Go on with Executors for other shapes, which have the same parameters. Raises BindError."""
        default = next(iter(self._executors.values()))
        self._divide(descs(data_shapes), None if label_shapes is None else descs(label_shapes))
        key = self._key()
        if key not in self._executors:
            self._executors[key] = [
                each.reshape(False, True, **self._bound_shapes(index, each)) for index, each in enumerate(default)
            ]
        self.execs = self._executors[key]
        self._collect()

    def _bound_shapes(self, index: int, executor: Executor) -> dict[str, Any]:
        return {name: shape for name, shape in self._own_shapes(index).items() if name in executor.arg_dict}

    def install_monitor(self, mon: Any) -> None:
        """Let a Monitor look into all Executors."""
        for executor in self.execs:
            mon.install(executor)

    # -- parameters ----------------------------------------------------------------------------------------------

    def set_params(
        self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray], allow_extra: bool = False
    ) -> None:
        """Copy values into the arrays of every context. Raises BindError for names that are not there."""
        for executor in self.execs:
            executor.copy_params_from(arg_params, aux_params, allow_extra_params=allow_extra)

    def get_params(self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
        """Copy the mean over the contexts to these arrays."""
        names = [name for name in self.arg_names if name in self.param_names]
        with Mode(False, None):
            for known, blocks, targets in (
                (names, self.param_arrays, arg_params),
                (self.aux_names, self.aux_arrays, aux_params),
            ):
                for name, block in zip(known, blocks, strict=True):
                    mean = block[0].as_in_context(cpu())
                    if len(block) > 1:
                        mean = sum((each.as_in_context(cpu()) for each in block[1:]), mean) / len(block)
                    mean.astype(targets[name].dtype).copyto(targets[name])

    # -- calls ---------------------------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Divide a batch between the Executors and run them. A list of batches has one for each context."""
        training = self.for_training if is_train is None else is_train
        divided = isinstance(data_batch, list)
        batches: list[Any] = data_batch if divided else [data_batch]
        for names, layouts, kind in (
            (self.data_names, self.data_layouts, "data"),
            (self.label_names, self.label_layouts, "label"),
        ):
            arrays = [getattr(each, kind, None) or [] for each in batches]
            if any(not each for each in arrays):
                continue
            for place, (name, axis) in enumerate(zip(names, layouts, strict=True)):
                if place >= len(arrays[0]):
                    raise SettingError(f"forward: the batch has {len(arrays[0])} arrays, and {name} is number {place}")
                for index, executor in enumerate(self.execs):
                    if name in executor.arg_dict:
                        given = arrays[index][place] if divided else self._cut(arrays[0][place], axis, index)
                        _copy(given, executor.arg_dict[name], name)
        for executor in self.execs:
            executor.forward(is_train=training)

    def _cut(self, array: Any, axis: int, index: int) -> Any:
        """The part of an array that one context gets."""
        if axis < 0 or len(self.execs) == 1:
            return array
        part = self.slices[index]
        if isinstance(array, np.ndarray):
            array = nd.array(array, dtype=array.dtype)
        return nd.slice_axis(array, axis=axis, begin=part.start, end=part.stop)

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients. Raises BindError if the group is not bound for training."""
        if not self.for_training:
            raise BindError("backward: the Module is bound for predictions; bind it with for_training=True")
        given = [] if out_grads is None else [out_grads] if isinstance(out_grads, NDArray) else list(out_grads)
        for index, executor in enumerate(self.execs):
            own = [
                self._cut(gradient, axis, index).as_in_context(self.contexts[index])
                for gradient, axis in zip(given, self.output_layouts, strict=False)
            ]
            executor.backward(own or None)

    # -- results -------------------------------------------------------------------------------------------------

    def get_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of the outputs for a whole batch."""
        shapes = []
        for name, output, axis in zip(self.output_names, self.execs[0].outputs, self.output_layouts, strict=True):
            shape = list(output.shape)
            if axis >= 0 and self.batch_size is not None and shape:
                shape[axis] = self.batch_size
            shapes.append((name, tuple(shape)))
        return shapes

    def get_outputs(self, merge_multi_context: bool = True, begin: int = 0, end: int | None = None) -> Merged:
        """The outputs, joined over the contexts, or as one list for each output."""
        count = len(self.output_names) if end is None else end
        outputs = [[executor.outputs[place] for executor in self.execs] for place in range(begin, count)]
        return _joined(outputs, self.output_layouts[begin:count]) if merge_multi_context else outputs

    def get_input_grads(self, merge_multi_context: bool = True) -> Merged:
        """The gradients of the data, as `get_outputs`. Raises BindError if they are not computed."""
        if self.input_grad_arrays is None:
            raise BindError("get_input_grads: bind the Module with inputs_need_grad=True")
        grads = self.input_grad_arrays
        return _joined(grads, self.data_layouts) if merge_multi_context else grads

    def get_states(self, merge_multi_context: bool = True) -> list[list[NDArray]]:
        """The states of every context. Raises SettingError for merge_multi_context=True, as MXNet."""
        if merge_multi_context:
            raise SettingError("get_states: states are not joined over contexts; pass merge_multi_context=False")
        return self.state_arrays

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Set the states, from lists as `get_states` gives them, or all to one number."""
        if (states is None) == (value is None):
            raise SettingError("set_states: give either states or a value")
        for place, targets in enumerate(self.state_arrays):
            for index, target in enumerate(targets):
                if states is None:
                    target[:] = value
                else:
                    own = states[place]
                    given = own[index] if isinstance(own, (list, tuple)) else self._cut(own, 0, index)
                    _copy(given, target, self.state_names[place])

    def update_metric(self, eval_metric: EvalMetric, labels: Any, pre_sliced: bool = False) -> None:
        """Add the outputs of all contexts to a metric."""
        for index, executor in enumerate(self.execs):
            own = (
                labels[index]
                if pre_sliced
                else [
                    self._cut(label, axis, index) for label, axis in zip(labels or (), self.label_layouts, strict=False)
                ]
            )
            eval_metric.update_dict(
                dict(zip(self.label_names, own, strict=False)),
                dict(zip(self.output_names, executor.outputs, strict=True)),
            )


def descs(shapes: Sequence[Any]) -> list[DataDesc]:
    """Descriptions from DataDescs, or pairs of a name and a shape. Raises SettingError for other shapes."""
    described = []
    for each in shapes:
        desc = each if isinstance(each, DataDesc) else DataDesc(*each)
        if not isinstance(desc.shape, (list, tuple)) or not all(isinstance(n, (int, np.integer)) for n in desc.shape):
            raise SettingError(f"the shape of {desc.name} must be a tuple of whole numbers, not {desc.shape!r}")
        described.append(DataDesc(desc.name, tuple(desc.shape), desc.dtype, desc.layout))
    return described


def parts(batch_size: int | None, workload: Sequence[float]) -> list[slice]:
    """Slices of a batch in the proportions of `workload`. Raises BindError if one would be empty."""
    if batch_size is None:
        return [slice(index, index + 1) for index in range(len(workload))]
    total, edges, done = sum(workload), [0], 0.0
    for load in workload:
        done += load
        edges.append(round(batch_size * done / total))
    if batch_size and any(start == stop for start, stop in zip(edges, edges[1:], strict=False)):
        raise BindError(f"a batch of {batch_size} cannot be divided between {len(workload)} contexts")
    return [slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]


def _copy(given: Any, target: NDArray, name: str) -> None:
    if tuple(given.shape) != target.shape:
        raise BindError(f"{name} has shape {tuple(given.shape)}; the Module is bound to {target.shape}")
    with Mode(False, None):
        target[:] = given if isinstance(given, np.ndarray) else given.as_in_context(target.context)


def _joined(arrays: Sequence[Sequence[NDArray]], layouts: Sequence[int]) -> list[NDArray]:
    """The arrays of several contexts as one each, on the first context."""
    joined = []
    for each, axis in zip(arrays, layouts, strict=True):
        if len(each) == 1 or axis < 0:
            joined.append(each[0])
        else:
            joined.append(nd.concat(*[array.as_in_context(each[0].context) for array in each], dim=axis))
    return joined


def _groups_per_context(group2ctxs: Any, count: int) -> list[dict[str, Context] | None]:
    """`group2ctx` of every Executor, from a list of one each, or from a dict of groups."""
    if group2ctxs is None:
        return [None] * count
    if isinstance(group2ctxs, (list, tuple)):
        if len(group2ctxs) != count:
            raise BindError(f"group2ctxs has {len(group2ctxs)} entries for {count} contexts")
        return list(group2ctxs)
    if not isinstance(group2ctxs, Mapping):
        raise SettingError(f"group2ctxs is a list of dicts or a dict, not {type(group2ctxs).__name__}")
    divided: list[dict[str, Context] | None] = []
    for index in range(count):
        own: dict[str, Context] = {}
        for group, contexts in group2ctxs.items():
            several = [contexts] if isinstance(contexts, Context) else list(contexts)
            if len(several) not in (1, count):
                raise BindError(f"group2ctxs[{group!r}] has {len(several)} contexts; one or {count} are needed")
            own[group] = several[index if len(several) > 1 else 0]
        divided.append(own)
    return divided
