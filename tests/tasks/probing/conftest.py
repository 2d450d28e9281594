"""A small treebank in files, a model to probe, and data that read both."""

import pytest

from tasks.probing.data import ProbingData
from tasks.probing.toy import ToyEncoder

SENTENCES = [[("a", 2), ("dog", 3), ("Barks", 0), (".", 3)], [("go", 0)], [("no", 2), ("cat", 0), ("here", 2)]]
SETTINGS = {
    "toy": None, "layer": "all", "states": None, "lowercase": False, "punctuation": "xpos", "sizes": {},
    "on_error": "fail", "shuffle": "buckets", "batch_size": 2, "eval_batch_size": 2, "seed": 0,
}  # fmt: skip


def conllu(sentences) -> str:
    rows = (
        "".join(f"{k}\t{word}\t_\t_\t{'.' if word == '.' else 'NN'}\t_\t{head}\t_\t_\t_\n" for k, (word, head) in enumerate(s, 1))
        for s in sentences
    )
    return "\n".join(rows)


@pytest.fixture
def treebank(tmp_path):
    for split in ("train", "dev", "test"):
        (tmp_path / f"xx-ud-{split}.conllu").write_text(conllu(SENTENCES), encoding="utf-8")
    return tmp_path


@pytest.fixture
def make(treebank):
    """A function that makes the data, with some settings changed."""

    def data(**changes) -> ProbingData:
        return ProbingData(**{"probed": ToyEncoder(4, 0), "folder": str(treebank), **SETTINGS, **changes})

    return data
