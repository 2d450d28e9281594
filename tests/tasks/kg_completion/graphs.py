"""Small graphs for tests: as data, as sets of tuples, and with a model whose scores are given."""

import functools

import torch
from torch import Tensor, nn

from hyperbolic.encoders.relational.scorer import Scorer
from hyperbolic.geometry import make_geometry
from tasks.kg_completion.data import GraphData
from tasks.kg_completion.model import LinkPredictor
from tasks.kg_completion.task import LinkPredictionTask
from tasks.kg_completion.triples import FILES
from tasks.optimizers import make_optimizer

TOY = {"depth": 2, "branching": 3, "noise": 4, "held_out": 0.3, "seed": 0}
EVERYTHING = ["train", "dev", "test"]
DATA = {
    "folder": None, "toy": TOY, "sizes": {"train": None, "dev": None, "test": None}, "examples": "triples",
    "reciprocal": True, "known": {"dev": EVERYTHING, "test": EVERYTHING}, "known_in_training": ["train"],
    "without_self": False, "unseen": "keep", "shuffle": "examples", "batch_size": 16, "eval_batch_size": 8, "seed": 0,
}  # fmt: skip
MODULE = {
    "objective": "bce", "negatives": 5, "pool": None, "self_share": 0.0, "corrupt": "tails", "temperature": 1.0,
    "double_neg": False, "subsampling": False, "smoothing": 0.1, "regulariser": 0.0, "exponent": 3, "ties": "realistic", "lazy": False, "top_k": 10, "hide_known": True,
    "select": "val/mrr", "select_mode": "max",
}  # fmt: skip
RADAM = functools.partial(make_optimizer, embeddings={}, biases={}, matrices={}, rule="adam", lr=0.1)
EUCLIDEAN = make_geometry("euclidean", "Euclidean", "euclidean", c=None)


def graph_data(**changes) -> GraphData:
    return GraphData(**{**DATA, **changes})


def folder_data(folder, train: str, dev: str, test: str, **changes) -> GraphData:
    """Of rows such as "a r b, b r c"."""
    for split, rows in (("train", train), ("dev", dev), ("test", test)):
        text = "".join("\t".join(row.split()) + "\n" for row in rows.split(","))
        (folder / FILES[split]).write_text(text, encoding="utf-8")
    return graph_data(folder=str(folder), **changes)


def truths(data: GraphData, *splits: str) -> set[tuple[int, int, int]]:
    """The triples of some splits, and (t, r + R, h) of each."""
    n = len(data.graph.relations)
    rows = [tuple(row) for split in splits for row in data.graph.triples[split].tolist()]
    return set(rows) | {(t, r + n, h) for h, r, t in rows}


class TableScorer(Scorer):
    """f(h, r, t) is the entry [r, h, t] of a table, so that gradients tell which triples were scored."""

    def __init__(self, geometry, n_entities: int, n_relations: int, sparse: bool, values: int = 4):
        super().__init__(geometry, n_entities, n_relations, sparse)
        table = torch.randint(values, (n_relations, n_entities, n_entities))  # many ties
        self.table = nn.Parameter(table.to(torch.float64))

    def query(self, h: Tensor, r: Tensor) -> Tensor:
        return h

    def compare(self, query: Tensor, r: Tensor, t: Tensor) -> Tensor:
        return self.table[r.unsqueeze(-1), query.unsqueeze(-1), t]

    def compare_all(self, query: Tensor, r: Tensor, rows: slice | Tensor) -> Tensor:
        return self.table[r, query][:, rows]

    def points(self):
        return self.manifold, self.table[0].detach()

    def factors(self, h: Tensor, r: Tensor, t: Tensor) -> list[Tensor]:
        return [self.table[r, h, t].unsqueeze(-1), self.table[r, h]]


def predictor(data: GraphData, encoder=TableScorer, geometry=EUCLIDEAN, loop_bias: bool = False) -> LinkPredictor:
    sizes = {k: data.model_sizes[k] for k in ("entities", "relations", "n_relations")}
    return LinkPredictor(geometry, encoder, **sizes, sparse=False, loop_bias=loop_bias)


def link_prediction(data: GraphData, loop_bias: bool = False, **changes) -> LinkPredictionTask:
    """The task with the scores of a table."""
    sizes = {k: data.model_sizes[k] for k in ("graph", "known_in_training", "known_triples")}
    return LinkPredictionTask(predictor(data, loop_bias=loop_bias), RADAM, **sizes, **{**MODULE, **changes})


def evaluate(task: LinkPredictionTask, batches) -> dict[str, float]:
    """Metrics of a split, from the sums of its batches."""
    task.eval()
    total: dict = {}
    with torch.no_grad():
        for batch in batches:
            for name, value in task.step(batch).sums.items():
                total[name] = total.get(name, 0) + value
    return task.summary(total)


def score(task, e: int, r: int, answer: int) -> float:
    """Of one triple; r is R or more where the head is sought."""
    table = task.model.scorer.table.detach()
    turned = r >= task.n and not task.model.reciprocal
    return float(table[r - task.n, answer, e] if turned else table[r, e, answer])


def every(data) -> dict[str, torch.Tensor]:
    train = data.splits()["train"]
    return train[torch.arange(len(train))]
