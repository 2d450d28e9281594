"""The processes of a training as threads of this one, with real collectives (Gloo) between them."""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any
from unittest import mock

from torch import Tensor, distributed


def in_processes(world: int, work: Callable[[int], Any]) -> list[Any]:
    """What work(rank) returns in each of `world` processes, which may call `torch.distributed`."""
    store, local = distributed.HashStore(), threading.local()

    def run(rank: int) -> Any:
        local.group = distributed.ProcessGroupGloo(store, rank, world, timedelta(seconds=20))
        return work(rank)

    def all_reduce(x: Tensor) -> None:
        local.group.allreduce([x]).wait()

    def all_gather(parts: list[Tensor], x: Tensor) -> None:
        local.group.allgather([parts], [x]).wait()

    with (
        mock.patch.multiple(
            distributed, all_reduce=all_reduce, all_gather=all_gather, get_world_size=lambda: world,
            is_initialized=lambda: True,
        ),
        ThreadPoolExecutor(world) as pool,
    ):  # fmt: skip
        ranks = [pool.submit(run, rank) for rank in range(world)]
        for first in wait(ranks, return_when=FIRST_EXCEPTION).done:
            first.result()  # the error that made the others wait
        return [rank.result() for rank in ranks]
