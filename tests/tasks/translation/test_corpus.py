"""Pairs of aligned files and of tables; what is held out; what is wrong with files."""

import gzip

import pytest

from tasks.errors import UserError
from tasks.translation.corpus import HeldOut, Pair, Source, Table, find_sources, read_pairs
from tests.tasks.translation.files import aligned, data, write

FILES = {"train": ["train.tok", "train"], "dev": ["valid"], "test": ["test.{language}.bpe", "test"]}
HELD_OUT = HeldOut({"dev": 0.2, "test": 0.1}, "en")


def found(folder, files=FILES, table=None, source="en", target="de"):
    return find_sources(folder, source, target, files, table, None)


def test_files_are_found_by_their_names_and_languages(tmp_path):
    write(
        tmp_path, {name: ["x"] for name in ("train.en", "train.de", "test.en", "test.de", "test.en.bpe", "test.de.bpe")}
    )
    sources = found(tmp_path)
    assert {split: [path.name for path in source.paths] for split, source in sources.items()} == {
        "train": ["train.en", "train.de"], "test": ["test.en.bpe", "test.de.bpe"],
    }  # fmt: skip
    assert [path.name for path in found(tmp_path, source="de", target="en")["train"].paths] == ["train.de", "train.en"]
    write(tmp_path, {"train.tok.en": ["x"]})
    with pytest.raises(
        UserError, match=r"train\.tok\.en is there, and .*train\.tok\.de with the other language is not"
    ):
        found(tmp_path)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match="There is no folder or file .*nowhere"):
        found(tmp_path / "nowhere")
    with pytest.raises(
        UserError, match=r"no training data: expected are train\.tok\.en and train\.tok\.de, train\.en and"
    ):
        found(tmp_path)
    with pytest.raises(UserError, match=r"or a table train\.tok\.tsv, .*train\.jsonl, plain or with \.gz"):
        found(tmp_path)
    with pytest.raises(UserError, match=r"There is no file .*pairs\.txt"):
        found(tmp_path, table=Table("pairs.txt", ["en", "de"]))
    with pytest.raises(UserError, match="has no language 'fr'"):
        found(tmp_path, table=Table("pairs.txt", ["en", "de"]), source="fr")
    with pytest.raises(UserError, match=r"task\.data\.files\.valid: the splits are train, dev, test"):
        found(tmp_path, files={"valid": ["valid"]})


def test_pairs_are_the_lines_of_both_files_plain_or_packed(tmp_path):
    write(tmp_path, {"train.en": ["one  ", "", "three"]})
    (tmp_path / "train.de.gz").write_bytes(gzip.compress(b"eins\n zwei\ndrei\n"))
    assert list(found(tmp_path)["train"].pairs()) == [Pair("one", "eins"), Pair("", "zwei"), Pair("three", "drei")]


def test_a_sentence_may_hold_characters_that_end_lines_elsewhere(tmp_path):
    (tmp_path / "a.en").write_text("one\u2028more\x0bthing\ntwo\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("eins\nzwei\n", encoding="utf-8")
    pairs = list(Source("train", (tmp_path / "a.en", tmp_path / "a.de")).pairs())
    assert [pair.target for pair in pairs] == ["eins", "zwei"]


def test_different_numbers_of_lines_are_told_with_both(tmp_path):
    folder = aligned(tmp_path, train_de=["ein hund"])
    with pytest.raises(UserError, match=r"train\.en has 6 lines and .*train\.de 1: line k of the one"):
        list(found(folder)["train"].pairs())


def test_blank_lines_at_the_end_are_passed_over(tmp_path):
    english, german = tmp_path / "a.en", tmp_path / "a.de"
    source = Source("train", (english, german))
    english.write_text("one\n\n\nfour\n \n\r\n", encoding="utf-8")
    german.write_text("eins\n\ndrei\nvier\n\n", encoding="utf-8")
    pairs = [Pair("one", "eins"), Pair("", ""), Pair("", "drei"), Pair("four", "vier")]
    assert list(source.pairs()) == pairs
    german.write_text("eins\n\ndrei\n\n", encoding="utf-8")
    assert list(source.pairs()) == [*pairs[:3], Pair("four", "")], "a sentence may be empty at the end"
    german.write_text("eins\n\ndrei\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.en has 4 lines and .*a\.de 3"):
        list(source.pairs())


def test_a_line_that_is_no_text_is_named(tmp_path):
    folder = aligned(tmp_path)
    (folder / "train.de").write_bytes(b"ein\n\xff\xfe\n")
    with pytest.raises(UserError, match=r"train\.de, line 2: it is not UTF-8"):
        list(found(folder)["train"].pairs())


def test_a_table_has_a_column_for_each_language(tmp_path):
    write(tmp_path, {"pairs.txt": ["Hi.\tHallo!\tCC-BY 2.0 (France)", "Run!\tLauf!"]})
    table = Table("pairs.txt", ["en", "de"])
    assert list(found(tmp_path, table=table)["train"].pairs()) == [Pair("Hi.", "Hallo!"), Pair("Run!", "Lauf!")]
    swapped = found(tmp_path, table=table, source="de", target="en")["train"]
    assert list(swapped.pairs()) == [Pair("Hallo!", "Hi."), Pair("Lauf!", "Run!")]
    write(tmp_path, {"pairs.txt": ["Hi.\tHallo!", "Run!"]})
    with pytest.raises(UserError, match=r"pairs\.txt, line 2: it has 1 columns, and 3 are expected \(en, de, column 3"):
        list(swapped.pairs())


def test_a_table_may_be_a_plain_node(tmp_path):
    write(tmp_path, {"pairs.tsv": ["a dog\tein hund"]})
    node = {"file": "pairs.tsv", "columns": ["en", "de"]}
    assert data(tmp_path, tmp_path, table=node).table == Table(**node)
    for other, said in (
        ({"file": "pairs.tsv"}, "task.data.table.columns is missing, which are file and columns"),
        ({**node, "column": 1}, "task.data.table.column is none of its keys, which are file and columns"),
        ("pairs.tsv", "task.data.table='pairs.tsv' must be a node with the keys file and columns"),
        ({**node, "file": None}, "task.data.table.file=None must be the name of a file"),
        ({**node, "columns": "en,de"}, "task.data.table.columns='en,de' must be a list of two languages"),
        ({**node, "columns": ["en", False]}, r"columns=\['en', False\] must be a list"),
        ({**node, "columns": ["en", "en"]}, "each once"),
    ):
        with pytest.raises(UserError, match=f"{said}.*'task.data.table={{file: pairs.tsv, columns: .en, de.}}'"):
            data(tmp_path, tmp_path, table=other)


def test_the_sentence_alone_decides_what_is_held_out(tmp_path):
    lines = [f"sentence {k % 2000}\tSatz {k}" for k in range(4000)]
    table = Table("pairs.txt", ["en", "de"])
    write(tmp_path, {"pairs.txt": lines})
    splits: dict[str, list[Pair]] = {"train": [], "dev": [], "test": []}
    for split, pair in read_pairs(found(tmp_path, table=table), HELD_OUT, "en"):
        splits[split].append(pair)
    assert [len(splits[s]) / 4000 for s in ("train", "dev", "test")] == pytest.approx([0.7, 0.2, 0.1], abs=0.03)
    sentences = {split: {pair.source for pair in pairs} for split, pairs in splits.items()}
    assert not sentences["train"] & (sentences["dev"] | sentences["test"])
    write(tmp_path, {"pairs.txt": lines[::-1][:500]})
    swapped = found(tmp_path, table=table, source="de", target="en")
    for split, pair in read_pairs(swapped, HELD_OUT, "de"):
        assert pair.target in sentences[split], "neither order, number nor direction counts"


def test_a_split_with_files_is_not_held_out(tmp_path):
    folder = write(
        tmp_path, {f"{s}.{k}": [f"{s} {n}" for n in range(99)] for s in ("train", "valid") for k in ("en", "de")}
    )
    splits = [split for split, _ in read_pairs(found(folder), HELD_OUT, "en")]
    assert splits.count("dev") == 99
    assert 0 < splits.count("test") < 30


@pytest.mark.parametrize("shares", [{"train": 0.1}, {"dev": 0.0}, {"dev": 0.6, "test": 0.4}])
def test_shares_that_leave_nothing_are_refused(shares):
    with pytest.raises(UserError, match=r"task\.data\.held_out\.shares"):
        HeldOut(shares, "en")
