"""NLI data: splits, batches, groups and texts; settings that cannot be; the counts of the real files."""

import itertools
from dataclasses import replace

import pytest
import torch

import run
from configs import checks, composing
from tasks.batches import SPLITS
from tasks.errors import UserError
from tasks.fingerprints import other_parts
from tasks.nli.data import NliData
from tasks.text import PAD, UNK
from tasks.word_vectors import VectorFiles
from tests.tasks.nli.files import ROWS, SETTINGS, folder, lines


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


def make(tmp_path, content=None, **changes) -> NliData:
    place = folder(tmp_path / "pairs", **(content or {}))
    return NliData(**{"folder": str(place), "cache": str(tmp_path / "cache"), **SETTINGS, **changes})


def test_batches_are_as_wide_as_their_longest_sentence(tmp_path):
    data = make(tmp_path)
    split = data.splits()["train"]
    assert len(split) == 3
    assert split.lengths.tolist() == [[4, 4, 4], [4, 5, 4]]
    assert split.sizes.tolist() == [4, 5, 4]
    batch = split[torch.tensor([2, 1])]
    names = ["<pad>", "<unk>", *data.prepared().words]
    words = [[[names[w] for w in sentence] for sentence in side] for side in batch["words"].tolist()]
    assert words[0] == [["a", "dog", "runs", ".", "<pad>"]] * 2
    assert words[1] == [["a", "dog", "sleeps", ".", "<pad>"], ["a", "dog", "runs", "home", "."]]
    assert batch["labels"].tolist() == [0, 0]
    assert batch["lengths"].tolist() == [[4, 4], [4, 5]]
    assert {value.dtype for value in batch.values()} == {torch.int64}
    assert split[torch.tensor([0])]["words"].shape == (2, 1, 4)


def test_the_texts_of_a_split_are_those_of_its_file(tmp_path):
    data = make(tmp_path, {"dev": lines(ROWS[3:] + ROWS[1:2])})
    assert data.texts("dev", 0) == ROWS[1][1:]
    assert [data.texts("train", k) for k in range(3)] == [row[1:] for row in ROWS[:3]]
    assert [data.texts("test", k) for k in range(3)] == [ROWS[k][1:] for k in (0, 2, 1)], "the shortest first"
    split = data.splits()["test"]
    assert split.sizes.tolist() == [4, 4, 5]
    assert split.labels.tolist() == [1, 0, 0]


def test_sizes_and_names_for_the_model(tmp_path):
    data = make(tmp_path)
    sizes = data.model_sizes
    assert sizes["n_words"] == 2 + len({"a", "dog", "runs", ".", "an", "animal", "moves", "home", "sleeps"})
    assert (sizes["n_classes"], sizes["classes"], data.labels) == (2, ("other", "entailment"), ("other", "entailment"))
    assert sizes["groups"] == ((),)


def test_groups_are_the_parts_and_the_genres(tmp_path):
    content = {
        "test_matched": lines(ROWS[:1], genre="fiction") + lines(ROWS[1:2]),
        "test_mismatched": lines(ROWS[:2], genre="face to/face"),
    }
    data = make(tmp_path, content)
    (tmp_path / "pairs" / "test.jsonl").unlink()
    assert data.groups == ((), ("matched", "fiction"), ("matched",), ("mismatched", "face_to_face"))
    facts = [tuple(facts.get(name) for name in ("gold", "part", "genre")) for _, facts in data.test_inputs()]
    expected = {("entailment", "matched", "fiction"), ("entailment", "mismatched", "face to/face")}
    assert expected | {("other", "matched", None)} <= set(facts)
    split = data.splits()["test"]
    assert list(zip(split.groups.tolist(), split.sizes.tolist(), strict=True)) == [(1, 4), (3, 4), (2, 5), (3, 5)]


def test_the_groups_of_dev_are_those_of_its_pairs(tmp_path):
    content = {"dev_matched": lines(ROWS[:3], genre="fiction"), "test": lines(ROWS[:2], genre="letters")}
    data = make(tmp_path, content)
    (tmp_path / "pairs" / "dev.jsonl").unlink()
    assert data.groups == ((), ("matched", "fiction"), ("letters",))
    assert data.model_sizes["dev_groups"] == (1,)


def test_a_file_of_vectors_that_was_named_has_to_be_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = VectorFiles(str(tmp_path / "data"), ["my.txt"], "fail", required=False)
    with pytest.raises(UserError, match=r"There are no word vectors: none of .*my\.txt exists .* Fetch some with"):
        _ = make(tmp_path, vectors=source).model_sizes
    (tmp_path / "my.txt").write_text("dog 1 2\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"There is my\.txt in the folder you are in: name it by its whole path, as in .*/my\.txt"):
        _ = make(tmp_path, vectors=source).model_sizes


def test_words_have_vectors_where_there_is_a_file(tmp_path, capsys):
    source = VectorFiles(str(tmp_path), ["glove/*.txt"], "fail", required=False)
    assert make(tmp_path, vectors=source).model_sizes["vectors"] is None
    assert "Words start at random, unless a checkpoint has them. There are no word vectors" in capsys.readouterr().out
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "some.txt").write_text("dog 1 2\nhome 3 4\n", encoding="utf-8")
    data = make(tmp_path, vectors=source)
    vectors, words = data.model_sizes["vectors"], data.prepared().words
    assert vectors.matrix[words.index("home")].tolist() == [3, 4]
    facts = data.fingerprint()["words"]
    assert (facts["dimension"], facts["with_vector"], facts["vectors"]) == (2, 2, "some.txt")
    assert f"some.txt has a vector for 2 of the {len(words)} words; the others start at random" in capsys.readouterr().out
    half = "\n".join(f"{word} 1 2" for word in words[: len(words) // 2 + 1])
    (tmp_path / "glove" / "some.txt").write_text(half, encoding="utf-8")
    assert make(tmp_path, vectors=source).model_sizes["vectors"] is not None
    assert "start at random" not in capsys.readouterr().out
    (tmp_path / "glove" / "some.txt").write_text("dog 1 2\nhome 3 4\n", encoding="utf-8")
    before = data.fingerprint()["sha256"]
    (tmp_path / "glove" / "some.txt").write_text("dog 1 2\nhome 3 5\n", encoding="utf-8")
    assert [*other_parts(before, make(tmp_path, vectors=source).fingerprint()["sha256"])] == ["vectors"]
    (tmp_path / "glove" / "some.txt").write_text("Hund 1 2\n", encoding="utf-8")
    capsys.readouterr()
    assert make(tmp_path, vectors=source).model_sizes["vectors"] is None
    assert "Words start at random, unless a checkpoint has them. some.txt has a vector for none of the" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"some\.txt has a vector for none of the .* task\.data\.vectors=null"):
        _ = make(tmp_path, vectors=replace(source, required=True)).model_sizes


@pytest.mark.parametrize(("fidelity", "dev"), [("paper", None), ("code", "multinli_1.0_dev_matched")])
def test_one_file_of_multinli_is_exchanged_alone(fidelity, dev):
    words = ("task=multinli", f"fidelity={fidelity}", "task.data.files.test.matched=mine")
    files = checks.check(composing.composed(*words))["task"]["data"]["files"]
    assert files == {
        "train": {"all": "multinli_1.0_train"}, "dev": {"all": None, "matched": dev},
        "test": {"all": None, "matched": "mine", "mismatched": "multinli_1.0_dev_mismatched"},
    }  # fmt: skip


def test_too_many_genres_make_no_groups(tmp_path):
    data = make(tmp_path, {"test": "".join(lines(ROWS[:1], genre=f"g{k}") for k in range(30))})
    assert set(data.groups) == {()}


def test_the_record_counts_every_line(tmp_path):
    data = make(tmp_path, {"dev": lines((*ROWS, ("what", "A", "b")))}, on_error="skip", max_length=4, paper_pairs=30)
    record = data.fingerprint()
    assert record["counts"]["dev"] == {
        "pairs": 3, "unlabelled": 1, "skipped": 1, "cut": 1, "words": 24, "unknown": 0,
        "labels": {"other": 2, "entailment": 1},
        "in_train": 3,
    }  # fmt: skip
    assert record["files"] == {"train": "train.jsonl", "dev": "dev.jsonl", "test": "test.jsonl"}
    assert record["sha256"]["train"] == record["sha256"]["test"] != record["sha256"]["dev"]
    assert record["paper"] == {"pairs": 30, "share": 0.1}


@pytest.mark.parametrize(("pairs", "message"), [(4, "3 training pairs, 75.0% of the paper's 4."), (3, ""), (None, "")])
def test_a_part_of_the_papers_pairs_is_reported(tmp_path, capsys, pairs, message):
    make(tmp_path, paper_pairs=pairs).prepared()
    shared = [f"3 of 3 pairs of {split} are in train, too, as the model reads them; they are kept." for split in ("dev", "test")]
    assert capsys.readouterr().out.splitlines() == [*shared, *filter(None, [message])]


def test_what_was_skipped_is_reported(tmp_path, capsys):
    make(tmp_path, {"dev": lines((*ROWS, ("what", "A", "b")))}, on_error="skip").prepared()
    assert "1 lines of dev were skipped; the first is line 5: the label 'what'" in capsys.readouterr().out


def test_several_files_of_a_split_are_named(tmp_path, capsys):
    make(tmp_path).prepared()
    assert "Files of" not in capsys.readouterr().out
    place = tmp_path / "pairs"
    train = next(path for path in place.iterdir() if "train" in path.name)
    (place / f"old_{train.name}").write_bytes(train.read_bytes())
    make(tmp_path).prepared()
    assert f"Files of train: old_{train.name}, {train.name}; task.data.files" in capsys.readouterr().out


def test_a_part_of_train_is_dev_where_there_is_no_file(tmp_path):
    train = lines(tuple(("neutral", f"Premise {k}.", "b") for k in range(300)) + ROWS)
    data = make(tmp_path, {"train": train}, held_out=0.1)
    assert len(data.splits()["dev"]) == 3, "the file is there"
    (tmp_path / "pairs" / "dev.jsonl").unlink()
    with pytest.raises(UserError, match=r"has no pairs for dev; .* task\.data\.held_out=0\.1"):
        made_without(tmp_path).splits()
    data = made_without(tmp_path, held_out=0.1)
    assert 10 < len(data.splits()["dev"]) < 60
    assert len(data.splits()["dev"]) + len(data.splits()["train"]) == 303
    assert data.fingerprint()["files"]["dev"] == "train.jsonl"
    shas = [made_without(tmp_path, held_out=0.1, held_out_seed=seed).fingerprint()["sha256"] for seed in (0, 1)]
    assert shas[0] == data.fingerprint()["sha256"]
    assert [split for split in shas[0] if shas[0][split] != shas[1][split]] == ["dev"]


def test_one_file_is_split_by_its_premises(tmp_path, capsys):
    file = tmp_path / "pairs" / "mine.jsonl"
    file.parent.mkdir()
    pairs = [(label, f"Premise {k}.", "b") for k in range(300) for label in ("neutral", "entailment")]
    file.write_text(lines(pairs))
    both = [made_without(tmp_path, folder=str(place), held_out=0.1) for place in (file, file.parent)]
    data, again = both
    premises = [{data.texts(split, k)[0] for k in range(len(data.rows(split)))} for split in SPLITS]
    assert [len(each & other) for each, other in itertools.combinations(premises, 2)] == [0, 0, 0]
    assert sum(map(len, premises)) == 300
    assert all(10 < len(each) < 60 for each in premises[1:])
    said = f"Held out of train at random, as they are not given: {2 * len(premises[1])} for dev and {2 * len(premises[2])} for test"
    assert said in capsys.readouterr().out
    assert again.fingerprint()["sha256"] == data.fingerprint()["sha256"]
    assert len(set(data.fingerprint()["sha256"].values())) == 3
    file.with_name("dev.jsonl").write_text(lines(pairs[:4]))
    file.rename(file.with_name("train.jsonl"))
    with_dev = made_without(tmp_path, held_out=0.1)
    assert len(with_dev.rows("dev")) == 4
    assert {with_dev.texts("test", k)[0] for k in range(len(with_dev.rows("test")))} == premises[1], "the first part"


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.csv"])
def test_a_column_says_which_pairs_are_of_which_split(tmp_path, capsys, name):
    file = tmp_path / name
    splits = ["test", "Train", "", "valid", "train", "train"]
    rows = [("neutral" if k % 2 else "entailment", f"Premise {k}.", "b", split) for k, split in enumerate(splits)]
    if name.endswith(".csv"):
        file.write_text("Split,label,premise,hypothesis\n" + "".join(f"{s},{label},{a},{b}\n" for label, a, b, s in rows))
    else:
        file.write_text("".join(lines([row], split=split) for *row, split in rows))
    data = made_without(tmp_path, folder=str(file), held_out=0.1)
    with pytest.warns(UserWarning, match=f"{name}: 1 pairs have no split and are left out"):
        data.splits()
    texts = {split: {data.texts(split, k)[0] for k in range(len(data.rows(split)))} for split in SPLITS}
    assert texts == {"train": {"Premise 1.", "Premise 4.", "Premise 5."}, "dev": {"Premise 3."}, "test": {"Premise 0."}}
    assert "Held out" not in capsys.readouterr().out
    assert len(set(data.fingerprint()["sha256"].values())) == 3
    file.write_text(file.read_text().replace("valid", "trian"))
    with pytest.raises(UserError, match=rf"{name}, line \d: 'trian' is no split; write train, dev or test"):
        made_without(tmp_path, folder=str(file), held_out=0.1).splits()


def test_what_a_column_of_splits_lacks_is_held_out(tmp_path):
    file = tmp_path / "mine.jsonl"
    pairs = [(label, f"Premise {k}.", "b") for k in range(200) for label in ("neutral", "entailment")]
    file.write_text(lines(pairs, split="train") + lines([("neutral", "Premise x.", "b")], split="test"))
    data = made_without(tmp_path, folder=str(file), held_out=0.1)
    assert len(data.rows("test")) == 1
    assert len(data.rows("train")) + len(data.rows("dev")) == 400
    assert data.prepared().counts["dev"]["held_out"] == len(data.rows("dev")) > 10
    with pytest.raises(UserError, match=r"mine\.jsonl has no pairs for dev; add some, or keep a part .*\(it is 0\)"):
        made_without(tmp_path, folder=str(file)).splits()
    file.write_text(lines(pairs))
    with pytest.raises(UserError, match=r"no pairs for dev and test; .*\(it is 0\.5\)"):
        made_without(tmp_path, folder=str(file), held_out=0.5).splits()


def made_without(tmp_path, **changes) -> NliData:
    return NliData(**{"folder": str(tmp_path / "pairs"), "cache": str(tmp_path / "cache"), **SETTINGS, **changes})


def test_other_words_or_labels_are_another_identity(tmp_path):
    first = make(tmp_path).identity
    assert first["labels"] == "other, entailment"
    assert make(tmp_path, lower=False).identity["words"] != first["words"]
    assert make(tmp_path, classes=None).identity["labels"] == "contradiction, entailment, neutral"


def test_new_pairs_without_any_known_word_are_said(tmp_path, capsys):
    data = make(tmp_path)
    inputs = list(data.read_inputs([b"A dog runs.\tXyz\n", b"Qwerty\tXyz\n"], "in"))
    capsys.readouterr()
    data.encode(inputs)
    assert "1 pairs have no word that the vocabulary has; the first is 'Qwerty'\n" in capsys.readouterr().out


def test_new_pairs_are_encoded_as_those_of_the_files(tmp_path):
    data = make(tmp_path, max_length=4)
    inputs = list(data.read_inputs([b"A dog runs.\tA DOG runs home.\n", b"Cats.\tA dog sleeps.\n"], "in"))
    batch = data.encode(inputs)[torch.arange(2)]
    split = data.splits()["train"][torch.tensor([1, 2])]
    assert batch["tokens"] == [["a", "dog", "runs", "."], ["cats", "."]]
    assert batch["words"][1].tolist() == split["words"][1].tolist()
    assert batch["words"][0, 0].tolist() == split["words"][0, 0].tolist()
    assert batch["words"][0, 1].tolist() == [UNK, split["words"][0, 1, 3].item(), PAD, PAD]
    assert batch["lengths"].tolist() == [[4, 2], [4, 4]]
    assert data.describe(inputs[1]) == {"premise": "Cats.", "hypothesis": "A dog sleeps."}


def test_the_made_up_pairs_are_the_same_for_the_same_seed(tmp_path):
    toy = {"folder": None, "classes": None, "sizes": {"train": 50, "dev": 20, "test": 20}}
    first, again, other = (make(tmp_path, **toy, toy={"seed": seed}) for seed in (0, 0, 1))
    assert first.texts("train", 3) == again.texts("train", 3)
    assert first.fingerprint() == again.fingerprint()
    assert first.fingerprint()["sha256"] != other.fingerprint()["sha256"]
    assert first.labels == ("contradiction", "entailment", "neutral")
    assert {name for names in first.groups for name in names} == {"road", "field"}
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folder": None}, r"task=nli needs a folder .* data\.dir=my_pairs"),
        ({"tokenizer": "word"}, r"task\.data\.tokenizer must be one of words, letters"),
        ({"vocabulary": "dev"}, r"task\.data\.vocabulary must be one of train, all"),
        ({"min_count": 0}, r"task\.data\.min_count"),
        ({"max_length": 0}, r"task\.data\.max_length"),
        ({"held_out": 1.0}, r"task\.data\.held_out must be at least 0 and less than 1"),
        ({"on_error": "stop"}, r"task\.data\.on_error must be one of fail, skip"),
        ({"sizes": {"train": 0}}, r"task\.data\.sizes\.train must be a whole number of at least 1"),
        ({"sizes": {"valid": 5}}, r"task\.data\.sizes\.valid: the splits are train, dev, test"),
        ({"files": {"valid": {"all": "x"}}}, r"task\.data\.files\.valid: the splits are train, dev, test"),
        ({"classes": {"a": ["x"]}}, r"task\.data\.classes needs at least two classes"),
        ({"classes": {"a": ["x"], "b": ["x"]}}, r"task\.data\.classes needs .* no other has"),
        ({"classes": {"a": ["x"], "b": []}}, r"task\.data\.classes needs .* one or more labels"),
        ({"shuffle": "words"}, r"task\.data\.shuffle must be one of examples, batches, buckets"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        make(tmp_path, **change)


def test_files_without_train_are_named(tmp_path):
    with pytest.raises(UserError, match=r"task\.data\.files names no file for train"):
        make(tmp_path, files={"test": {"all": "test"}, "dev": {"all": "dev"}}).splits()


def real(data_dir, tmp_path, *words: str) -> NliData:
    words = (*words, f"paths.data_dir={data_dir}", f"paths.output_dir={tmp_path}")
    return run.make(checks.check(composing.composed(*words))["task"]["data"])


def counts(data: NliData, split: str) -> tuple[int, ...]:
    record = data.fingerprint()["counts"][split]
    assert record["unlabelled"] == record["skipped"] == 0
    return record["pairs"], *record["labels"].values()


@pytest.mark.long
@pytest.mark.data
@pytest.mark.parametrize("fidelity", ["paper", "code"])
def test_snli_in_two_classes_has_the_counts_of_the_release(data_dir, tmp_path, fidelity):
    data = real(data_dir, tmp_path, "task=snli", f"fidelity={fidelity}", "task.data.sizes.train=5000")
    assert data.labels == ("not_entailment", "entailment")
    assert counts(data, "dev") == (9842, 6513, 3329)
    assert counts(data, "test") == (9824, 6456, 3368)
    unknown = data.fingerprint()["counts"]["test"]["unknown"]
    assert unknown == 0 if fidelity == "code" else 0 < unknown < 20_000
    assert data.fingerprint()["paper"] == {"pairs": 549_367, "share": 5000 / 549_367}


@pytest.mark.data
def test_snli_in_three_classes(data_dir, tmp_path):
    data = real(data_dir, tmp_path, "task=snli", "task.labels=3", "task.data.sizes.train=1000")
    assert data.labels == ("entailment", "neutral", "contradiction")
    assert counts(data, "test") == (9824, 3368, 3219, 3237)
    texts = [data.texts("test", k) for k in range(9824)]
    church = next(k for k, (_, hypothesis) in enumerate(texts) if hypothesis == "The church is filled with song.")
    assert data.labels[data.splits()["test"].labels[church]] == "entailment"


@pytest.mark.long
@pytest.mark.data
def test_multinli_by_the_report_tests_on_both_dev_sets(data_dir, tmp_path):
    data = real(data_dir, tmp_path, "task=multinli")
    train, dev = (data.fingerprint()["counts"][split]["pairs"] for split in ("train", "dev"))
    assert dev / (train + dev) == pytest.approx(0.1, abs=0.02)
    assert counts(data, "test") == (9815 + 9832, 3506 + 3492, 3042 + 3075, 3267 + 3265)
    parts = [data.groups[k][0] for k in data.splits()["test"].groups.tolist()]
    assert (parts.count("matched"), parts.count("mismatched")) == (9815, 9832)
    assert max(data.splits()["train"].sizes.tolist()) <= 100
    training = {data.texts("train", k)[0] for k in range(train)}
    assert not training & {data.texts("dev", k)[0] for k in range(dev)}


@pytest.mark.long
@pytest.mark.data
def test_multinli_by_the_code_chooses_on_matched_and_tests_on_mismatched(data_dir, tmp_path):
    words = ("fidelity=code", "task.data.tokenizer=words", "task.data.sizes.train=1000")
    data = real(data_dir, tmp_path, "task=multinli", *words)
    assert [counts(data, split)[0] for split in ("dev", "test")] == [9815, 9832]
