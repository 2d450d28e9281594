"""Triples are read exactly, oddities are counted, and faults are named with file and line."""

import csv
import gzip
import hashlib
import io

import numpy as np
import pytest
import torch

from tasks.batches import SPLITS
from tasks.errors import UserError
from tasks.kg_completion import reader
from tasks.kg_completion.splits import hold_out
from tasks.kg_completion.triples import FILES, read_graph, triple_keys

GOOD = {"train": "a\tr\tb\nb\ts\tc\n", "dev": "a\ts\tc\n", "test": "c\tr\ta\n"}


def write(folder, **texts):
    folder.mkdir(exist_ok=True)
    for split, text in (GOOD | texts).items():
        (folder / FILES[split]).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_numbers_follow_the_first_appearance(tmp_path):
    graph = read_graph(write(tmp_path / "mine", train="z\tr\ta\na\tq\tz\n", dev="a\tr\tnew\n", test="new\tp\tz\n"))
    assert (graph.name, graph.entities, graph.relations) == ("mine", ("z", "a", "new"), ("r", "q", "p"))
    assert {s: t.tolist() for s, t in graph.triples.items()} == {
        "train": [[0, 0, 1], [1, 1, 0]], "dev": [[1, 0, 2]], "test": [[2, 2, 0]],
    }  # fmt: skip
    assert graph.files == FILES
    assert graph.sha256["dev"] == hashlib.sha256(b"a\tr\tnew\n").hexdigest()
    assert (graph.notes["dev"].new_entities, graph.notes["dev"].new_relations, graph.notes["dev"].unseen) == (1, 0, 1)
    assert (graph.notes["test"].new_entities, graph.notes["test"].new_relations) == (1, 1)
    assert [graph.unseen(s).tolist() for s in SPLITS] == [[False, False], [True], [True]]
    assert len(graph.remarks()) == 2
    assert "1 of 1 triples have an entity or a relation" in graph.remarks()[1]


def test_packed_files_are_the_same(tmp_path):
    plain, packed = write(tmp_path / "plain"), write(tmp_path / "packed")
    for file in packed.iterdir():
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    one, other = read_graph(plain), read_graph(packed)
    assert (one.entities, one.relations) == (other.entities, other.relations)
    assert all(one.triples[split].equal(other.triples[split]) for split in SPLITS)
    (packed / "test.txt.gz").write_bytes((packed / "test.txt.gz").read_bytes()[:-9])
    with pytest.raises(UserError, match=r"test.txt.gz cannot be read"):
        read_graph(packed)


@pytest.mark.parametrize(
    "text",
    ["a\tr\tb\r\nb\ts\tc\r\n", "a\tr\tb\nb\ts\tc", "a\tr\tb\nb\ts\tc\n\n\n", "\ufeffa\tr\tb\r\nb\ts\tc\r\n\r\n"],
    ids=["windows", "no last newline", "blank lines", "byte-order mark"],
)
@pytest.mark.parametrize("block", [1, 4, 1 << 20])
def test_ends_of_lines_and_of_blocks_change_nothing(tmp_path, monkeypatch, text, block):
    expected = read_graph(write(tmp_path / "plain"))
    monkeypatch.setattr(reader, "BLOCK", block)
    graph = read_graph(write(tmp_path / "other", train=text))
    assert (graph.entities, graph.relations) == (expected.entities, expected.relations)
    assert all(graph.triples[s].equal(expected.triples[s]) for s in SPLITS)
    assert graph.sha256["train"] == hashlib.sha256(text.encode()).hexdigest()
    assert not graph.remarks()


def test_other_names_of_files(tmp_path):
    for name, text in (("train.tsv", GOOD["train"]), ("dev.txt", GOOD["dev"]), ("test.tsv", GOOD["test"])):
        (tmp_path / name).write_text(text)
    assert read_graph(tmp_path).files == {"train": "train.tsv", "dev": "dev.txt", "test": "test.tsv"}
    assert not read_graph(tmp_path).cautions
    (tmp_path / "dev.csv").write_text("a,s,c\n")
    assert read_graph(tmp_path).cautions == (f"{tmp_path}: dev.txt is read, and dev.csv not.",)


def test_repeated_and_shared_triples_are_counted(tmp_path):
    folder = write(tmp_path, train="a\tr\tb\nb\tr\tc\na\tr\tb\n", dev="b\tr\tc\nc\tr\ta\n", test="c\tr\ta\nc\tr\tb\n")
    graph = read_graph(folder)
    assert [remark.split(": ")[1] for remark in graph.remarks()] == [
        "1 of 3 rows repeat earlier ones and were dropped.",
        "1 of 2 triples are also in train; they are kept.",
        "1 of 2 triples are also in dev; they are kept.",
    ]
    assert graph.triples["train"].tolist() == [[0, 0, 1], [1, 0, 2]]
    assert (graph.notes["train"].rows, graph.notes["train"].duplicates) == (3, 1)
    assert graph.notes["dev"].shared == {"train": 1}
    assert graph.notes["test"].shared == {"dev": 1}
    assert len(graph.triples["dev"]) == len(graph.triples["test"]) == 2


HEADER = "one\tlink\tother\n"


@pytest.mark.parametrize(
    ("headers", "files"),
    [
        ({"train": HEADER}, "train.txt"),
        ({"train": HEADER, "dev": HEADER, "test": HEADER}, "train.txt, valid.txt, test.txt"),
        ({"train": "one\tlink\tb\n"}, None),
        ({"train": "one\tr\tother\n"}, None),
        ({"train": HEADER, "dev": "a\tr\tother\n"}, None),
        ({}, None),
    ],
)
def test_a_header_is_suspected(tmp_path, headers, files):
    graph = read_graph(write(tmp_path, **{split: headers.get(split, "") + GOOD[split] for split in SPLITS}))
    remarks = [remark for remark in graph.remarks() if "If it is a header" in remark]
    if files is None:
        assert not remarks
    else:
        assert f"/{files}: the names of the first row, (one, link, other), are in no other" in remarks[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tr\tb\nb\tr\n", r"train\.txt, line 2 has 2 columns instead of 3 \(head <tab> relation <tab> tail\)"),
        ("a\tr\tb\nb r c\n", "line 2 has 1 column instead of 3"),
        ("a\tr\tb\tc\n", "line 1 has 4 columns"),
        ("a\tr\na\tr\tb\tc\n", "line 1 has 2 columns"),
        ("a\tr\tb\na\t\tb\n", "line 2 has an empty relation"),
        ("\tr\tb\n", "line 1 has an empty head"),
        ("a\tr\t\r\n", "line 1 has an empty tail"),
        ("a\tr\tb\na\tr\t  \n", "line 2 has a name of blanks only"),
        ("a\tr\tb\na\tr\tc\0\n", "line 2 has a NUL character, so it is no text"),
        ("a\tr\tb\n\na\tr\tc\n", "line 2 is blank"),
        (b"a\tr\tb\na\tr\tb\nc\tr\t\xff\xfe\n", r"line 3 is not UTF-8 .*; `iconv -f WINDOWS-1252"),
        ("z\tr\tb\nb\tr\té\na\tr\té\n".encode("latin-1"), r"line 2 is not UTF-8"),
        ("\ufeffa\tr\tb\n".encode("utf-16-le"), r"line 1 is not UTF-8 .*; `iconv -f UTF-16 -t"),
        ("", r"train\.txt is empty"),
        ("\n\n", r"train\.txt is empty"),
    ],
)
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_faults_are_named_with_their_place(tmp_path, monkeypatch, text, message, block):
    monkeypatch.setattr(reader, "BLOCK", block)
    with pytest.raises(UserError, match=message):
        read_graph(write(tmp_path, train=text))


def test_a_name_of_many_megabytes_is_none(tmp_path):
    with pytest.raises(UserError, match="line 2 has a name of more than 16,777,216 bytes"):
        read_graph(write(tmp_path, train=f"a\tr\tb\na\tr\t{'c' * (1 << 24)}d\n"))


def test_missing_places_say_what_is_expected(tmp_path):
    with pytest.raises(UserError, match=r"no folder .*nowhere.* train\.txt, valid\.txt, test\.txt.*HYPERBOLIC_DATA"):
        read_graph(tmp_path / "nowhere")
    (write(tmp_path) / "valid.txt").unlink()
    with pytest.raises(UserError, match=r"has no valid\.txt"):
        read_graph(tmp_path)
    with pytest.raises(UserError, match=r"train\.txt has no triples for dev, and task\.data\.held_out has no share for dev"):
        read_graph(tmp_path / "train.txt")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.csv", "a,r,b\nb,s,c\n"),
        ("train.csv", "Subject,Predicate,Object\na,r,b\nb,s,c\n"),
        ("train.csv", 'tail;weight;Head;relation\r\n"b";0,5;a; r \r\nc;0,5;b;s\r\n'),
        ("train.tsv", "head\trelation\ttail\na\tr\tb\nb\ts\tc\n"),
        ("train.tsv", '"head"\t"relation"\t"tail"\n"a"\t"r"\t"b"\n"b"\t"s"\t"c"\n'),
    ],
)
def test_tables_with_commas_and_names_of_columns(tmp_path, name, text):
    expected = read_graph(write(tmp_path / "plain"))
    folder = write(tmp_path / "other")
    (folder / "train.txt").unlink()
    (folder / name).write_text(text)
    graph = read_graph(folder)
    assert (graph.entities, graph.relations) == (expected.entities, expected.relations)
    assert all(graph.triples[split].equal(expected.triples[split]) for split in SPLITS)
    assert not any("header" in remark for remark in graph.remarks())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,r,b\nc,r\n", r"train\.csv, line 2: 'c,r' is not of the form head,relation,tail"),
        ("a,r,b,1\n", "line 1: 'a,r,b,1' is not .* It has 4 columns, not 3: further ones are left out where the first line names"),
        ('a,r,b\n"c\nd",r,b\n', "line 2: .* is not of the form"),
        ('a,r,b\n"c"d,r,b\n', "line 2: it is no row of a table with quotes"),
        ("head,relation,tail\n", "has no rows below the names of its columns"),
        ("head,relation,tail,tail\na,r,b,c\n", "the first line names two columns tail; give one of them another name"),
        ("head,relation,tail\na,r,b,\n", "line 2: 'a,r,b,' has 4 columns, and the first line names 3"),
        ("head,relation,tail\n\na,,b\n", "line 3: .* is not of the form"),
    ],
)
def test_faults_of_a_table_with_commas(tmp_path, text, message):
    (write(tmp_path) / "train.txt").unlink()
    (tmp_path / "train.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_graph(tmp_path)


def test_inverse_relations_are_noted(tmp_path):
    """Of four triples of the test two are of inverse relations; `near` is its own inverse, and `in` has none."""
    train = "".join(f"a{k}\tpart_of\tb{k}\nb{k}\thas\ta{k}\n" for k in range(3)) + "x\tnear\ty\nc\thas\td\ne\thas\tf\n"
    test = "d\tpart_of\tc\nf\tpart_of\te\nb1\tin\ta1\ny\tnear\tx\n"
    graph = read_graph(write(tmp_path / "leaks", train=train, test=test))
    (remark,) = [remark for remark in graph.remarks() if "reverse" in remark]
    assert "leaks: 50% of the triples of the test" in remark
    assert "'part_of' and 'has'" in remark
    both = "".join(f"a{k}\tmarried\tb{k}\nb{k}\tmarried\ta{k}\n" for k in range(40))
    (tmp_path / "both.tsv").write_text(both)
    remarks = " ".join(read_graph(tmp_path / "both.tsv", {"dev": 0.1, "test": 0.1}).remarks())
    assert "under the same relation, as 'married': a model can answer them by copying" in remarks
    graph = read_graph(write(tmp_path / "none", train=train, test="y\tnear\tx\na0\tnear\tb1\n"))
    assert not any("reverse" in remark for remark in graph.remarks())


def test_splits_without_files_are_held_out(tmp_path):
    """Each triple once, all entities and relations in train, the same again, and another draw by another seed."""
    draw = np.random.default_rng(0)
    rows = [f"e{h}\tr{r}\te{t}\n" for h, r, t in draw.integers((40, 5, 40), size=(400, 3))]
    (tmp_path / "mine.tsv").write_text("".join([*rows, *rows[:9], "lonely\tonce\te1\n"]))
    graph = read_graph(tmp_path / "mine.tsv", {"dev": 0.1, "test": 0.2})
    n = len({*rows}) + 1
    assert [len(graph.triples[split]) for split in ("dev", "test")] == [round(0.1 * n), round(0.2 * n)]
    together = torch.cat([graph.triples[split] for split in SPLITS])
    assert len(together) == n == len(together.unique(dim=0))
    assert all(known.all() for known in graph.in_train)
    assert graph.remarks()[1].startswith(f"Held out of mine.tsv at random, as they are not given: {round(0.1 * n)} triples for dev")
    assert len({*graph.sha256.values()}) == 3
    again, other = (read_graph(tmp_path / "mine.tsv", {"dev": 0.1, "test": 0.2}, seed) for seed in (0, 1))
    assert all(again.triples[split].equal(graph.triples[split]) for split in SPLITS)
    assert not other.triples["test"].equal(graph.triples["test"])
    assert other.sha256["test"] != again.sha256["test"] == graph.sha256["test"]
    assert graph.remarks()[0] == f"mine.tsv: {410 - n} of 410 rows repeat earlier ones and were dropped."
    (tmp_path / "MINE.CSV").write_text((tmp_path / "mine.tsv").read_text().replace("\t", ","))
    assert read_graph(tmp_path / "MINE.CSV", {"dev": 0.1, "test": 0.2}).triples["test"].equal(graph.triples["test"])
    folder = write(tmp_path / "folder", train="".join(rows))
    (folder / "valid.txt").unlink()
    (folder / "val.txt").write_text(GOOD["dev"])
    with pytest.raises(UserError, match=r"has no valid\.txt, and val\.txt is not read: rename it to valid\.txt"):
        read_graph(folder, {"dev": 0.1, "test": 0.1})
    (folder / "val.txt").unlink()
    partly = read_graph(folder, {"dev": 0.1, "test": 0.1})
    assert partly.files == {"train": "train.txt", "dev": "train.txt", "test": "test.txt"}
    assert partly.triples["test"].shape == (1, 3)


def test_a_column_split_of_one_file_says_which_triples_are_of_which_split(tmp_path):
    """In a folder of files for each split it is a column that is not read."""
    rows = "head,relation,tail,split\na,r,b,train\nb,r,c,TEST\nb,s,c,training\nc,r,a,validation\nlost,r,a,\na,r,b,Test\n"
    (tmp_path / "mine.csv").write_text(rows)
    graph = read_graph(tmp_path / "mine.csv")
    names = {
        split: [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in triples.tolist()]
        for split, triples in graph.triples.items()
    }
    assert names == {
        "train": [("a", "r", "b"), ("b", "s", "c")], "dev": [("c", "r", "a")], "test": [("b", "r", "c"), ("a", "r", "b")]
    }  # fmt: skip
    assert "lost" not in graph.entities
    assert len({*graph.sha256.values()}) == 3
    assert "mine.csv: 1 rows have no split and are left out." in graph.remarks()
    assert "mine.csv (test): 1 of 2 triples are also in train; they are kept." in graph.remarks()
    tabs = rows.replace("validation", "train").replace(",", "\t")
    (tmp_path / "mine.tsv").write_text(tabs + "".join(f"c\tr\tb{k}\ttrain\nb{k}\tr\ta\ttrain\n" for k in range(9)))
    with pytest.raises(UserError, match=r"mine\.tsv has no triples for dev, and task\.data\.held_out .*; give some the split dev in a column split, or set task\.data\.held_out\.dev=0\.1"):
        read_graph(tmp_path / "mine.tsv", {"test": 0.1})
    graph = read_graph(tmp_path / "mine.tsv", {"dev": 0.1, "test": 0.1})
    assert {split: len(triples) for split, triples in graph.triples.items()} == {"train": 19, "dev": 2, "test": 2}
    folder = write(tmp_path / "folder")
    (folder / "train.txt").write_text(rows.replace(",", "\t"))
    assert len(read_graph(folder).triples["train"]) == 5
    for name in ("valid.txt", "test.txt"):
        (folder / name).unlink()
    assert [len(triples) for triples in read_graph(folder, {"dev": 0.1, "test": 0.1}).triples.values()] == [2, 1, 2]


@pytest.mark.parametrize(
    ("word", "message"),
    [("tuning", r"mine\.csv, line 3: 'tuning' is no split; write train, dev or test"), ("dev", "nothing .* has the split train")],
)
def test_faults_of_a_column_split(tmp_path, word, message):
    (tmp_path / "mine.csv").write_text(f"split,head,relation,tail\ntest,a,r,b\n{word},b,r,c\n")
    with pytest.raises(UserError, match=message):
        read_graph(tmp_path / "mine.csv", {"dev": 0.1, "test": 0.1})


def test_too_few_triples_to_hold_out(tmp_path):
    (tmp_path / "mine.tsv").write_text("a\tr\tb\nb\tr\tc\n")
    with pytest.raises(UserError, match=r"2 of 2 triples are to be held out, and all but 0 are needed in train"):
        read_graph(tmp_path / "mine.tsv", {"dev": 0.1, "test": 0.1})


def test_keys_of_huge_graphs_are_distinct_too():
    draw = np.random.default_rng(0)
    array = draw.integers(4, size=(200, 3))
    expected = len(np.unique(array, axis=0))
    for sizes in ((4, 4), (1 << 30, 1 << 20)):
        keys = triple_keys([array[:150], array[150:]], *sizes)
        assert len(keys) == 200
        assert len(np.unique(keys)) == expected


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sizes", "entities", "relations", "unseen"),
    [
        ("WN18RR", (86835, 3034, 3134), 40943, 11, 210),
        ("FB15k-237", (272115, 17535, 20466), 14541, 237, 28),
        ("UMLS", (5216, 652, 661), 135, 46, 0),
    ],
)
def test_the_official_files(data_dir, name, sizes, entities, relations, unseen):
    graph = read_graph(data_dir / name)
    assert tuple(len(graph.triples[s]) for s in SPLITS) == sizes
    assert (len(graph.entities), len(graph.relations)) == (entities, relations)
    assert int(graph.unseen("test").sum()) == graph.notes["test"].unseen == unseen
    assert not any(graph.notes[s].duplicates or graph.notes[s].new_relations for s in SPLITS)
    first = (data_dir / name / "test.txt").read_text().splitlines()[-1].split("\t")
    h, r, t = graph.triples["test"][-1].tolist()
    assert [graph.entities[h], graph.relations[r], graph.entities[t]] == first


def test_names_that_a_program_has_put_in_quotes_are_read_without(tmp_path, monkeypatch):
    """csv.writer(delimiter="\\t") and pandas put quotes around cells that have some."""
    rows = [('say "a"', "r", "b"), ("b", 'of "q"', 'say "a"'), ('"', "r", "b")]
    with io.StringIO() as stream:
        csv.writer(stream, delimiter="\t", lineterminator="\n").writerows(rows)
        text = stream.getvalue()
    assert '"say ""a"""' in text
    graph = read_graph(write(tmp_path / "mine", train=text, dev="b\tr\tb\n", test="b\tr\tb\n"))
    assert (graph.entities, graph.relations) == (('say "a"', "b", '"'), ("r", 'of "q"'))


def test_a_name_in_quotes_that_is_no_text_is_named_with_its_line(tmp_path):
    with pytest.raises(UserError, match=r"train\.txt, line 2 is not UTF-8"):
        read_graph(write(tmp_path / "mine", train=b'a\tr\tb\n"say ""\xff"""\tr\tb\n'))


def test_json_is_named(tmp_path):
    line = '{"head": "a", "relation": "r", "tail": "b"}\n'
    with pytest.raises(UserError, match=r"train\.txt, line 1: .*not of the form head <tab> relation <tab> tail\. JSON is not read here: write columns"):
        read_graph(write(tmp_path / "mine", train=line))
    (tmp_path / "triples.csv").write_text(line)
    with pytest.raises(UserError, match=r"triples\.csv, line 1: .*JSON is not read here"):
        read_graph(tmp_path / "triples.csv")


def test_every_relation_of_what_is_held_out_is_in_train():
    """Also those that a single triple has, between entities that others have."""
    often = [(h, 0, t) for h in range(12) for t in range(12) if h != t]
    rare = [(k % 12, 1 + k, (k + 5) % 12) for k in range(20)]
    parts = hold_out(np.array(often + rare), {"dev": 0.1, "test": 0.4}, seed=0)
    assert {*parts["train"][:, 1].tolist()} == {*range(21)}
    assert len(parts["test"]) == round(0.4 * 152)
