"""The types of the fixed parts of the configuration: its root, and the nodes optim, trainer, paths, data and probe.

The nodes task, geometry, encoder and logger name classes with `_target_`; `configs.checks` compares their keys with the
parameters of these classes.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class Paths:
    data_dir: str = MISSING
    output_dir: str = MISSING
    cache_dir: str = MISSING


@dataclass
class Data:
    dir: str | None = MISSING


@dataclass
class Probe:
    checkpoint: str | None = MISSING


@dataclass
class Role:
    """Settings of the optimiser for one kind of parameters; what is null is as for the others."""

    rule: str | None = None
    lr: float | None = None
    weight_decay: float | None = None


@dataclass
class Plateau:
    """Settings of schedule=plateau."""

    factor: float = MISSING
    patience: int = MISSING


@dataclass
class LBFGS:
    """Settings of rule=lbfgs."""

    max_iter: int = 1000
    history_size: int = 50
    tolerance_grad: float = 1e-9
    tolerance_change: float = 1e-12


@dataclass
class Optim:
    rule: str = MISSING
    lr: float = MISSING
    betas: list[float] = MISSING
    eps: float = MISSING
    momentum: float = MISSING
    amsgrad: bool = MISSING
    weight_decay: float = MISSING
    decoupled: bool = MISSING
    max_grad_norm: float | None = MISSING
    clip: str = MISSING
    exact_exp: bool = MISSING
    stabilize: int | None = MISSING
    schedule: str = MISSING
    warmup_steps: int = MISSING
    d_model: int | None = MISSING
    plateau: Plateau = field(default_factory=Plateau)
    lbfgs: LBFGS = field(default_factory=LBFGS)
    embeddings: Role = field(default_factory=Role)
    biases: Role = field(default_factory=Role)
    matrices: Role = field(default_factory=Role)
    vectors: Role = field(default_factory=Role)


@dataclass
class Trainer:
    max_epochs: int | str | None = MISSING
    min_epochs: int | None = MISSING
    max_steps: int = MISSING
    limit_train_batches: int | float = MISSING
    limit_val_batches: int | float = MISSING
    limit_test_batches: int | float = MISSING
    val_check_interval: int | float = MISSING
    check_val_every_n_epoch: int | str = MISSING
    accumulate_grad_batches: int = MISSING
    precision: str = MISSING
    accelerator: str = MISSING
    devices: int | str = MISSING
    num_nodes: int = MISSING
    strategy: str = MISSING
    deterministic: bool = MISSING
    log_every_n_steps: int = MISSING
    enable_progress_bar: bool = MISSING
    resume: str | None = MISSING
    checkpoint_every_s: float = MISSING
    checkpoint_every_n_steps: int | None = MISSING
    patience: int | None = MISSING
    average_last: int | None = MISSING
    nan_check_every_n_steps: int = MISSING
    kernels: str = MISSING
    threads: int | None = MISSING
    progress_every_n_steps: int = MISSING


@dataclass
class Root:
    task: Any = MISSING
    geometry: Any = MISSING
    encoder: Any = MISSING
    optim: Optim = field(default_factory=Optim)
    trainer: Trainer = field(default_factory=Trainer)
    logger: Any = None
    seed: int = MISSING
    mode: str = MISSING
    checkpoint: str | None = MISSING
    input: str | None = MISSING
    output: str | None = MISSING
    explain: bool = MISSING
    skip_finished: bool = MISSING
    check_points: bool = MISSING
    fidelity: str = MISSING
    paths: Paths = field(default_factory=Paths)
    data: Data = field(default_factory=Data)
    probe: Probe = field(default_factory=Probe)
