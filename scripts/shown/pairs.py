"""Figures of runs on pairs of sentences: lengths, classes, and what hypotheses attend to."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from scripts.drawing import classes, histograms, weights
from scripts.shown import entity_types
from scripts.shown.asked import Models, Wishes, caption
from scripts.trained import Run, Trained
from tasks.errors import UserError

SIDES = ("premises", "hypotheses")
SHOWN, SHORT = 6, (8, 16)  # pairs of the test split that are shown where no file is named; words of their premises
MOST = 12  # pairs of a file
COLUMNS = ("split", "label", "gold", "predicted", "true_positives")  # of classes.csv


class Text(NamedTuple):
    premise: str
    hypothesis: str
    gold: str | None


def draw_lengths(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """A file for each run."""
    made = []
    for run in runs:
        found = models(run)
        splits = found.data.splits()
        if not all(getattr(split, "lengths", torch.empty(0)).dim() == 2 for split in splits.values()):
            raise UserError(f"{run.folder}: the task {_task(run)} has no pairs of sentences, whose lengths are shown.")
        panels = [
            (name, {split: pairs.lengths[side].numpy() for split, pairs in splits.items()})
            for side, name in enumerate(SIDES)
        ]
        foot = f"{run.title}. Words as the model sees them"
        if tokenizer := run.settings.get("task.data.tokenizer"):
            counts = found.data.fingerprint()["counts"]
            cut = ", ".join(f"{count['cut']:,} of {split}" for split, count in counts.items() if "cut" in count)
            foot += f" (tokenizer: {tokenizer}); sentences longer than {run.settings['task.data.max_length']} words"
            foot += f" are cut ({cut})." if cut else " are cut."
        drawn = histograms.draw(panels, f"Lengths of sentences, {_task(run)}", foot.rstrip(".") + ".")
        made.append(wishes.of_one(runs, run).save(drawn, "lengths", [run]))
    return made


def draw_classes(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """One file with a panel for each run, from the tables that the runs left."""
    panels = [(f"{run.title}\n{run.space}", counted(run)) for run in runs]
    return [wishes.save(classes.draw(panels, "Classes of the test split, and true positives"), "classes", runs)]


def draw_attention(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """Of runs on pairs one file with a strip for each pair; of other runs what `entity_types.draw_attention` draws."""
    loaded = [models(run) for run in runs]
    on_pairs = [found for found in loaded if hasattr(found.data, "texts")]
    others = [found.run for found in loaded if not hasattr(found.data, "texts")]
    if wishes.pairs and not on_pairs:
        raise UserError("--pairs is for runs on pairs of sentences, as of task=snli encoder=gru_attention.")
    made = entity_types.draw_attention(others, models, wishes) if others else []
    if on_pairs:
        texts = read_texts(on_pairs[0], wishes.pairs) if wishes.pairs else some_texts(on_pairs[0])
        strips = attended(on_pairs, texts)
        alone = f"\n{caption(on_pairs[0], on_pairs[0].model.manifold)}" if len(on_pairs) == 1 else ""
        drawn = weights.draw(strips, f"What hypotheses attend to in their premises{alone}")
        figure = "attention-pairs" + (f"-{wishes.pairs.stem}" if wishes.pairs else "")
        made.append(wishes.save(drawn, figure, [found.run for found in on_pairs]))
    return made


def counted(run: Run) -> list[classes.Count]:
    """Of each class of the test split how many examples there are and were found, as the run wrote it down.

    Raises UserError where it did not, or the table is damaged.
    """
    path = run.folder / "classes.csv"
    if not path.is_file():
        raise UserError(
            f"{run.folder}: it has no classes.csv, which a training of task=snli, multinli or nli leaves; name the "
            "folder of one."
        )
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["split"] == "test"]
        found = [classes.Count(row["label"], *(int(row[name]) for name in COLUMNS[2:])) for row in rows]
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); its columns are {', '.join(COLUMNS)}. Run it again.") from error
    if not found:
        raise UserError(f"{path} has no rows of the test split. Run it again.")
    return found


def attended(runs: Sequence[Trained], texts: Sequence[Text]) -> list[weights.Pair]:
    """For each pair the weights of the premise's words in all runs; runs that cut it into other words get strips of
    their own. Raises UserError where a model does not attend."""
    said = [_predicted(found, texts) for found in runs]
    strips = []
    for k, text in enumerate(texts):
        rows: dict[tuple[str, ...], list[tuple[str, np.ndarray]]] = {}
        for found, answers in zip(runs, said, strict=True):
            tokens, values = zip(*answers[k]["attention"], strict=True)
            label = answers[k]["label"]
            answer = f"{label} {answers[k]['probabilities'][label]:.2f}"
            of_run = f"{found.run.title}: " if len(runs) > 1 else ""
            rows.setdefault(tokens, []).append((of_run + answer, np.array(values)))
        strips += [weights.Pair(text.hypothesis, text.gold, tokens, tuple(group)) for tokens, group in rows.items()]
    return strips


def read_texts(found: Trained, file: Path) -> list[Text]:
    """The first pairs of a file, as mode=predict reads it."""
    with file.open("rb") as lines:
        pairs = list(found.data.read_inputs(lines, str(file)))
    if len(pairs) > MOST:
        print(f"--pairs {file}: shown are the first {MOST} of {len(pairs):,} pairs.")
    return [Text(pair.premise, pair.hypothesis, None) for pair in pairs[:MOST]]


def some_texts(found: Trained) -> list[Text]:
    """The first pairs of the test split with a short premise, as many of each class."""
    split = found.data.splits()["test"]
    names = found.data.labels
    short = (split.lengths[0] >= SHORT[0]) & (split.lengths[0] <= SHORT[1])
    candidates = short if short.any() else torch.ones_like(short)
    chosen: list[int] = []
    for label in range(len(names)):
        chosen += torch.nonzero(candidates & (split.labels == label)).flatten()[: -(-SHOWN // len(names))].tolist()
    return [Text(*found.data.texts("test", k), names[int(split.labels[k])]) for k in sorted(chosen)]


def _predicted(found: Trained, texts: Sequence[Text]) -> list[dict]:
    lines = [f"{_line(text.premise)}\t{_line(text.hypothesis)}".encode() for text in texts]
    split = found.data.encode(list(found.data.read_inputs(lines, "the pairs")))
    with torch.inference_mode():
        said = found.task.predict(split[torch.arange(len(split))])
    if not all("attention" in answer for answer in said):
        encoder = found.run.settings.get("encoder._target_", "its encoder").rpartition(".")[2]
        raise UserError(
            f"{found.run.folder}: {encoder} does not attend to anything. Name a run of encoder=gru_attention or "
            "encoder=dan_attention."
        )
    return said


def _line(text: str) -> str:
    return " ".join(text.split())


def _task(run: Run) -> str:
    return run.settings.get("task.name", "its task")
