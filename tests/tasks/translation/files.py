"""Small aligned files, and the data that are made of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.translation.corpus import HeldOut
from tasks.translation.data import TranslationData

WORDS = {"a": "ein", "dog": "hund", "cat": "katze", "runs": "läuft", "sleeps": "schläft", "here": "hier", "!": "!"}
TRAIN = ["a dog runs", "a cat sleeps here !", "a cat runs", "a dog sleeps !", "dog", "here runs a dog !"]
SETTINGS: dict[str, Any] = {
    "toy": None, "source": "en", "target": "de", "tokenised": "none",
    "files": {"train": ["train"], "dev": ["valid", "val"], "test": ["test"]}, "table": None,
    "held_out": HeldOut({"dev": 0.1, "test": 0.1}, "en"), "download": None, "paper_pairs": None, "subwords": "none",
    "pieces": 60, "vocabularies": "separate", "min_count": 1, "max_length": 8, "shuffle": "buckets", "batch_size": 4,
    "batch_tokens": None, "eval_batch_size": 2, "seed": 0,
}  # fmt: skip


def german(sentence: str) -> str:
    """Word by word."""
    return " ".join(WORDS[word] for word in sentence.split())


def write(folder: Path, sides: Mapping[str, Sequence[str]]) -> Path:
    """Files by their names."""
    folder.mkdir(exist_ok=True)
    for name, lines in sides.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def aligned(folder: Path, **changes: Sequence[str]) -> Path:
    """train, valid and test in both languages; `changes`: other lines of a file, as train_en."""
    sides = {}
    for split, lines in {"train": TRAIN, "valid": TRAIN[1:3], "test": [*TRAIN[3:5], "a dog runs here !"]}.items():
        sides |= {f"{split}.en": lines, f"{split}.de": [german(line) for line in lines]}
    return write(folder, sides | {name.replace("_", "."): lines for name, lines in changes.items()})


def data(folder: Path, cache: Path, **changes: Any) -> TranslationData:
    return TranslationData(folder=str(folder), cache=str(cache), **(SETTINGS | changes))
