"""The handler that saves parameters and Trainer while an Estimator trains, and continues from its last save.

Its files are MXNet's: `<prefix>-epoch3batch40.params` and `.states`, `<prefix>-best.params`, `<prefix>-symbol.json`.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.distributed.first import on_first
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.metric import EvalMetric

from . import metrics as of_metrics
from .events import BatchEnd, EpochEnd, TrainBegin

if TYPE_CHECKING:
    from .estimator import Estimator


class CheckpointHandler(TrainBegin, BatchEnd, EpochEnd):
    """Saves parameters and Trainer every `epoch_period` epochs and `batch_period` batches; None: never. If workers
    train together, rank 0 saves, and the other workers wait for it.

    model_dir : the folder of the files, made if it is missing; model_prefix : how their names begin
    monitor : the metric that decides which model is best, with save_best; mode : as in EarlyStoppingHandler
    verbose : 1 logs every save; max_checkpoints : number kept, in addition to the best
    resume_from_checkpoint : load the latest checkpoint when the training begins, and train the rest of the epochs
    """

    def __init__(
        self,
        model_dir: str | PathLike[str],
        model_prefix: str = "model",
        monitor: EvalMetric | None = None,
        verbose: int = 0,
        save_best: bool = False,
        mode: str = "auto",
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        max_checkpoints: int = 5,
        resume_from_checkpoint: bool = False,
    ):
        check_switches("CheckpointHandler", save_best=save_best, resume_from_checkpoint=resume_from_checkpoint)
        self.model_dir = str(model_dir)
        Path(model_dir).mkdir(parents=True, exist_ok=True)
        self.model_prefix, self.verbose, self.save_best = model_prefix, verbose, save_best
        self.epoch_period, self.batch_period, self.max_checkpoints = epoch_period, batch_period, max_checkpoints
        self.resume_from_checkpoint = resume_from_checkpoint
        self.current_batch = self.current_epoch = 0
        self.trained_epoch = self.trained_batch = -1
        self.saved_checkpoints: list[str] = []
        self.monitor = monitor
        self._comparison: of_metrics.Comparison | None = None
        self.best = math.nan
        if save_best:
            if not isinstance(monitor, EvalMetric):
                raise ValueError("save_best needs a monitor: one of estimator.train_metrics or estimator.val_metrics")
            self._comparison = of_metrics.Comparison(monitor, mode, "CheckpointHandler")
            self.best = self._comparison.worst

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        self.current_batch = self.current_epoch = 0
        if self._comparison is not None:
            self.best = self._comparison.worst
        if self.resume_from_checkpoint:
            counted, other = ("epoch", "batch") if estimator.max_epoch else ("batch", "epoch")
            if not getattr(self, f"{counted}_period") or getattr(self, f"{other}_period"):
                raise AssertionError(
                    f"a training that counts {counted}es".replace("epoches", "epochs")
                    + f" can be resumed with {counted}_period set and {other}_period=None"
                )
            self._resume(estimator)

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        if self.current_batch == 0:
            on_first(lambda: self._save_symbol(estimator))
        if self.batch_period and (self.current_batch + 1) % self.batch_period == 0:
            self._save_checkpoint(estimator)
        self.current_batch += 1

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        if self.epoch_period and (self.current_epoch + 1) % self.epoch_period == 0:
            self._save_checkpoint(estimator)
        self.current_epoch += 1

    def _path(self, name: str) -> Path:
        return Path(self.model_dir, name)

    def _save_symbol(self, estimator: Estimator) -> None:
        file = self._path(f"{self.model_prefix}-symbol.json")
        try:
            if not isinstance(estimator.net, HybridBlock):
                raise HybridLabError(f"{estimator.net.name} is no HybridBlock")
            estimator.net.export(None)[0].save(str(file))
        except HybridLabError as error:
            estimator.logger.info(f"The graph is not saved as {file}: {error}. Hybridize the network before fit().")

    def _save_checkpoint(self, estimator: Estimator) -> None:
        epoch, batch = self.current_epoch, self.current_batch
        if self.resume_from_checkpoint:
            epoch += self.trained_epoch + 1
            batch += self.trained_batch + (0 if estimator.max_epoch else 1)
        name = f"{self.model_prefix}-epoch{epoch}batch{batch}"
        self.saved_checkpoints.append(name)
        count = max(len(self.saved_checkpoints) - self.max_checkpoints, 0)
        old, self.saved_checkpoints = self.saved_checkpoints[:count], self.saved_checkpoints[count:]
        self._save(estimator, name, old)
        self._log(estimator, f"trained total {self.current_batch + 1} batches, saved as {self._path(name)}")
        self._save_best(estimator)

    def _save_best(self, estimator: Estimator) -> None:
        if self._comparison is None or self.monitor is None:
            return
        value, name = of_metrics.value_of(self.monitor, estimator.trainer), self.monitor.name
        if math.isnan(value):
            warnings.warn(
                f"CheckpointHandler: {name} was not updated, so that nothing is saved as the best; monitor one of "
                "estimator.train_metrics or estimator.val_metrics",
                RuntimeWarning,
                stacklevel=2,
            )
        elif self._comparison.improves(value, self.best):
            self._save(estimator, f"{self.model_prefix}-best")
            self._log(estimator, f"{name} improved from {self.best:.5f} to {value:.5f}, saved as the best")
            self.best = value
        else:
            self._log(estimator, f"{name} did not improve from {self.best:.5f}")

    def _save(self, estimator: Estimator, name: str, old: Sequence[str] = ()) -> None:
        """Write a checkpoint and remove old checkpoints; if workers train together, rank 0 does."""

        def write() -> None:
            estimator.net.save_parameters(str(self._path(f"{name}.params")))
            estimator.trainer.save_states(str(self._path(f"{name}.states")))
            for each in old:
                for ending in ("params", "states"):
                    self._path(f"{each}.{ending}").unlink(missing_ok=True)

        on_first(write)

    def _log(self, estimator: Estimator, text: str) -> None:
        if self.verbose > 0:
            estimator.logger.info(f"[Epoch {self.current_epoch}] CheckpointHandler: {text}")

    def _resume(self, estimator: Estimator) -> None:
        found = []
        for file in Path(self.model_dir).glob("*.params"):
            match = re.fullmatch(rf"{re.escape(self.model_prefix)}-epoch(\d+)batch(\d+)", file.stem)
            if match is not None:
                found.append((int(match[1]), int(match[2]), file.stem))
        unit = "epochs" if estimator.max_epoch else "batches"
        total = estimator.max_epoch or estimator.max_batch or 0
        if not found:
            estimator.logger.info(f"CheckpointHandler: no checkpoint found, training from scratch for {total} {unit}")
            return
        self.saved_checkpoints = [name for *_, name in sorted(found)]
        self.trained_epoch, self.trained_batch, name = max(found)
        done = self.trained_epoch if estimator.max_epoch else self.trained_batch
        if done >= total - 1:
            raise ValueError(
                f"the checkpoint {name} has all {total} {unit}; train for more, or with resume_from_checkpoint=False"
            )
        if estimator.max_epoch:
            estimator.max_epoch = total - done - 1
        else:
            estimator.max_batch = total - done - 1
        states = self._path(f"{name}.states")
        if not states.exists():
            raise AssertionError(f"{states} is missing; a checkpoint has a .params and a .states file")
        estimator.net.load_parameters(str(self._path(f"{name}.params")), ctx=estimator.context)
        estimator.trainer.load_states(str(states))
        estimator.logger.warning(f"CheckpointHandler: resumed from {name}, training for {total - done - 1} {unit}")
