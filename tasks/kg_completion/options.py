"""Settings of link prediction: how links are learned, ranked and predicted."""

from dataclasses import dataclass

from tasks.errors import UserError, number, one_of, rate, share, whole

OBJECTIVES = ("bce", "self_adversarial", "all_bce", "cross_entropy")
TIES = ("realistic", "optimistic", "pessimistic")
CORRUPT = ("tails", "both")


@dataclass(frozen=True)
class LinkPredictionOptions:
    """How links are learned, ranked and predicted.

    objective: bce | self_adversarial | cross_entropy (softmax) of each triple against `negatives` wrong ones, in
    cross_entropy None for all entities (Lacroix et al. 2018); all_bce (1-N: all entities, right and wrong; needs
    task.data.examples=queries). corrupt: negatives take the place of tails, or (both) in every second triple of
    heads, which is for data without reciprocals. double_neg: a wrong triple has another head as well as another tail,
    (h', r, t') (`--double_neg` of KGEmb, the program of Chami et al. 2020). subsampling: triples weigh
    ``w = (n(h, r) + n(r, t) + 6)^-1/2`` and the loss is ``sum w l / sum w``, with the numbers of the tails of (h, r)
    and of the heads of (r, t) in train (Sun et al. 2019, in their program unless `--uni_weight`; 6 = 2 * 3, as its
    counts begin at 4). pool: one draw of so many entities for all triples of a batch, in
    the place of `negatives` of each; in bce they weigh as `negatives`, so the loss has the same expectation, with less
    noise. self_share: of this share of the queries, from 0 to 1, one negative is the entity in the query, which is
    often close to the right one and which a random draw seldom has; with a pool it weighs as one of it. temperature: of
    self_adversarial. smoothing: of labels, in all_bce. regulariser: weight of sum |x|^exponent over the rows that a
    batch uses. ties: of the headline metrics. top_k: answers to a question; hide_known: without those the graph has.

    Raises UserError for a value that cannot be, and for settings that do not go together.
    """

    objective: str
    negatives: int | None
    pool: int | None
    self_share: float
    corrupt: str
    temperature: float
    smoothing: float
    regulariser: float
    exponent: int
    ties: str
    top_k: int
    hide_known: bool
    double_neg: bool = False  # runs from before these settings have none
    subsampling: bool = False

    def __post_init__(self) -> None:
        one_of("task.module.objective", self.objective, OBJECTIVES)
        one_of("task.module.corrupt", self.corrupt, CORRUPT)
        one_of("task.module.ties", self.ties, TIES)
        if self.negatives is None and self.objective in ("bce", "self_adversarial"):
            raise UserError(
                f"task.module.negatives=null is for objective=cross_entropy; {self.objective} needs a number."
            )
        for name in ("negatives", "pool", "exponent", "top_k"):
            if getattr(self, name) is not None:
                whole(f"task.module.{name}", getattr(self, name), 1)
        rate("task.module.smoothing", self.smoothing)
        number("task.module.regulariser", self.regulariser)
        number("task.module.temperature", self.temperature)
        share("task.module.self_share", self.self_share)
        if (self.pool is not None or self.self_share) and (self.negatives is None or self.objective == "all_bce"):
            raise UserError(
                f"task.module.pool={self.pool} and self_share={self.self_share} are about negatives that are "
                f"drawn, and objective={self.objective} with negatives={self.negatives} takes all entities; set "
                "pool=null and self_share=0."
            )
        if self.corrupt == "both" and (self.negatives is None or self.objective == "all_bce"):
            raise UserError(
                f"task.module.corrupt=both draws wrong heads, and objective={self.objective} takes all entities; "
                "take a number of task.module.negatives with another objective, or corrupt=tails with "
                "task.data.reciprocal=true for the heads."
            )
        if self.pool is not None and self.corrupt == "both":
            raise UserError("task.module.pool draws tails only; take task.module.corrupt=tails.")
        if self.double_neg and (self.pool is not None or self.self_share or self.negatives is None):
            raise UserError(
                f"task.module.double_neg=true draws another head and another tail for each wrong triple, which neither "
                f"pool={self.pool}, self_share={self.self_share} nor negatives={self.negatives} fits; set pool=null, "
                "self_share=0 and a number of negatives, or double_neg=false."
            )
        if self.double_neg and (self.corrupt == "both" or self.objective == "all_bce"):
            raise UserError(
                f"task.module.double_neg=true goes with corrupt=tails and an objective that draws negatives, not "
                f"with corrupt={self.corrupt} and objective={self.objective}."
            )
        if self.subsampling and self.objective == "all_bce":
            raise UserError("task.module.subsampling weighs triples; with objective=all_bce, set it to false.")
        if self.regulariser and self.objective == "all_bce":
            raise UserError("task.module.regulariser is of triples; with objective=all_bce, set it to 0.")
