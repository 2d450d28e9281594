"""What the processes of one run have in common where torchrun or Slurm started them, each with the same command."""

import os
from collections.abc import Callable
from datetime import timedelta

from pytorch_lightning.plugins.environments import ClusterEnvironment, SLURMEnvironment, TorchElasticEnvironment
from torch.distributed import DistError, Store, rendezvous

from tasks.errors import UserError

TIMEOUT = timedelta(minutes=10)  # for all processes to be there
_stores: list[Store] = []  # that of process 0 serves the others, as long as it is referred to


def is_alone_in_slurm() -> bool:
    """Whether this process belongs to a job of Slurm, and srun did not start it as one of several: that of a script for
    sbatch, whose variables count the tasks of the job."""
    in_slurm = SLURMEnvironment.detect() and not TorchElasticEnvironment.detect()
    return in_slurm and os.environ.get("SLURM_STEP_NUM_TASKS", "1") == "1"


def same_for_all(make: Callable[[], str]) -> tuple[str, bool] | None:
    """What `make` gives in process 0, for every process of this run, and whether this is process 0.

    None where neither torchrun nor srun started several processes. Raises UserError where the others do not come, and
    where Slurm was not told how many there are on each machine.
    """
    kinds: tuple[type[ClusterEnvironment], ...] = (TorchElasticEnvironment, SLURMEnvironment)
    try:
        cluster = next((kind() for kind in kinds if kind.detect() and not is_alone_in_slurm()), None)
    except RuntimeError as error:
        raise UserError(f"Slurm: {error}") from error
    if cluster is None or cluster.world_size() == 1:
        return None
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = cluster.main_address, str(cluster.main_port)
    rank, size = cluster.global_rank(), cluster.world_size()
    try:
        store = next(rendezvous(f"env://?rank={rank}&world_size={size}", timeout=TIMEOUT))[0]
        _stores.append(store)
        if rank == 0:
            store.set("hyperbolic", make())
        return store.get("hyperbolic").decode(), rank == 0
    except DistError as error:
        raise UserError(
            f"{size} processes belong to this run, as {type(cluster).__name__.removesuffix('Environment')} says, and "
            f"number {rank} did not meet the others within {TIMEOUT}. Start them all, in Slurm with srun."
        ) from error
