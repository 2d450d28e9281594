"""A training that is behind others of a search is ended."""

from collections.abc import Callable

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint

from tasks.base import as_task
from tasks.errors import Pruned


class Pruning(Checkpoint):
    """Hands the selecting metric on after each validation. `judge(k, value)`, of the k-th, says why the run ends, or
    None; it ends with Pruned.

    It is a Checkpoint only so that Lightning calls it after the module has its metrics.
    """

    def __init__(self, judge: Callable[[int, float], str | None]):
        self.judge, self.validations = judge, 0

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        task = as_task(module)
        if trainer.state.fn != "fit" or trainer.sanity_checking or task.select not in task.metrics:
            return
        self.validations += 1
        if trainer.current_epoch + 1 == trainer.max_epochs:  # it is at its end anyway
            return
        if reason := self.judge(self.validations, float(task.metrics[task.select])):
            raise Pruned(f"Ended in epoch {trainer.current_epoch + 1}: {reason}.")
