"""The made-up documents are learnt in each geometry; a state that was trained predicts."""

import json

import pytest
import torch

from configs.build import build
from hyperbolic.geometry import GEOMETRIES
from tests.cli import QUIET, call, places
from tests.configurations import checked

BAG = 0.5  # of knowing which nouns there are: wind and price tell two classes of four each
MARGIN = 0.15


def trained(tmp_path, *words: str):
    result = call(
        "task=document_classification_toy", "optim.lr=0.03", "trainer.max_epochs=1", "task.data.sizes.train=1000",
        *words, *QUIET, *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    return result


@pytest.mark.parametrize("geometry", [pytest.param("euclidean", marks=pytest.mark.long), "hype_han"])
def test_the_sentence_that_counts_is_learnt(tmp_path, geometry):
    result = trained(tmp_path, "encoder=han", f"geometry={geometry}")
    assert result.record["metrics"]["test/accuracy"] >= BAG + MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("geometry", sorted({*GEOMETRIES} - {"euclidean"}))
def test_it_is_learnt_in_each_geometry(tmp_path, geometry):
    result = trained(tmp_path, "encoder=han", f"geometry={geometry}", "trainer.max_epochs=3")
    assert result.record["metrics"]["test/accuracy"] >= BAG + MARGIN


@pytest.mark.long
@pytest.mark.parametrize("name", ["hype_han_arxiv_han", "hype_han_arxiv_hype_han"])
def test_states_of_the_study_of_abstracts_have_three_dimensions(name):
    values = checked(f"experiment={name}")
    directions = [
        f"encoder.{level}.bidirectional={values['encoder'][level]['bidirectional']}" for level in ("words", "sentences")
    ]
    size = f"task.d_hidden={values['task']['model']['d_hidden']}"
    toy = ("task=document_classification_toy", "encoder=han", f"geometry={values['geometry']['name']}")
    task, data = build(checked(*toy, size, *directions, "task.data.sizes={train: 40, dev: 8, test: 8}"))
    batch = data.splits()["test"][torch.arange(4)]
    documents, trace = task.model.encode(batch["words"], batch["lengths"], batch["sentences"])
    assert documents.shape == (4, 3)
    assert {trace.space.intrinsic_dim(x.shape[-1]) for x in (trace.words, trace.sentences, trace.documents)} == {3}


def test_a_linear_baseline_is_solved_kept_and_predicts(tmp_path):
    result = trained(tmp_path, "task/model=bag_of_words", "task.model.ngrams=2", "task.model.buckets=100")
    assert result.record["metrics"]["test/accuracy"] >= BAG + MARGIN
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "one.txt").write_text(
        "The door opens near the road. The wind rises near the river.", encoding="utf-8"
    )
    target = tmp_path / "labels.jsonl"
    words = ("mode=predict", f"checkpoint={result.record_path.parent}", f"input={tmp_path / 'new'}", f"output={target}")
    again = call(*words, *places(tmp_path))
    assert again.code == 0, again.err
    (line,) = map(json.loads, target.read_text("utf-8").splitlines())
    assert (line["file"], line["label"]) == ("one.txt", "storm")
    assert sum(line["probabilities"].values()) == pytest.approx(1, abs=1e-5)
