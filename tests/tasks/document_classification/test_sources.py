"""Documents are found and read in every form; what is wrong is named with its file and line."""

import gzip
import json
import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from tasks.document_classification.sources import Form, find_sources, named_sources, read_rows
from tasks.errors import UserError
from tasks.reading import TO_UTF8, Fault
from tests.tasks.document_classification.files import folder

ZHANG = Form(["label", "title", "text"], ["label"], [["title"], ["text"]], [])
NAMED = Form(None, ["label", "topic"], [["text", "abstract"]], ["title"])


def rows(place, form=NAMED):
    documents = []
    for split, where, document in read_rows(find_sources(place), form):
        documents.append(
            (split, *document) if not isinstance(document, Fault) else (where.rpartition("/")[2], str(document))
        )
    return documents


def test_a_release_of_zhang_is_read_by_its_columns(tmp_path):
    documents = rows(folder(tmp_path, train='"1","A ""b""","x, y\ny2"\n"2","","z"\n', test="3,c,d\n"), ZHANG)
    assert documents == [("train", "1", ('A "b"', "x, y\ny2")), ("train", "2", ("", "z")), ("test", "3", ("c", "d"))]


def test_json_lines_and_tables_are_read_by_their_names(tmp_path):
    text = "".join(json.dumps({"topic": k, "abstract": f"text {k}", "title": "T"}) + "\n" for k in (4, 5))
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "validation.tsv").write_text("text\tlabel\none\ta\n", encoding="utf-8")
    (tmp_path / "test.csv").write_text("label,text,more\nb,two,3\n", encoding="utf-8")
    assert rows(tmp_path) == [
        ("train", "4", ("T", "text 4")), ("train", "5", ("T", "text 5")), ("dev", "a", ("", "one")), ("test", "b", ("", "two")),
    ]  # fmt: skip


def test_a_folder_for_each_class(tmp_path):
    for name, text in (
        ("sea/1.txt", "waves\nblue"),
        ("land/b.txt", "trees"),
        ("land/.hidden", "x"),
        ("land/a", "hills"),
        ("land/far/away/c.txt", "isles"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    texts = [("land", "hills"), ("land", "trees"), ("land", "isles"), ("sea", "waves\nblue")]
    assert rows(tmp_path) == [("train", label, (text,)) for label, text in texts]
    (tmp_path / "whole").mkdir()
    for split in ("test", "train"):
        (tmp_path / "whole" / split / "sea").mkdir(parents=True)
        (tmp_path / "whole" / split / "sea" / "1").write_bytes(b"w\xe9" if split == "test" else b"w")
    assert rows(tmp_path / "whole") == [("train", "sea", ("w",)), ("1", f"it is not UTF-8 (byte 2); {TO_UTF8}")]


def test_a_class_may_have_the_name_of_a_split(tmp_path):
    for name in ("train", "bus", "car"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text(f"by {name}", encoding="utf-8")
    assert rows(tmp_path) == [("train", name, (f"by {name}",)) for name in ("bus", "car", "train")]


def test_one_file_is_train(tmp_path):
    (tmp_path / "abstracts.jsonl").write_text('{"label": "a", "text": "x"}\n', encoding="utf-8")
    assert rows(tmp_path) == rows(tmp_path / "abstracts.jsonl") == [("train", "a", ("", "x"))]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('"1","a"', "it has 2 columns, and 3 are expected (label, title, text)"),
        ('"1","a","b","c"', "it has 4 columns, and 3 are expected (label, title, text)"),
        ('"1","a"b,"c"', "it is no row of a table with quotes ("),
        ('"1","a","b\n2,c,d', "a quote in it is not closed, so that it takes in all lines to 3 ("),
    ],
)
def test_a_row_with_other_columns_is_named_by_its_line(tmp_path, line, fault):
    documents = rows(folder(tmp_path, train=f'"1","x","y"\n{line}\n'), ZHANG)
    assert documents[0] == ("train", "1", ("x", "y"))
    assert documents[1][0] == "train.csv, line 2"
    assert documents[1][1].startswith(fault)


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path):
    folder(tmp_path)
    (tmp_path / "train.csv").write_bytes(b'"1","x","y"\n"1","caf\xe9","y"\n')
    assert rows(tmp_path, ZHANG)[1] == ("train.csv, line 2", f"it is not UTF-8 (byte 9); {TO_UTF8}")


def test_a_table_without_names_says_how_to_name_its_columns(tmp_path):
    with pytest.raises(UserError) as caught:
        rows(folder(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path / 'train.csv'}: its first line has no column label (it has 1, Rain, It rains. The road is wet.). "
        'Expected are JSON lines {"label": "...", "text": "..."}, or a table of columns label, text. Where the first line '
        "is a document, add 'task.data.form.header=[label,title,text]'."
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Kategorie,Beschreibung\na,ein Text\nb,ein anderer\na,der\n",
         ["task.data.form.label=[Kategorie]", "task.data.form.texts=[[Beschreibung]]", "task.data.form.header=[label,text]"]),
        ("Nr;Text auf Deutsch;Größe\n1;ein Text;klein\n2;ein anderer;groß\n3;der;klein\n",
         ['task.data.form.label=["Größe"]', 'task.data.form.texts=[["Text auf Deutsch"]]', "task.data.form.header=[title,text,label]"]),
        ("label,summary,title\na,a text,x\n", ["task.data.form.texts=[[summary]]"]),
        ("lang,null,text\nde,a,a text\nde,b,another\n", ['task.data.form.label=["null"]']),
        ("id,split,stars,review\n1,train,ein,ein Text\n2,dev,x,ein anderer\n3,train,y,der\n",
         ["task.data.form.label=[stars]", "task.data.form.texts=[[review]]", "task.data.form.header=[title,column1,label,text]"]),
        ("Kategorie\na\n", []),
    ],
)  # fmt: skip
def test_a_table_with_other_names_is_told_the_words_that_read_it(tmp_path, content, words):
    (tmp_path / "train.csv").write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        rows(tmp_path)
    said = [word for word in shlex.split(str(caught.value)) if word.startswith("task.")]
    assert [word.rstrip(".") for word in said] == words
    settings = OmegaConf.create({"header": None, "label": NAMED.label, "texts": NAMED.texts, "optional": NAMED.optional})
    for word in words:
        if "header" not in word:
            parsed = OverridesParser.create().parse_override(word)
            settings[parsed.key_or_group.removeprefix("task.data.form.")] = parsed.value()
    if words:
        assert rows(tmp_path, Form(**OmegaConf.to_container(settings)))[0][1:] in (
            ("a", ("", "ein Text")), ("ein", ("", "ein Text")), ("klein", ("", "ein Text")), ("a", ("x", "a text")), ("a", ("", "a text")),
        )  # fmt: skip


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"There is no folder or file .*/none; name one with data\.dir=\.\.\."):
        find_sources(tmp_path / "none")
    with pytest.raises(
        UserError, match=r"has no documents that are found by their names: expected are files train and test"
    ):
        find_sources(tmp_path)
    with pytest.raises(
        UserError,
        match=r"There is no file .*/train\.csv \(train\)\. Name the folder of data sets with paths\.data_dir=\.\.\.",
    ):
        named_sources(tmp_path, {"train": "train.csv"}, None)
    with pytest.raises(UserError, match=r"task\.data\.files\.trian: the splits are train, dev, test"):
        named_sources(tmp_path, {"trian": "train.csv"}, None)


@pytest.mark.parametrize("name", ["mine.csv", "mine.jsonl"])
def test_a_column_split_of_one_file_says_which_documents_are_of_which_split(tmp_path, name):
    """Those of train come first, whose labels are the classes; in several files it is not read, which is said."""
    words = {"f": "", "a": "Test", "b": "train", "c": "valid", "d": "train", "e": "holdout"}
    if name.endswith("csv"):
        lines = ["id,split,label,text", *(f"{k},{split},x,{text}" for k, (text, split) in enumerate(words.items()))]
    else:
        lines = [json.dumps({"text": "f", "label": "x"})]  # without the key, as an empty cell of a table
        lines += [json.dumps({"text": text, "label": "x", "split": split}) for text, split in words.items() if split]
    (tmp_path / name).write_text("\n".join(lines))
    fault = f"{name}, line {6 + name.endswith('csv')}", (
        "'holdout' is no split; write train, dev or test, leave it empty, or give the column another name"
    )
    with pytest.warns(UserWarning, match=rf"{name}: 1 documents have no split and are left out"):
        assert rows(tmp_path / name) == [
            ("train", "x", ("", "b")), ("train", "x", ("", "d")), fault, ("test", "x", ("", "a")), ("dev", "x", ("", "c")),
        ]  # fmt: skip
    (tmp_path / name).write_text("\n".join(line for line in lines if "train" not in line and "holdout" not in line))
    with pytest.raises(UserError, match=rf"{name}: nothing that can be used has the split train"):
        rows(tmp_path / name)
    (tmp_path / name).write_text("\n".join(lines[0:1] + lines[2:3]))
    form = Form(None, ["split"], [["text"]], [])
    assert [row[:2] for row in rows(tmp_path / name, form)][-1] == ("train", "Test" if name.endswith("csv") else "train")
    (tmp_path / "mine.csv").write_text("split,x,test\ny,x,train\n")  # a document whose label is called split
    named = Form(["label", "text", "other"], ["label"], [["text"]], [])
    assert [row[:2] for row in rows(tmp_path / "mine.csv", named)] == [("train", "split"), ("train", "y")]
    named = Form(["label", "text", "split"], ["label"], [["text"]], [])
    assert [row[:2] for row in rows(tmp_path / "mine.csv", named)] == [("train", "y"), ("test", "split")]
    several = folder(tmp_path / "several", train="label,text,split\nx,a,test\n", test="label,text\nx,b\n")
    with pytest.warns(UserWarning, match=r"train\.csv: the column split is not read, as each split is to have a file"):
        assert [row[0] for row in rows(several)] == ["train", "test"]


def test_a_form_needs_a_label_and_a_text():
    with pytest.raises(UserError, match=r"task\.data\.form needs the name of a label and of at least one text"):
        Form(None, ["label"], [[]], [])
