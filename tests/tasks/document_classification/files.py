"""Small files of documents, and the settings that read them."""

from pathlib import Path
from typing import Any

from tasks.document_classification.corpus import Recipe
from tasks.document_classification.data import DocumentData
from tasks.document_classification.sources import Form

RECIPE: dict[str, Any] = {
    "tokenizer": "words", "lower": True, "ends": False, "max_length": 6, "vocabulary": "train", "min_count": 1,
    "max_sentences": 3, "max_words": None, "language": "en", "clean": [], "classes": None, "held_out": {"dev": 0.2},
    "held_out_seed": 0, "sizes": {}, "on_error": "fail",
}  # fmt: skip
SETTINGS: dict[str, Any] = {
    "toy": None, "files": None, "form": Form(["label", "title", "text"], ["label"], [["title"], ["text"]], []),
    "download": None, "paper_documents": None, "selection": "held_out", "vectors": None, "shuffle": "buckets",
    "batch_size": 4, "eval_batch_size": 3, "seed": 0, **RECIPE,
}  # fmt: skip
TRAIN = "".join(
    f'"1","Rain","It{" rains" * k}. The road is wet."\n"2","{"Shares " * k}","They rise, he said."\n' for k in range(1, 6)
)
TEST = '"2","Shares fall","Nobody ""knows"" why."\n"1","","Wind."\n'


def recipe(**changes: Any) -> Recipe:
    return Recipe(**RECIPE | changes)


def folder(place: Path, train: str = TRAIN, test: str = TEST) -> Path:
    """A folder with train.csv and test.csv, as the releases of Zhang et al. have them."""
    place.mkdir(exist_ok=True)
    (place / "train.csv").write_text(train, encoding="utf-8")
    (place / "test.csv").write_text(test, encoding="utf-8")
    return place


def data(tmp_path: Path, place: Path | None = None, **changes: Any) -> DocumentData:
    where = folder(tmp_path / "news") if place is None else place
    return DocumentData(str(where), cache=str(tmp_path / "cache"), **SETTINGS | changes)
