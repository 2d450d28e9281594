"""Compare two runs example by example: what the first gets right and the second wrong.

python scripts/errors.py RUN_A RUN_B                          a Markdown table of test pairs, on the screen
python scripts/errors.py RUN_A RUN_B --split dev --most 50 --output errors.md

Both were trained on the same pairs of sentences (task=snli, multinli, nli). For the other direction, swap the runs.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)
    import scripts  # noqa: F401 - Ctrl-C during the other imports

import torch  # noqa: E402
from scipy.special import bdtr  # noqa: E402
from torch import Tensor  # noqa: E402

from scripts import commands  # noqa: E402
from scripts.trained import STATES, Trained, load, read_runs  # noqa: E402
from tasks.errors import UserError, plain_warnings, whole  # noqa: E402
from tasks.folders import write_text  # noqa: E402


@dataclass(frozen=True)
class Answers:
    """Of N examples their gold classes (N,), and the probabilities of all classes of two runs, each (N, K)."""

    gold: Tensor
    a: Tensor
    b: Tensor

    @property
    def right(self) -> tuple[Tensor, Tensor]:
        """Which examples each run gets right, (N,) both."""
        return self.a.argmax(-1) == self.gold, self.b.argmax(-1) == self.gold

    def only_a(self) -> list[int]:
        """Examples that a gets right and b wrong, those first to whose gold class a gives more probability than b."""
        a, b = self.right
        index = torch.nonzero(a & ~b).flatten()
        more = (self.a - self.b)[index, self.gold[index]]
        return index[more.argsort(descending=True, stable=True)].tolist()

    def counts(self) -> dict[tuple[bool, bool], int]:
        """Examples by whether a and b get them right."""
        a, b = self.right
        return {(x, y): int(((a == x) & (b == y)).sum()) for x in (True, False) for y in (True, False)}


def mcnemar(only_a: int, only_b: int) -> float:
    """The two-sided p of McNemar's exact test, ``min(1, 2 P(X <= min))`` with X binomial of n = only_a + only_b tosses:
    how probable a difference so large is where each is as likely to be the right one. (McNemar 1947)"""
    return min(1.0, 2 * float(bdtr(min(only_a, only_b), only_a + only_b, 0.5)))


def compare(a: Trained, b: Trained, split: str) -> Answers:
    """The answers of both runs on a split. Raises UserError where their examples or classes differ."""
    for trained in (a, b):
        if not all(hasattr(trained.data, name) for name in ("texts", "labels")):
            raise UserError(
                f"{trained.run.folder}: the task {trained.run.settings.get('task.name')} has no pairs of sentences, "
                "which are compared here; name runs of task=snli, multinli or nli. `mode=test output=FILE` writes the "
                "answers of any run, a line for each example."
            )
    if a.data.labels != b.data.labels and sorted(a.data.labels) == sorted(b.data.labels):
        raise UserError(
            f"The runs have their classes in another order, as runs on other data have ({a.run.title} and "
            f"{b.run.title}). Name runs on the same data."
        )
    if a.data.labels != b.data.labels:
        raise UserError(
            f"The runs have other classes: {', '.join(a.data.labels)} ({a.run.title}) and {', '.join(b.data.labels)} "
            f"({b.run.title}). Name runs with the same task.labels or task.data.classes."
        )
    (gold, first), (other, second) = predict(a, split), predict(b, split)
    files = [trained.data.fingerprint()["sha256"].get(split) for trained in (a, b)]
    rows = [list(trained.data.rows(split)) for trained in (a, b)]
    if files[0] != files[1] or rows[0] != rows[1] or not torch.equal(gold, other):
        raise UserError(
            f"The runs have other examples in their {split} split: {len(gold):,} ({a.run.title}) and {len(other):,} "
            f"({b.run.title}) of other files, another choice of them, or in another order, as another tokeniser gives. "
            "Name runs on the same data with the same task.data.tokenizer and task.data.max_length."
        )
    return Answers(gold, first, second)


def predict(trained: Trained, split: str) -> tuple[Tensor, Tensor]:
    """Gold classes (N,) of a split, and the probabilities (N, K) that the model gives."""
    pairs = trained.data.splits()[split]
    order = pairs.lengths.amax(0).argsort(stable=True)
    parts = []
    with torch.inference_mode():
        for index in order.split(trained.data.eval_batch_size):
            batch = pairs[index]
            parts.append(trained.model(batch["words"], batch["lengths"]).double().softmax(-1))
    return pairs.labels, torch.cat(parts)[order.argsort()]


def table(a: Trained, b: Trained, split: str, answers: Answers, most: int) -> str:
    """Markdown: how often each is right, McNemar's p, and at most `most` examples that only a gets right."""
    counts, n, names = answers.counts(), len(answers.gold), a.data.labels
    only_a, only_b = counts[True, False], counts[False, True]
    rows = [(word, counts[right, True], counts[right, False]) for word, right in (("right", True), ("wrong", False))]
    listed = answers.only_a()[:most]
    lines = [
        f"## {split}: A right, B wrong",
        "",
        f"A: {a.run.title}; {a.run.space}, epoch {a.epoch}  ",
        f"B: {b.run.title}; {b.run.space}, epoch {b.epoch}",
        "",
        f"| {n:,} pairs | B right | B wrong | |",
        "|---|---:|---:|---:|",
        *(f"| A {word} | {both:,} | {one:,} | {100 * (both + one) / n:.2f} % |" for word, both, one in rows),
        "",
        f"A is right in {100 * (counts[True, True] + only_a) / n:.2f} % and B in "
        f"{100 * (counts[True, True] + only_b) / n:.2f} %; McNemar's exact test, two-sided: p = "
        f"{mcnemar(only_a, only_b):.3g} ({only_a:,} against {only_b:,}).",
        "",
        f"{len(listed):,} of the {only_a:,} pairs that only A gets right, those first to whose label A gives the most "
        "probability beyond what B gives it:",
        "",
        "| premise | hypothesis | label | A | B |",
        "|---|---|---|---|---|",
    ]
    for k in listed:
        premise, hypothesis = a.data.texts(split, k)
        labels = [names[int(each)] for each in (answers.gold[k], answers.a[k].argmax(), answers.b[k].argmax())]
        lines.append("| " + " | ".join(_cell(text) for text in (premise, hypothesis, *labels)) + " |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")


@commands.makes_models
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 where the runs cannot be compared. Exits with 2 for bad usage."""
    options = _parser().parse_args(arguments)
    whole("--most", options.most, 1)
    if options.output and options.output.is_dir():
        raise UserError(f"--output {options.output} is a folder; name a file in it, as {options.output}/errors.md.")
    a, b = (load(run, options.state, options.data) for run in read_runs(options.runs))
    text = table(a, b, options.split, compare(a, b, options.split), options.most)
    if options.output:
        print(f"table: {write_text(options.output, text)}")
    else:
        print(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = commands.parser("errors.py", __doc__, makes_models=True)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN", help="folder of a run: first A, then B")
    parser.add_argument("--split", choices=("train", "dev", "test"), default="test")
    parser.add_argument("--most", type=int, default=20, metavar="N", help="examples that are listed (20)")
    parser.add_argument("--output", type=Path, metavar="FILE.md", help="a file, in the place of the screen")
    parser.add_argument("--state", choices=list(STATES), default="best", help="weights that were tested, or the last")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="your own data (data.dir), where they have moved")
    return parser


if __name__ == "__main__":
    plain_warnings()
    sys.exit(main())
