"""The rows of the table, one module for each kind of work; `ROWS` has them in the order of the table."""

from scripts.benchmarks.rows import (
    attention,
    classifier,
    distances,
    graph_step,
    linear,
    optimiser,
    ranking,
    recurrent,
    training_step,
)

ROWS = [
    *classifier.ROWS,
    *recurrent.ROWS,
    *linear.ROWS,
    *attention.ROWS,
    *ranking.ROWS,
    *graph_step.ROWS,
    *optimiser.ROWS,
    *training_step.ROWS,
    *distances.ROWS,
]
