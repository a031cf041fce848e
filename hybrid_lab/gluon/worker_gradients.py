"""WorkerGradients: the parameters and gradients of a Trainer whose steps are joint steps of all workers."""

from __future__ import annotations

import contextlib
import json
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hybrid_lab.distributed.agreement import agree
from hybrid_lab.distributed.buckets import Buckets, Gradient, begin_early
from hybrid_lab.distributed.store import DistributedStore, memory_of, written
from hybrid_lab.ndarray import NDArray, backward, tape
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ndarray.tape import Leaf

from .parameter import Parameter


class WorkerGradients:
    """Gives all workers rank 0's values, then sums their gradients in each step.

    The optimizer runs in each worker, on the same sums, so that the parameters stay equal.
    Raises WorkersDifferError if the workers have different parameters.
    """

    updates = False

    def __init__(self, store: DistributedStore, params: Sequence[Parameter]) -> None:
        self.store, self._params = store, params
        self._group = store.group
        self._buckets = Buckets(store.group)
        self._residuals: dict[int, np.ndarray] = {}
        self._samples: int | None = None
        self._told = self._uneven = False
        if self._group.size > 1:
            self._complete(agree(self._group, "parameter", list(map(_described, params))))
            self._broadcast()
            self._part_random_states()
            self._buckets.early = all(self._group.gather(begin_early(self._group.identity, self._group.backend)))
            # The lists belong to the process; the entries live as long as this object.
            backward.watchers.append(_Heads(self))
            tape.listeners.append(_Stored(self))

    def _complete(self, everybody: Sequence[Sequence[dict[str, Any]]]) -> None:
        """Give shapes known to some workers to all workers, and the same first values to deferred parameters."""
        for index, parameter in enumerate(self._params):
            known = [rows[index] for rows in everybody]
            shape = next((row["shape"] for row in known if row["has_data"]), None)
            deferred = parameter._deferred_init
            if shape is not None and parameter._data is None and deferred is not None:
                parameter._finish_deferred_init(shape)
            elif deferred is not None and known[0]["draw"] is not None:
                seed, number = known[0]["draw"]
                parameter._deferred_init = deferred._replace(draw=(int(seed), number))

    def _broadcast(self) -> None:
        pending = []
        for parameter in self._params:
            for array in parameter._data or ():
                if array.stype == "default":
                    pending.append((array, self._group.broadcast(memory_of(array))))
        for array, each in pending:
            each.wait()
            written(array)

    def _part_random_states(self) -> None:
        """Let each worker draw its own numbers: with one seed in all, all would drop the same units."""
        states = [json.dumps(each, sort_keys=True) for each in self._group.gather(random_state.get_state())]
        if states.index(states[self._group.rank]) != self._group.rank:
            random_state.part(self._group.rank)

    def note_batch(self, batch_size: float) -> None:
        """Warn once, if `step` was given the samples of this worker, that it counts the samples of all workers."""
        if not self._told and self._group.size > 1 and self._samples == batch_size:
            warnings.warn(
                f"step({batch_size:g}) divides the sum of the gradients of {self._group.size} workers by the samples "
                f"of one. step({batch_size * self._group.size:g}) gives the mean over all, as in one process",
                stacklevel=4,
            )
            self._told = True
        if self._uneven:
            self._exchange(1, batch_size)

    def _exchange(self, working: int, batch_size: float) -> tuple[int, float]:
        """How many workers still have batches, and the `batch_size` of their step."""
        numbers = np.zeros((2, self._group.size))
        numbers[:, self._group.rank] = working, batch_size
        self._group.sum(numbers).wait()
        return int(numbers[0].sum()), float(numbers[1].max())

    @contextlib.contextmanager
    def joined(self, step: Callable[[float], object]) -> Iterator[None]:
        """`with`: workers without further batches take part in the steps of the other workers, with zeros for
        gradients.

        step : `Trainer.step`
        """
        self._uneven = self._group.size > 1
        try:
            yield
        except BaseException:
            self._uneven = False
            raise
        working, batch_size = self._exchange(0, 0.0) if self._uneven else (0, 0.0)
        self._uneven = False
        while working:
            for parameter in self._params:
                if parameter.grad_req != "null" and parameter._data is not None:
                    for value, gradient in zip(parameter.list_data(), parameter.list_grad(), strict=True):
                        gradient.fill(0)
                        value._fresh_grad = True
            step(batch_size)
            working, batch_size = self._exchange(0, 0.0)

    def pushpull(self, fresh_only: bool = False) -> None:
        """Replace the gradients by their sums over all contexts and workers.

        fresh_only : a gradient not written by a backward since the last step counts as zeros; a gradient written in
            some worker is fresh in all workers afterwards
        """
        if self._group.size == 1:
            return
        taking = [each for each in self._params if each.grad_req != "null" and each._data is not None]
        if fresh_only:
            self._share_freshness(taking)
        if self.store.compression is not None:
            for parameter in reversed(taking):
                for array in parameter.list_grad():
                    self._sum_compressed(array)
            return
        if self._buckets.outdated:
            leaves = [value.tape_link for parameter in taking for value in parameter.list_data()]
            self._buckets.arrange([(leaf, leaf.grad) for leaf in leaves if type(leaf) is Leaf], self._in_one_order)
        self._buckets.sum()

    def _in_one_order(self, gradients: Sequence[Gradient]) -> Sequence[Gradient]:
        """Gradients in the order in which rank 0's first backward pass made them. Raises WorkersDifferError if the
        workers have other gradients.
        """
        names = {id(array): parameter.name for parameter in self._params for array in parameter._grad or ()}
        rows = [
            {
                "name": names[id(array)],
                "dtype": array.host_view.dtype.name,
                "grad_req": leaf.req,
                "shape": list(array.shape),
                "order": self._buckets.order(array),
            }
            for leaf, array in gradients
        ]
        orders = [row["order"] for row in agree(self._group, "gradient", rows)[0]]
        # Others follow from the last layer to the first, as backward passes go.
        last = len(orders)
        keys = [last + last - number if order is None else order for number, order in enumerate(orders)]
        return [gradients[number] for number in sorted(range(last), key=keys.__getitem__)]

    def _share_freshness(self, taking: Sequence[Parameter]) -> None:
        fresh = np.array([parameter.list_data()[0]._fresh_grad for parameter in taking], np.int32)
        anywhere = fresh.copy()
        self._group.sum(anywhere).wait()
        for parameter, here, total in zip(taking, fresh, anywhere, strict=True):
            for value, gradient in zip(parameter.list_data(), parameter.list_grad(), strict=True):
                if not here:
                    gradient.fill(0)
                value._fresh_grad = bool(total)

    def _sum_compressed(self, array: NDArray) -> None:
        compression = self.store.compression
        assert compression is not None
        memory = array._data.reshape(-1)
        residual = self._residuals.setdefault(id(array), np.zeros_like(memory))
        compression.sum(self._group, memory, residual)
        array.written()

    def refuse(self, call: str) -> None:
        """Every call of the Trainer makes sense: each worker updates its parameters."""


def _described(parameter: Parameter) -> dict[str, Any]:
    """The properties that must be equal in all workers, and properties that some workers may know earlier."""
    deferred = parameter._deferred_init
    return {
        "name": parameter.name,
        "dtype": str(np.dtype(parameter.dtype).name),
        "grad_req": parameter.grad_req,
        "shape": None if parameter.shape is None else list(parameter.shape),
        "has_data": parameter._data is not None,
        "draw": None if deferred is None else [str(deferred.draw[0]), deferred.draw[1]],
    }


class _Heads:
    """Notes how many samples the last backward pass was of, for `note_batch`."""

    def __init__(self, gradients: WorkerGradients) -> None:
        self._gradients = weakref.ref(gradients, lambda _: backward.watchers.remove(self))

    def __call__(self, heads: Sequence[NDArray]) -> None:
        gradients = self._gradients()
        if gradients is not None:
            gradients._samples = heads[0].shape[0] if heads[0].ndim else None


class _Stored:
    """Tells the buckets of each gradient that a backward pass has stored."""

    def __init__(self, gradients: WorkerGradients) -> None:
        self._gradients = weakref.ref(gradients, lambda _: tape.listeners.remove(self))

    def __call__(self, leaf: Leaf) -> None:
        gradients = self._gradients()
        if gradients is not None and gradients.store.compression is None:
            gradients._buckets.stored(leaf)
