"""The rows of the table, one module for each kind of work; `ROWS` has them in the order of the table."""

from scripts.benchmarks.rows import (
    attention,
    classifier,
    distances,
    graph_step,
    linear,
    operators,
    optimiser,
    prefix_step,
    ranking,
    recurrent,
    training_step,
    transformer_layer,
    translation_step,
)

KINDS = (
    classifier,
    recurrent,
    linear,
    attention,
    ranking,
    graph_step,
    optimiser,
    training_step,
    prefix_step,
    transformer_layer,
    translation_step,
    distances,
    operators,
)
ROWS = [row for kind in KINDS for row in kind.ROWS]
