"""Splits, batches and the cache of documents; new documents; what a record says of the data."""

import gzip

import pytest
import torch

from tasks.document_classification.data import DocumentData
from tasks.document_classification.sources import Form
from tasks.errors import UserError
from tasks.text import PAD, UNK
from tasks.word_vectors import VectorFiles
from tests.tasks.document_classification.files import SETTINGS, TEST, TRAIN, data, folder


def words_of(found: DocumentData, batch) -> list[list[str]]:
    names = ["", "?", *found.prepared().words]
    return [[names[k] for k in row if k != PAD] for row in batch["words"].tolist()]


def test_batches_have_the_sentences_of_their_documents_one_after_the_other(tmp_path):
    found = data(tmp_path)
    split = found.splits()["test"]
    assert split.sizes.tolist() == [2, 8], "the shortest first"
    batch = split[torch.tensor([1, 0])]
    assert words_of(found, batch) == [["shares", "?"], ["?", "?", "?", "?", "?", "."], ["?", "."]]
    assert (batch["sentences"].tolist(), batch["lengths"].tolist(), batch["labels"].tolist()) == (
        [2, 1],
        [2, 6, 2],
        [1, 0],
    )
    assert {value.dtype for value in batch.values()} == {torch.int64}
    assert [len(found.splits()[name]) for name in ("train", "dev", "test")] == [8, 2, 2]
    assert all(batch["words"].shape[0] == batch["sentences"].sum() for batch in found.train_dataloader())


def test_the_cache_gives_what_was_read(tmp_path, monkeypatch):
    first = data(tmp_path)
    arrays = first.prepared().arrays
    monkeypatch.setattr("tasks.document_classification.cache.prepare", None)
    again = data(tmp_path)
    assert all((one == two).all() for one, two in zip(arrays, again.prepared().arrays, strict=True))
    assert again.prepared()[1:] == first.prepared()[1:]
    with pytest.raises(TypeError):  # other settings are prepared anew
        data(tmp_path, max_length=5).prepared()


def test_a_changed_text_is_read_again(tmp_path):
    for text in ("sun", "snow"):
        place = tmp_path / "classes"
        for label in "ab":
            (place / label).mkdir(parents=True, exist_ok=True)
            for k in range(5):
                (place / label / f"{k}.txt").write_text(f"{text} {label} {k}", encoding="utf-8")
        found = data(tmp_path, place, held_out={"dev": 0.2, "test": 0.2})
        assert text in found.prepared().words
    before = found.fingerprint()["sha256"]
    (place / "a" / "0.txt.gz").write_bytes(gzip.compress((place / "a" / "0.txt").read_bytes()))
    (place / "a" / "0.txt").unlink()
    found = data(tmp_path, place, held_out={"dev": 0.2, "test": 0.2})
    assert found.fingerprint()["sha256"] == before
    assert found.fingerprint()["files"] == dict.fromkeys(("train", "dev", "test"), "classes")


def test_other_documents_that_are_held_out_have_another_fingerprint(tmp_path):
    one, same, other = (data(tmp_path, held_out_seed=seed).fingerprint()["sha256"] for seed in (2, 2, 0))
    assert one == same
    assert [split for split in one if one[split] != other[split]] == ["dev"]


def test_a_record_says_what_was_used(tmp_path, capsys):
    found = data(tmp_path, paper_documents=80)
    facts = found.fingerprint()
    assert facts["files"] == {"train": "train.csv", "dev": "train.csv", "test": "test.csv"}
    assert len(set(facts["sha256"].values())) == 3
    assert facts["paper"] == {"documents": 80, "share": 0.1}
    assert facts["counts"]["train"]["documents"] == 8
    assert "8 training documents, 10.0% of the paper's 80." in capsys.readouterr().out
    assert str(tmp_path) not in str(facts)


def test_splits_that_a_file_gives_are_not_held_out(tmp_path, capsys):
    rows = [f"{split},{label},{label} word{k}.\n" for k, split in enumerate(["test", "train"] * 6) for label in "xy"]
    (tmp_path / "mine.csv").write_text("split,label,text\n" + "".join(rows))
    form = Form(None, ["label"], [["text"]], [])
    counts = data(tmp_path, tmp_path / "mine.csv", form=form, held_out={"dev": 0.2, "test": 0.2}).fingerprint()["counts"]
    assert {split: count["documents"] for split, count in counts.items()} == {"train": 10, "dev": 2, "test": 12}
    assert "Held out of train at random, as they are not given: 2 for dev (task.data.held_out)" in capsys.readouterr().out


def test_several_files_of_a_split_are_named_unless_they_were_chosen(tmp_path, capsys):
    place = folder(tmp_path / "news")
    (place / "train_old.csv").write_text('"1","Rain","It snows."\n', encoding="utf-8")
    for files, said in ((None, True), ({"train": "train.csv", "dev": None, "test": "test.csv"}, False)):
        data(tmp_path, place, files=files).prepared()
        assert ("Files of train: train.csv, train_old.csv; task.data.files" in capsys.readouterr().out) == said


def test_what_is_held_out_shared_with_train_or_alone_in_its_class_is_said(tmp_path, capsys):
    test = TEST + '"2","Shares","They rise, he said."\n'
    place = folder(tmp_path / "news", TRAIN.replace('"1"', '"food"').replace('"2"', '"sport"') + '"fodd","","Cheese."\n', test)
    place.joinpath("test.csv").write_text(test.replace('"1"', '"food"').replace('"2"', '"sport"'))
    counts = data(tmp_path, place, held_out={"dev": 0.2}, held_out_seed=2).fingerprint()["counts"]
    said = capsys.readouterr().out
    assert "Held out of train at random, as they are not given: 2 for dev (task.data.held_out); equal texts" in said
    assert "1 of 3 documents of test are in train, too, as the model reads them; they are kept." in said
    assert "Classes with a single document: fodd. Is fodd food?" in said
    assert (counts["dev"]["in_train"], counts["test"]["in_train"]) == (0, 1)
    with pytest.raises(UserError, match=r"the class fodd \(1\) are in dev or test.* another task.data.held_out_seed draws others"):
        data(tmp_path, place, held_out={"dev": 0.2}, held_out_seed=1).prepared()  # its only document is drawn for dev


def test_the_test_set_selects_only_where_it_is_asked_for(tmp_path, capsys):
    found = data(tmp_path, selection="test")
    splits = found.splits()
    assert torch.equal(splits["dev"].rows, splits["test"].rows)
    assert len(splits["train"]) == 10, "nothing is held out"
    assert found.fingerprint()["selection"] == "test"
    assert "The test set selects the best state (task.data.selection=test)" in capsys.readouterr().out
    assert data(tmp_path).fingerprint()["selection"] == "held_out"
    assert "selects" not in capsys.readouterr().out


def test_new_documents_are_lines_objects_or_files(tmp_path, capsys):
    found = data(tmp_path)
    lines = [b"It rains. Shares\n", b"\n", b'{"title": "Shares", "text": "They"}\n']
    inputs = list(found.read_inputs(lines, "new.txt"))
    assert [found.describe(one) for one in inputs] == [{"text": "It rains. Shares"}, {"text": "Shares\nThey"}]
    batch = found.encode(inputs)[torch.arange(2)]
    assert words_of(found, batch) == [["it", "rains", "."], ["shares"], ["shares"], ["they"]]
    assert batch["sentences"].tolist() == [2, 2]
    place = tmp_path / "texts"
    place.mkdir()
    (place / "b.txt").write_text("It\nrains", encoding="utf-8")
    (place / "a.txt").write_text("Zebra", encoding="utf-8")
    inputs = list(found.read_folder(place))
    assert [found.describe(one) for one in inputs] == [
        {"text": "Zebra", "file": "a.txt"},
        {"text": "It\nrains", "file": "b.txt"},
    ]
    for name in ("sea/1.txt", "land/2.txt", "land/.hidden", "land/deeper/3.txt", "land/.git/4.txt"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(name, encoding="utf-8")
    (place / "b.txt").unlink()
    assert [found.describe(one) for one in found.read_folder(place)] == [
        {"text": "Zebra", "file": "a.txt"},
        {"text": "land/2.txt", "file": "land/2.txt"},
        {"text": "land/deeper/3.txt", "file": "land/deeper/3.txt"},
        {"text": "sea/1.txt", "file": "sea/1.txt"},
    ]
    capsys.readouterr()
    assert found.encode(inputs)[torch.tensor([0])]["words"].tolist() == [[UNK]], "no word of it is known"
    assert capsys.readouterr().out == "1 documents have no word that the vocabulary has; the first is 'zebra'\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("new.csv", '\ufefflabel;title;text\n1;Rain;"It; rains\n\ntoday"\n\n3;Shares;They, rise\n'),
        ("new.csv", 'text,id,title\n"It; rains\n\ntoday",7,Rain\n"They, rise",8,Shares\n'),
        ("new.tsv.gz", "title\ttext\nRain\tIt; rains today\nShares\tThey, rise\n"),
    ],
)
def test_new_documents_may_be_a_table_with_or_without_labels(tmp_path, name, content):
    found, path = data(tmp_path), tmp_path / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    rows = found.read_table(path)
    assert rows is not None
    made = list(rows)
    texts = [" ".join(found.describe(one)["text"].split()) for one, _ in made]
    assert texts == ["Rain It; rains today", "Shares They, rise"]
    assert [list(others.values()) for _, others in made] in ([["1"], ["3"]], [["7"], ["8"]], [[], []])


def test_a_file_that_is_no_table_is_read_by_its_lines(tmp_path):
    for name, content in (("a.txt", "title\ttext\nx\ty\n"), ("a.tsv", '{"title": "text"}\n'), ("b.csv", "")):
        (tmp_path / name).write_text(content)
        assert data(tmp_path).read_table(tmp_path / name) is None
    (tmp_path / "a.csv").write_text('comment,id\n"Rain, and\nwind",7\n')
    with pytest.raises(UserError, match=r"a\.csv: its first line, 'comment,id', does not name the columns title, and text\. Name"):
        data(tmp_path).read_table(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("x,y\n,\n", "new.csv, line 3: its text is empty. Expected are rows with title, text, as the first line names"),
        ("x,y,z\n", "new.csv, line 2: it has 3 columns, and the first line has 2"),
        ("", "new.csv has no rows below the names of its columns."),
    ],
)
def test_a_row_of_a_new_table_that_cannot_be_used_is_named(tmp_path, rows, message):
    (tmp_path / "new.csv").write_text(f"title,text\n{rows}")
    with pytest.raises(UserError) as error:
        list(data(tmp_path).read_table(tmp_path / "new.csv"))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [(b'{"title": "x"}', "new.txt, line 1: it has none of the keys text. Each line is the text of a document, or"),
     (b'{"title": "", "text": " "}', "new.txt, line 1: its text is empty"),
     (b"{AP} the film", "a text that begins with { must be in such an object"),
     (b"caf\xe9", "new.txt, line 1: it is not UTF-8 (byte 4)"),
     (b"", "new.txt has no documents")],
)  # fmt: skip
def test_a_new_document_that_cannot_be_used_is_named(tmp_path, line, message):
    with pytest.raises(UserError) as error:
        list(data(tmp_path).read_inputs([line], "new.txt"))
    assert message in str(error.value)


def test_a_folder_of_new_documents_that_cannot_be_used(tmp_path):
    found, place = data(tmp_path), tmp_path / "texts"
    place.mkdir()
    for _ in range(2):
        with pytest.raises(UserError, match="has no files, of which each would be a document"):
            list(found.read_folder(place))
        (place / "sea").mkdir(exist_ok=True)
    (place / "a.txt").write_bytes(b"\xff")
    with pytest.raises(
        UserError, match=r"a\.txt: it is not UTF-8 \(byte 1\); `iconv .*; each file of the folder is the text of a document"
    ):
        list(found.read_folder(place))
    (place / "sea" / "train.csv.gz").write_bytes(b"")
    with pytest.raises(UserError, match=r"train\.csv\.gz is a table of documents, and .* Give tables by their names"):
        list(found.read_folder(place))


def test_words_start_at_their_vectors(tmp_path):
    (tmp_path / "vectors.txt").write_text("rains 1 2\nshares 3 4\n", encoding="utf-8")
    found = data(tmp_path, vectors=VectorFiles(str(tmp_path), ["vectors.txt"], "fail"))
    sizes = found.model_sizes
    vectors, vocabulary = sizes["vectors"], found.prepared().words
    assert sizes["n_words"] == 2 + len(vocabulary) == 2 + len(vectors.matrix)
    assert vectors.matrix[vocabulary.index("shares")].tolist() == [3, 4]
    assert int(vectors.has_row.sum()) == found.fingerprint()["words"]["with_vector"] == 2
    assert found.fingerprint()["sha256"]["vectors"] == vectors.sha256 != ""
    assert (sizes["classes"], sum(sizes["class_counts"])) == (("1", "2"), 8)


def test_a_split_without_documents_is_named(tmp_path):
    with pytest.raises(
        UserError, match=r"There are no documents for dev that can be used; .* task\.data\.held_out\.dev=0\.1"
    ):
        data(tmp_path, held_out={}).prepared()


def test_where_all_documents_are_skipped_the_first_is_named(tmp_path):
    place = folder(tmp_path / "none", test='"2","",""\n"1","",""\n')
    with pytest.raises(UserError, match=r"no documents for test that can be used \(the first .* line 1: its text is empty\);"):
        data(tmp_path, place, on_error="skip").prepared()
    place = folder(tmp_path / "none", train='"2","",""\n"1","",""\n')
    said = r"^Train has no documents that can be used; 2 were skipped, and the first is line 1: its text is empty\.$"
    with pytest.raises(UserError, match=said):
        data(tmp_path, place, on_error="skip").prepared()


def test_a_share_that_holds_nothing_out_is_answered_by_one_that_does(tmp_path):
    place = folder(tmp_path / "few", train='"1","a","b"\n"2","c","d"\n"1","e","f"\n"2","g","h"\n')
    with pytest.raises(
        UserError, match=r"a part of the 4 documents of train for it with task\.data\.held_out\.dev=0\.25\."
    ):
        data(tmp_path, place, held_out={"dev": 0.1}).prepared()
    assert len(data(tmp_path, place, held_out={"dev": 0.25}).splits()["dev"]) == 1


def test_texts_that_are_equal_in_what_is_read_of_them_cannot_be_held_out(tmp_path):
    texts = "".join(f'"{k % 2 + 1}","A title.","One. Two. Three. {k}."\n' for k in range(20))
    with pytest.raises(UserError, match=r"None of the 20 documents of train .* first 3 sentences, which are read \(task\.data\.max_sentences\)"):
        data(tmp_path, folder(tmp_path / "same", train=texts)).prepared()


def test_what_is_cut_is_said(tmp_path, capsys):
    texts = "".join(f'"{k % 2 + 1}","Title {k}.","{"One. Two. Three." * (k < 3)}"\n' for k in range(20))
    found = data(tmp_path, folder(tmp_path / "long", train=texts))
    found.prepared()
    assert "Documents of 3 sentences or more, of which the first 3 are read (task.data.max_sentences): 3." in capsys.readouterr().out
    for _ in found.read_inputs([b"One. Two.\n", b"One. Two. Three. Four.\n"], "new.txt"):
        pass
    said = "note: new.txt: Documents of 3 sentences or more, of which the first 3 are read, as in training: 1\n"
    assert capsys.readouterr().err == said


def test_a_folder_is_needed_and_a_file_for_train(tmp_path):
    with pytest.raises(
        UserError, match=r"task=documents needs a folder with labelled documents, .* data\.dir=my_documents"
    ):
        DocumentData(None, cache=str(tmp_path), **SETTINGS)
    place = folder(tmp_path / "news")
    (place / "train.csv").unlink()
    with pytest.raises(UserError, match=r"There is no file for train in .*news; add one"):
        data(tmp_path, place).prepared()
    with pytest.raises(UserError, match=r"task\.data\.toy needs numbers for train, dev and test in task\.data\.sizes"):
        DocumentData(None, cache="", **SETTINGS | {"toy": {"seed": 0}}).prepared()


def test_a_long_name_of_a_class_is_cut_in_the_remark(tmp_path, capsys):
    place = folder(tmp_path / "news", TRAIN + f'"{"x" * 5000}","","Cheese."\n')
    data(tmp_path, place, held_out={"dev": 0.2}, held_out_seed=2).prepared()
    said = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Classes with a single document: xx"))
    assert len(said) < 200
