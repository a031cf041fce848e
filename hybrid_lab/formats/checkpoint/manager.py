"""Manager: writes checkpoints of a training into a folder, keeps some of them, and continues from one."""

from __future__ import annotations

import contextlib
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike, fspath
from typing import Any, Protocol, TypeAlias

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError, SettingError
from hybrid_lab.diagnostics.file_errors import reading, writing
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.distributed.first import on_first
from hybrid_lab.formats.archive import layout
from hybrid_lab.formats.archive.archive import Archive, read_values
from hybrid_lab.formats.archive.container import Container
from hybrid_lab.formats.archive.load import load_opened
from hybrid_lab.formats.archive.save import save_checkpoint
from hybrid_lab.formats.archive.values import Decoder, trainer_parts
from hybrid_lab.gluon import Block, Parameter, Trainer, access
from hybrid_lab.gluon.parameter import merged_shape
from hybrid_lab.gluon.step import boundary
from hybrid_lab.metric import EvalMetric
from hybrid_lab.mxnet.module import BaseModule
from hybrid_lab.ndarray import NDArray, array
from hybrid_lab.ndarray.random_state import all_states, set_all_states
from hybrid_lab.system import temporary
from hybrid_lab.system.logger import logger

from . import workers
from .parts import Models, Placing, by_name, is_resumable, module_restoring, module_state

_NAME = re.compile(r"step-(\d{8,})\.hlab", re.ASCII)
_NONE_HERE = "an archive, but not a checkpoint: it says nothing of a step"
_ATTEMPTS = 3
"""How often `restore` looks into the folder again when another process has removed what it found there."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of a folder.

    step, metric : as they were given to `save`; epoch : of the loader, how many epochs had ended
    path : the archive; number : which checkpoint of the folder it is, counted in the order of writing
    aux : your own values; `restore` reads them, `list` does not
    """

    step: int
    metric: float | None
    epoch: int
    path: str
    number: int = field(repr=False)
    aux: dict[str, Any] = field(default_factory=dict, repr=False)


class Resumable(Protocol):
    """Protocol of a DataLoader: anything that can report its position and be put there."""

    def get_state(self) -> Mapping[str, Any]:
        """Where it is: numbers, texts, arrays, lists and dicts."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where `get_state` was called."""


Nets: TypeAlias = "Block | BaseModule | Sequence[Block | BaseModule] | Mapping[str, Block | BaseModule]"


class Manager:
    """Checkpoints of one training in one folder.

        manager = mx.checkpoint.Manager("run", net, trainer, loader, every=100)
        point = manager.restore()                       # None in a new folder
        step = point.step if point else 0
        for epoch in range(point.epoch if point else 0, 10):
            for x, y in loader:                         # after restore(): the batches that are left of the epoch
                ...
                trainer.step(len(x))
                step += 1
                manager.save(step=step)                 # writes at every 100th step

    A checkpoint is an archive, `step-00000100.hlab`, that also opens by itself with `gluon.load` and
    `mx.load_cached_graphs`. It holds the model, the trainer with its optimizer, schedule and loss scale, the loader's
    position, gradients of parameters with grad_req='add', and the states of the random numbers of this package, NumPy
    and Python. Files are written atomically: a killed process leaves complete checkpoints only. Several processes may
    write into one folder.

    Workers that train together (`mx.kv.create("dist_sync")`) all call `save` and `restore`: rank 0 writes one file,
    with the random states and the loader's position of each. Another number of workers may continue from it: a loader
    with a DistributedSampler shares the rest of the epoch. All workers read the same folder.

    A training of several models, such as a GAN, gives lists or dicts:

        manager = mx.checkpoint.Manager(
            "run",
            {"generator": generator, "discriminator": discriminator},
            {"g": trainer_of_generator, "d": trainer_of_discriminator},
            loader,
            metrics=[accuracy],
        )

    net : a Block; or several, as a list or as name -> Block; Modules (`mx.mod`) may be among them
    trainer : a Trainer, several, or None; a Module has an optimizer of its own
    loader : a DataLoader, an iterator such as NDArrayIter, or anything with `get_state()` and `set_state(state)`; or
        several, of which the first one counts the epochs
    metrics : metrics whose counts go on; one or several
    keep_last : how many of the newest checkpoints stay, None for all
    keep_best : number of further checkpoints kept for their best metric; mode : whether the best metric is the "min" or
    the "max"
    every : `save` writes at multiples of this step number only
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        net: Nets,
        trainer: Trainer | Sequence[Trainer] | Mapping[str, Trainer] | None = None,
        loader: Resumable | Sequence[Resumable] | Mapping[str, Resumable] | None = None,
        keep_last: int | None = 3,
        keep_best: int | None = None,
        every: int | None = None,
        mode: str = "min",
        metrics: EvalMetric | Sequence[EvalMetric] | Mapping[str, EvalMetric] | None = None,
    ) -> None:
        if not isinstance(folder, (str, PathLike)) or not fspath(folder):
            raise SettingError(f"the folder is named by a text or a path object, not {folder!r:.60}")
        is_net, is_trainer, is_metric = (_is(kind) for kind in ((Block, BaseModule), Trainer, EvalMetric))
        nets = by_name(net, "second argument", is_net, "and no Block or Module, nor a list or dict of these")
        if not nets:
            raise SettingError(f"a Manager needs a Block as its second argument, not {net!r:.60}")
        self._trainers = by_name(trainer, "trainer", is_trainer, "and no gluon.Trainer; give one, several, or None")
        lacking = "without get_state() and set_state(); give a gluon.data.DataLoader"
        self._loaders = by_name(loader, "loader", is_resumable, lacking)
        self._metrics = by_name(metrics, "metrics", is_metric, "and no metric, such as mx.metric.Accuracy()")
        check_choice("mode", mode, ("min", "max"), HybridLabError)
        for name, value in (("keep_last", keep_last), ("keep_best", keep_best), ("every", every)):
            if value is not None and (type(value) is not int or value < 1):
                raise HybridLabError(f"{name} is a whole number from 1 on, or None, not {value!r}")
        self.folder = fspath(folder)
        self._modules = {name: each for name, each in nets.items() if isinstance(each, BaseModule)}
        blocks = {name: each for name, each in nets.items() if isinstance(each, Block)}
        self._net = blocks[""] if "" in blocks else Models(blocks)
        self._keep_last, self._keep_best, self._every, self._mode = keep_last, keep_best, every, mode
        self._reported: set[str] = set()

    def __repr__(self) -> str:
        return f"Manager({self.folder!r}, {self._net.name}, steps {[each.step for each in self.list()]})"

    # -- writing -----------------------------------------------------------------------------------------------

    def save(self, step: int, metric: object = None, aux: Mapping[str, object] | None = None) -> str | None:
        """Write the checkpoint of a step, then remove checkpoints that need not stay. Returns the file's path; None
        where `every` leaves the step out.

        metric : a number by which `keep_best` compares
        aux : values of your own, as in `mx.save_cached_graphs`
        An older checkpoint of the same step is replaced. Raises HybridLabError for a value that cannot be saved,
        FileError; the existing checkpoints then stay.
        """
        step = _whole(step)
        if self._every is not None and step % self._every:
            return None
        joined = workers.workers()
        if joined is None:
            return self._write(step, metric, aux, self._own_parts(), {})
        with boundary.lock:
            own = self._own_parts()
            parts = {name: part for name, part in own.items() if name != "gradients"}
            everybody = workers.gathered(joined, {**parts, "values": workers.own_values(joined, self._net)})
            own["gradients"] = workers.summed(joined, own["gradients"])
            return on_first(lambda: self._write(step, metric, aux, own, {"workers": everybody}))

    def _own_parts(self) -> dict[str, Any]:
        """What differs from worker to worker."""
        parts = {
            "random": all_states(),
            "loader": next(iter(_states(self._loaders).values()), None),
            "gradients": _gradients(self._net),
        }
        if len(self._loaders) > 1:
            parts["loaders"] = _states(self._loaders)
        if self._metrics:
            parts["metrics"] = _states(self._metrics)
        return parts

    def _write(
        self,
        step: int,
        metric: object,
        aux: Mapping[str, object] | None,
        own: Mapping[str, Any],
        others: dict[str, Any],
    ) -> str:
        with writing(self.folder):
            os.makedirs(self.folder, exist_ok=True)
        temporary.remove_stale(self.folder)
        with boundary.lock:
            path = save_checkpoint(
                self._net,
                os.path.join(self.folder, _name(step)),
                self._trainers.get(""),
                aux,
                {
                    "step": step,
                    "metric": _number(metric),
                    "number": max((each.number for each in self.list()), default=0) + 1,
                    **own,
                    **self._further_parts(),
                    **others,
                },
            )
        self._remove_old(path)
        return path

    def _further_parts(self) -> dict[str, Any]:
        """The states of several Trainers, and of Modules, for a checkpoint."""
        parts = {
            "trainers": {name: each for name, each in self._trainers.items() if name},
            "modules": {name: module_state(each) for name, each in self._modules.items()},
        }
        return {name: part for name, part in parts.items() if part}

    def _remove_old(self, written: str) -> None:
        found = self.list()
        kept = {each.path for each in (found if self._keep_last is None else found[-self._keep_last :])}
        if self._keep_best is not None:
            measured = [each for each in found if each.metric is not None and each.metric == each.metric]
            sign = 1 if self._mode == "min" else -1
            measured.sort(key=lambda each: (sign * each.metric, -each.number))  # type: ignore[operator]
            kept |= {each.path for each in measured[: self._keep_best]}
        for each in found:
            if each.path not in kept and os.path.basename(each.path) != os.path.basename(written):
                with contextlib.suppress(OSError):  # another process was quicker
                    os.unlink(each.path)

    # -- reading -----------------------------------------------------------------------------------------------

    def list(self) -> list[Checkpoint]:
        """The complete checkpoints of the folder, in the order in which they were written."""
        found = []
        for name in self._names():
            path = os.path.join(self.folder, name)
            try:
                found.append(_read(path))
            except FileNotFoundError:
                continue  # another process has removed it
            except ArchiveError as error:
                self._leave_out(path, error)
        return sorted(found, key=lambda each: (each.number, each.step))

    def restore(self, step: int | None = None) -> Checkpoint | None:
        """Continue from the newest checkpoint, or from the checkpoint of a step: model, trainer, loader and random
        numbers are as they were when it was saved. The loader's next iteration gives the batches that were left.

        Returns the checkpoint; None if the folder has none. Without `step` a damaged file is left out with a
        warning, unless all are damaged. Raises ArchiveError for a damaged file, HybridLabError if there is no such
        step, LoadMismatchError for a checkpoint of another model; nothing changes then.
        """
        if step is not None:
            step = _whole(step)
        joined = workers.workers()
        if joined is None:
            return self._restore_newest(step)
        point: Checkpoint | None = None

        def choose() -> str | None:
            nonlocal point
            point = self._restore_newest(step)
            return None if point is None else os.path.basename(point.path)

        name = on_first(choose)
        if name is not None and point is None:
            point = self._continue_from(os.path.join(self.folder, name))
        return point

    def _restore_newest(self, step: int | None) -> Checkpoint | None:
        for _ in range(_ATTEMPTS):
            found = self.list()
            if step is not None:
                found = [each for each in found if each.step == step]
            for point in reversed(found):
                try:
                    return self._continue_from(point.path)
                except FileNotFoundError:
                    continue
                except ArchiveError as error:
                    if step is not None or isinstance(error, LoadMismatchError):
                        raise
                    self._leave_out(point.path, error)
        damaged = [name for name in self._names() if step is None or name == _name(step)]
        if damaged:
            _read(os.path.join(self.folder, damaged[-1]))  # raises
        if step is None:
            return None
        steps = ", ".join(str(each.step) for each in self.list()) or "none"
        raise HybridLabError(f"{self.folder} has no checkpoint of step {step}; its steps: {steps}")

    def _continue_from(self, path: str) -> Checkpoint:
        archive = Archive(path)
        saved = archive.checkpoint
        if saved is None:
            raise ArchiveError(_NONE_HERE, path=path)
        point = _described(saved, path, {})
        saved = workers.own_part(saved)
        gradients = _gradients_in(self._net, saved, path)
        values = _values_in(self._net, saved, path)
        random = all_states()
        if not self._loaders and saved.get("loader") is not None:
            logger.warning(f"{path} has the position of a loader, which this Manager lacks: its epoch begins anew")
        if not self._trainers and (archive.trainer is not None or saved.get("trainers")):
            logger.warning(f"{path} has states of a Trainer, which this Manager lacks: its optimizer begins anew")
        if not self._metrics and saved.get("metrics"):
            logger.warning(f"{path} has the counts of metrics, which this Manager lacks")
        loaders = saved.get("loaders") or {name: saved.get("loader") for name in self._loaders}
        _check_names("loader", self._loaders, loaders if saved.get("loader") is not None else {}, path)
        trainers = saved.get("trainers") or {}
        _check_names("Trainer", {name: each for name, each in self._trainers.items() if name}, trainers, path)
        _check_names("metric", self._metrics, saved.get("metrics") or {}, path)
        modules = saved.get("modules") or {}
        _check_names("Module", self._modules, modules, path)
        restoring = [module_restoring(each, modules[name], path) for name, each in self._modules.items()]
        placing = Placing()
        try:
            for name, part in self._loaders.items():
                placing.put(part, partial(workers.put_loader, part, loaders[name], saved))
            for name, part in self._metrics.items():
                placing.put(part, partial(part.set_state, saved["metrics"][name]))
            set_all_states(saved.get("random") or {})  # tried before the model changes
            set_all_states(random)
            several = [(name, trainers[name], each) for name, each in self._trainers.items() if name]
            report = load_opened(self._net, archive, "code", self._trainers.get(""), "file", several)
        except BaseException:
            placing.undo()
            raise
        for restore in restoring:
            restore()
        workers.set_random_states(saved)
        for parameter, own in values:
            parameter.set_data(own)
        for parameter, sums in gradients:
            for gradient, value in zip(parameter.list_grad(), sums, strict=False):
                gradient[:] = value if workers.rank() == 0 else 0  # the sum over all workers
        return replace(point, aux=report.aux)

    def _names(self) -> Sequence[str]:
        """The names of all checkpoints in the folder, damaged ones too."""
        try:
            with reading(self.folder):
                return sorted(filter(_NAME.fullmatch, os.listdir(self.folder)))
        except FileNotFoundError:
            return ()

    def _leave_out(self, path: str, error: ArchiveError) -> None:
        if path not in self._reported:
            self._reported.add(path)
            logger.warning(f"{path} is left out: {error.reason}")


def _is(kind: type | tuple[type, ...]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


def _states(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part.get_state() for name, part in parts.items()}


def _check_names(what: str, own: Mapping[str, object], saved: object, path: str) -> None:
    """Raise HybridLabError if a part of the Manager is not in the checkpoint."""
    missing = [name for name in own if not isinstance(saved, Mapping) or name not in saved]
    if missing:
        named = f" {missing[0]!r}" if missing[0] else ""
        raise HybridLabError(f"{path}: the checkpoint was saved without a {what}{named}, and has no state of one")


def _name(step: int) -> str:
    return f"step-{step:08d}{layout.SUFFIX}"


def _whole(step: object) -> int:
    """A step as an int; NumPy's whole numbers will do."""
    try:
        number = operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0 or isinstance(step, (bool, np.bool_)):
        raise HybridLabError(f"a step is a whole number from 0 on, not {step!r}")
    return number


def _read(path: str) -> Checkpoint:
    """A file's facts about itself. Raises ArchiveError, FileNotFoundError."""
    container = Container.open(path)
    if layout.CHECKPOINT not in container:
        raise ArchiveError(_NONE_HERE, path=path)
    arrays = container.read_tensors(layout.CHECKPOINT_ARRAYS)
    decoder = Decoder(arrays, trainer_of=trainer_parts)
    saved = read_values(container, container.read_json(layout.CHECKPOINT), layout.CHECKPOINT, decoder)
    return _described(saved, path, {})


def _described(saved: Mapping[str, Any], path: str, aux: dict[str, Any]) -> Checkpoint:
    step, metric, number = (saved.get(key) for key in ("step", "metric", "number"))
    loader = saved.get("loader")
    epoch = loader.get("epoch", 0) if isinstance(loader, Mapping) else 0
    if not all(type(each) is int for each in (step, number, epoch)) or not isinstance(metric, float | None):
        raise ArchiveError("damaged checkpoint: its step, number or metric is no number", path=path)
    parts = saved.get("workers", [])
    if not isinstance(parts, list) or not all(isinstance(each, Mapping) and "random" in each for each in parts):
        raise ArchiveError("damaged checkpoint: the parts of its workers are not what was saved", path=path)
    return Checkpoint(step, metric, epoch, path, number, aux)  # type: ignore[arg-type]


def _gradients(net: Block) -> dict[str, list[NDArray]]:
    """The sums under way of parameters that add their gradients up, by path."""
    return {
        path: parameter.list_grad()
        for path, parameter in access.parameters_by_path(net).items()
        if parameter.grad_req == "add" and access.arrays(parameter) is not None
    }


def _gradients_in(net: Block, saved: Mapping[str, Any], path: str) -> list[tuple[Parameter, list[NDArray]]]:
    """Parameters of the model with the sums under way of the checkpoint. Raises LoadMismatchError."""
    own, found, differences = access.parameters_by_path(net), [], []
    for name, values in (saved.get("gradients") or {}).items():
        parameter = own.get(name)
        if parameter is None or parameter.grad_req != "add":
            differences.append(f"gradient: {name} is added up in the file, and not in the model")
        elif any(merged_shape(parameter.partial_shape, value.shape) is None for value in values):
            differences.append(f"gradient: {name} has another shape in the file")
        else:
            found.append((parameter, values))
    if differences:
        raise LoadMismatchError("the checkpoint is of another training; nothing was loaded", differences, path=path)
    return found


def _values_in(net: Block, saved: Mapping[str, Any], path: str) -> list[tuple[Parameter, NDArray]]:
    """Parameters with the values that this worker alone had. Raises LoadMismatchError."""
    own, found, differences = access.parameters_by_path(net), [], []
    for name, value in (saved.get("values") or {}).items():
        parameter = own.get(name)
        if parameter is None or merged_shape(parameter.partial_shape, value.shape) is None:
            differences.append(f"value: {name} of one worker is not in the model, or has another shape")
        else:
            found.append((parameter, array(value, dtype=parameter.dtype)))
    if differences:
        raise LoadMismatchError("the checkpoint is of another training; nothing was loaded", differences, path=path)
    return found


def _number(metric: object) -> float | None:
    if metric is None:
        return None
    try:
        return float(metric.asscalar() if isinstance(metric, NDArray) else metric)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise HybridLabError(f"a metric is a number, not {metric!r:.60}") from None
