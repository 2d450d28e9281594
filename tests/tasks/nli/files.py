"""Small files of sentence pairs, and the settings that read them."""

import json
from pathlib import Path

from tasks.nli.columns import Recipe

ROWS = (  # label, premise, hypothesis
    ("entailment", "A dog runs.", "An animal moves."),
    ("neutral", "A dog runs.", "A dog runs home."),
    ("contradiction", "A dog runs.", "A dog sleeps."),
    ("-", "A dog runs.", "Hm."),
)
RECIPE = Recipe(
    tokenizer="words", lower=True, ends=False, max_length=50, vocabulary="train", min_count=1,
    classes={"other": ["neutral", "contradiction"], "entailment": ["entailment"]}, held_out=0.0, held_out_seed=0,
    sizes={"train": None, "dev": None, "test": None}, on_error="fail",
)  # fmt: skip
SETTINGS = {
    "toy": None, "files": None, "download": None, "paper_pairs": None, "shuffle": "examples", "batch_size": 2,
    "eval_batch_size": 10, "seed": 0, **vars(RECIPE),
}  # fmt: skip


def lines(rows=ROWS, **more: str) -> str:
    """JSON lines as SNLI has them."""
    named = (dict(zip(("gold_label", "sentence1", "sentence2"), row, strict=True)) for row in rows)
    return "".join(json.dumps(row | more) + "\n" for row in named)


def folder(place: Path, **content: str) -> Path:
    """A folder with files for train, dev and test; others, by stem, as `content` says."""
    place.mkdir(exist_ok=True)
    for stem in ("train", "dev", "test"):
        (place / f"{stem}.jsonl").write_text(content.pop(stem, lines()), encoding="utf-8")
    for stem, text in content.items():
        (place / f"{stem}.jsonl").write_text(text, encoding="utf-8")
    return place
