"""Splits, batches, vocabularies and the cache of pairs; new sentences; what a record says of the data."""

import pytest
import torch

from tasks.errors import UserError
from tasks.text import PAD, UNK
from tasks.translation.corpus import HeldOut
from tasks.translation.prepared import BOS, EOS
from tests.tasks.translation.files import TRAIN, aligned, data, german


@pytest.fixture
def made(tmp_path):
    """Data of aligned files, in a folder of its own, and other settings."""
    return lambda changes=None, **settings: data(
        aligned(tmp_path / "texts", **(changes or {})), tmp_path / "cache", **settings
    )


def test_batches_are_the_sentences_of_the_files(made):
    few = made()
    source, target = (few.model_sizes[f"{side}_vocabulary"] for side in ("source", "target"))
    for split, lines in (("train", TRAIN), ("test", [*TRAIN[3:5], "a dog runs here !"])):
        pairs = few.splits()[split]
        batch = pairs[torch.arange(len(pairs))]
        assert {value.dtype for value in batch.values()} == {torch.int64}
        for k, number in enumerate(batch["numbers"].tolist()):
            n, m = int(batch["source_lengths"][k]), int(batch["target_lengths"][k])
            assert source.text(batch["source"][k, :n].tolist()) == lines[number]
            assert batch["target"][k, 0] == BOS
            assert batch["labels"][k, m - 1] == EOS
            assert torch.equal(batch["target"][k, 1:m], batch["labels"][k, : m - 1])
            assert target.text(batch["labels"][k].tolist()) == german(lines[number])
            assert (batch["source"][k, n:] == PAD).all()
            assert (batch["target"][k, m:] == PAD).all()
            assert (batch["labels"][k, m:] == PAD).all()
        assert torch.equal(pairs.sizes, torch.stack([batch["source_lengths"], batch["target_lengths"]], 1))
    assert few.splits()["test"].sizes[:, 0].tolist() == [1, 4, 5], "the shortest first"
    assert few.texts("test", "target") == [german(line) for line in [*TRAIN[3:5], "a dog runs here !"]]


@pytest.mark.parametrize("subwords", ["none", "bpe"])
def test_vocabularies_are_of_each_language_or_of_both(made, subwords):
    separate, shared = (made(subwords=subwords, vocabularies=v) for v in ("separate", "shared"))
    vocabularies = [
        d.model_sizes[f"{side}_vocabulary"].pieces for d in (separate, shared) for side in ("source", "target")
    ]
    assert set(vocabularies[0]) != set(vocabularies[1])
    assert vocabularies[2] == vocabularies[3]
    assert set(vocabularies[2]) == set(vocabularies[0]) | set(vocabularies[1])
    names = ("source", "labels")
    texts = [
        [[d.model_sizes[f"{side}_vocabulary"].text(row) for row in d.splits()["train"][torch.arange(6)][name].tolist()]
         for side, name in zip(("source", "target"), names, strict=True)]
        for d in (separate, shared)
    ]  # fmt: skip
    assert texts[0] == texts[1] == [TRAIN, [german(line) for line in TRAIN]]


def test_pieces_are_learnt_of_train_alone(made):
    alone = made(subwords="bpe").model_sizes["source_vocabulary"].pieces
    words = ["zebras gaze"] * 3
    other = made({"test_en": words, "test_de": words, "valid_en": words, "valid_de": words}, subwords="bpe")
    assert other.model_sizes["source_vocabulary"].pieces == alone


def test_the_cache_gives_what_was_read(made, monkeypatch):
    first = made(subwords="bpe")
    first.corpus()
    monkeypatch.setattr("tasks.translation.prepared.prepare", None)
    again = made(subwords="bpe")
    assert all((one == two).all() for one, two in zip(first.corpus().arrays, again.corpus().arrays, strict=True))
    assert again.corpus()[1:] == first.corpus()[1:]
    assert again.identity == first.identity
    for change in ({"pieces": 61}, {"max_length": 3}, {"source": "de", "target": "en"}):
        with pytest.raises(TypeError):  # other settings are prepared anew
            made(subwords="bpe", **change).corpus()
    with pytest.raises(TypeError):
        made({"valid_en": ["a cat", "dog"]}, subwords="bpe").corpus()


def test_other_pieces_are_another_identity(made):
    identities = [
        made(subwords="bpe").identity, made(subwords="bpe", pieces=58).identity, made().identity,
        made(vocabularies="shared").identity, made({"train_en": [*TRAIN[:5], "here runs a cat !"]}).identity,
    ]  # fmt: skip
    assert len({str(identity) for identity in identities}) == 5
    assert set(identities[0]) == {"source pieces", "target pieces", "subwords"}


def test_empty_and_long_sentences_are_counted_and_said(made, capsys):
    english = ["a dog runs", "", "a cat runs", "a dog sleeps !", " ", "here runs a dog !"]
    few = made({"train_en": english, "valid_de": ["", german(TRAIN[2])]}, max_length=4)
    counts = few.corpus().counts
    assert {k: counts["train"][k] for k in ("pairs", "empty", "long")} == {"pairs": 3, "empty": 2, "long": 1}
    assert {k: counts["dev"][k] for k in ("pairs", "empty", "long")} == {"pairs": 1, "empty": 1, "long": 0}
    assert (counts["test"]["pairs"], counts["test"]["long"]) == (3, 1)
    assert few.splits()["test"].sizes.max() == 5, "4 pieces and the end"
    assert few.texts("test", "source")[2] == "a dog runs here !", "references stay whole"
    said = capsys.readouterr().out
    assert "2 pairs of train were left out: a side is empty." in said
    assert "1 pairs of train were left out: a side has more than task.data.max_length=4 pieces." in said
    assert "1 pairs of test were cut: a side has more than" in said


def test_a_sentence_without_pieces_is_empty_or_the_unknown_piece(made):
    blank = "\N{LOWER ONE EIGHTH BLOCK}"  # of which SentencePiece makes nothing, as it is its own mark of a blank
    few = made({"train_en": [blank, *TRAIN[1:]], "test_de": [*map(german, TRAIN[3:5]), blank]}, subwords="bpe")
    assert [few.corpus().counts[split]["empty"] for split in ("train", "dev", "test")] == [1, 0, 1]
    assert all(split.sizes.min() > 0 for split in few.splits().values())
    assert few.encode([blank, "a"])[torch.arange(2)]["source"].tolist()[0] == [UNK]


def test_a_split_without_pairs_is_an_error(made):
    with pytest.raises(UserError, match=r"no pair of sentences for dev in valid\.en and valid\.de"):
        made({"valid_en": ["", ""]}).corpus()


def test_pairs_that_are_held_out_are_counted(tmp_path, capsys):
    lines = [f"a dog{k} runs" for k in range(60)]
    folder = aligned(tmp_path / "texts", train_en=lines, train_de=lines)
    for file in folder.glob("test.*"):
        file.unlink()
    facts = data(folder, tmp_path / "cache").fingerprint()
    n = facts["counts"]["test"]["pairs"]
    assert 0 < n < 60
    other = data(folder, tmp_path / "cache", held_out=HeldOut({"dev": 0.1, "test": 0.2}, "en")).fingerprint()["sha256"]
    assert [split for split in other if other[split] != facts["sha256"][split]] == ["test"]
    assert f"There are no pairs for test: {n} pairs of train are held out for it (task.data.held_out)." in capsys.readouterr().out


def test_characters_outside_of_the_vocabulary_are_the_unknown_piece(made, capsys):
    for subwords in ("none", "bpe"):
        few = made(subwords=subwords)
        split = few.encode(list(few.read_inputs([b"a dog runs\n", "a ☃ dog\n".encode()], "lines")))
        batch = split[torch.arange(2)]
        assert batch["source_lengths"][0] == 3
        assert UNK not in batch["source"][0].tolist()
        assert UNK in batch["source"][1].tolist()
        assert "<unk>" in few.model_sizes["source_vocabulary"].text(batch["source"][1].tolist())
        said = "1 sentences have pieces that the vocabulary does not have; the first is 'a ☃ dog'\n"
        assert capsys.readouterr().out.endswith(said)
        few.encode(["a dog", "a cat"])
        few.encode(["☃" * 3000, "☃"])
        assert capsys.readouterr().out.endswith(
            "2 sentences have pieces that the vocabulary does not have; the first is '" + "☃" * 200 + "'\n"
        )


@pytest.mark.parametrize("vocabularies", ["separate", "shared"])
def test_pieces_of_dev_and_test_that_train_has_not_are_counted(made, vocabularies):
    """With shared vocabularies a German sentence may have "dog"."""
    changes = {"valid_en": ["a ☃ ☂ dog", "a cat"], "test_de": ["☃ hund", "eine katze !", "ein dog"]}
    counts = made(changes, vocabularies=vocabularies).fingerprint()["counts"]
    unknown = {split: [counts[split][f"{side}_unknown"] for side in ("source", "target")] for split in ("dev", "test")}
    assert unknown == {"dev": [2, 0], "test": [0, 2 if vocabularies == "shared" else 3]}
    assert counts["dev"]["source_pieces"] == 6


def test_new_sentences_are_cut_and_blank_ones_refused(made, capsys):
    few = made(max_length=3)
    assert few.encode(["a dog runs here", "a"]).sources.lengths.tolist() == [3, 1]
    assert "1 sentences were cut to task.data.max_length=3 pieces." in capsys.readouterr().out
    assert few.describe("a dog") == {"source": "a dog"}
    with pytest.raises(UserError, match=r"lines, line 2: it is not UTF-8 .*Each line is a sentence to translate"):
        list(few.read_inputs([b"a\n", b"\xff\n"], "lines"))
    assert [*few.read_inputs([b'{"EN": " a dog\\nruns"}\n'], "lines")] == ["a dog runs"]
    with pytest.raises(UserError, match="lines, line 1: it is blank"):
        list(few.read_inputs([b'{"en": " \\n"}\n'], "lines"))


def test_a_record_says_what_was_used(made, capsys):
    facts = made(paper_pairs=60).fingerprint()
    assert facts["files"] == {"train": "train.en + train.de", "dev": "valid.en + valid.de", "test": "test.en + test.de"}
    assert facts["counts"]["train"] == {"pairs": 6, "empty": 0, "long": 0, "source_pieces": 21, "target_pieces": 21}
    assert facts["languages"] == ["en", "de"]
    assert facts["paper"] == {"pairs": 60, "share": 0.1}
    said = capsys.readouterr().out
    assert "6 training pairs, 10.0% of the paper's 60." in said
    assert "2 of 3 pairs of test are in train, too; they are kept." in said
    assert len(set(facts["sha256"].values())) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": "en"}, "task.data.source and task.data.target are both 'en'"),
        ({"source": "fr"}, "task.data.held_out.language='en' must be 'fr' or 'de'"),
        ({"subwords": "words"}, "task.data.subwords must be one of"),
        ({"vocabularies": "joint"}, "task.data.vocabularies must be one of separate, shared"),
        ({"max_length": 0}, "task.data.max_length must be a whole number of at least 1"),
    ],
)
def test_settings_that_do_not_fit_are_told(made, changes, said):
    with pytest.raises(UserError) as caught:
        made(**changes)
    assert said in str(caught.value)


@pytest.mark.data
def test_multi30k_has_its_published_sizes(data_dir, tmp_path):
    files = {"train": ["train.lc.norm.tok"], "dev": ["val.lc.norm.tok"], "test": ["test_2016_flickr.lc.norm.tok"]}
    corpus = data(data_dir / "multi30k" / "tok", tmp_path, files=files, max_length=100).corpus()
    assert {split: counts["pairs"] for split, counts in corpus.counts.items()} == {
        "train": 29000, "dev": 1014, "test": 1000,
    }  # fmt: skip
