"""Tables of pairs: one file that is split, or one for each split; what separates their columns."""

import gzip

import pytest

from tasks.errors import UserError
from tasks.translation.corpus import Pair, Table
from tests.tasks.translation.files import TRAIN, data, german, write
from tests.tasks.translation.test_corpus import found

PAIRS = [Pair("Hi, you!", "Hallo, du!"), Pair('He said "no".', 'Er sagte "nein".'), Pair("", "leer")]
TSV = 'Hi, you!\tHallo, du!\nHe said "no".\tEr sagte "nein".\n\n\tleer\n'
CSV = '"Hi, you!","Hallo,\ndu!"\n"He said ""no"".","Er sagte ""nein""."\n,leer\n'
JSON = (
    '{"en": "Hi, you!", "de": "Hallo, du!"}\n{"de": "Er sagte \\"nein\\".", "en": "He said \\"no\\"."}\n'
    '{"source": "", "target": "leer", "id": 3}\n'
)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.tsv", TSV), ("a.txt", TSV), ("a.csv", CSV), ("a.CSV", CSV.replace(',"', ';"').replace(",l", ";l")), ("a.jsonl", JSON)],
)
def test_one_table_is_train_plain_or_packed(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    for path in (tmp_path / name, tmp_path / f"{name}.gz"):
        sources = found(path)
        assert list(sources) == ["train"]
        assert list(sources["train"].pairs()) == PAIRS


def test_a_folder_may_have_a_table_for_each_split(tmp_path):
    write(tmp_path, {"train.tsv": ["a\tb"], "valid.csv": ["c,d"], "test.tsv": ["wrong"]})
    write(tmp_path, {"test.en": ["e"], "test.de": ["f"]})
    pairs = {split: list(source.pairs()) for split, source in found(tmp_path).items()}
    assert pairs == {"train": [Pair("a", "b")], "dev": [Pair("c", "d")], "test": [Pair("e", "f")]}


def test_a_first_line_that_names_the_languages_is_no_pair_and_chooses_columns(tmp_path):
    for name, lines in (
        ("a.csv", ["id;DE;en ", "1;leer;", "2;zwei;two"]),
        ("b.tsv", ["target\tSource\tnote", "leer\t\tx", "zwei\ttwo"]),
        ("c.txt", ["en\tde", "\tleer", "two\tzwei"]),
        ("d.jsonl", ['{"en": "", "de": "leer", "fr": "vide"}', '{"de": "zwei", "en": "two"}']),
    ):
        write(tmp_path, {name: lines})
        assert list(found(tmp_path / name)["train"].pairs()) == [Pair("", "leer"), Pair("two", "zwei")]
        swapped = found(tmp_path / name, source="de", target="en") if name != "b.tsv" else {}
        assert not swapped or list(swapped["train"].pairs()) == [Pair("leer", ""), Pair("zwei", "two")]
    table = Table("c.txt", ["de", "en"])
    assert list(found(tmp_path, table=table)["train"].pairs())[1] == Pair("two", "zwei"), "the line counts"
    write(tmp_path, {"a.csv": ["en,fr", "two,deux"]})
    with pytest.raises(UserError, match=r"'en,fr', names a column en or source and none de or target\. Name the languages"):
        found(tmp_path / "a.csv")
    write(tmp_path, {"a.csv": ["ID;German;English;Split", "1;zwei;two;train"]})
    with pytest.raises(UserError, match=r"names a column ID and none en or source\. Name the languages of the columns"):
        found(tmp_path / "a.csv")
    named = found(tmp_path / "a.csv", source="english", target="german")
    assert list(named["train"].pairs()) == [Pair("two", "zwei")]
    write(tmp_path, {"a.csv": ["index,Verzeichnis", "two,zwei"]})
    assert next(found(tmp_path / "a.csv")["train"].pairs()) == Pair("index", "Verzeichnis"), "of a list of words"
    write(tmp_path, {"a.csv": ["es,fr", "dos,deux"]})
    assert next(found(tmp_path / "a.csv")["train"].pairs()) == Pair("es", "fr"), "of other languages it is a row"
    write(tmp_path, {"a.csv": ["en,de,en", "two,zwei,three"]})
    with pytest.raises(UserError, match=r"a\.csv: its first line has two columns en"):
        list(found(tmp_path / "a.csv")["train"].pairs())


def test_a_row_with_too_few_or_too_many_columns_is_named(tmp_path):
    for name, lines, said in (
        ("a.csv", ["a,b", "c, d,e"], r"a\.csv, line 2: it has 3 columns, and 2 are expected \(en, de\).* in quotes"),
        ("b.tsv", ["a\tb", "c"], r"b\.tsv, line 2: it has 1 columns, and 2 are expected"),
        ("c.tsv", ["a", "c"], r"c\.tsv, line 1: it has 1 columns"),
        ("d.tsv", [], r"d\.tsv is empty. Expected are a sentence \(en\) and its translation \(de\)"),
        ("e.jsonl", ['{"en": "a"}'], r"e\.jsonl, line 1: it has none of the keys de, target"),
    ):
        write(tmp_path, {name: lines})
        with pytest.raises(UserError, match=said):
            list(found(tmp_path / name)["train"].pairs())
    with pytest.raises(UserError, match=r"data\.dir=.*a\.csv is a file, and task\.data\.table\.file=b\.tsv"):
        found(tmp_path / "a.csv", table=Table("b.tsv", ["en", "de"]))


def test_a_table_is_split_and_its_first_pair_is_said(tmp_path, capsys):
    lines = [f"{line} dog{k}\t{german(line)} hund{k}" for k in range(10) for line in TRAIN]
    few = data(write(tmp_path / "texts", {"pairs.tsv": lines}) / "pairs.tsv", tmp_path / "cache")
    assert sum(counts["pairs"] for counts in few.corpus().counts.values()) == 60
    assert min(counts["pairs"] for counts in few.corpus().counts.values()) > 0
    said = capsys.readouterr().out
    assert "pairs.tsv: the first column is en and the second de, as 'a dog runs dog0' and 'ein hund läuft hund0' in" in said
    assert "If it is a header" not in said
    assert "There are no pairs for dev:" in said
    assert few.fingerprint()["files"] == dict.fromkeys(("train", "dev", "test"), "pairs.tsv")
    data(write(tmp_path / "named", {"pairs.tsv": ["English\tGerman", *lines]}) / "pairs.tsv", tmp_path / "cache").corpus()
    assert "'German' in the first line. If it is a header, call the columns en and de." in capsys.readouterr().out
    write(tmp_path / "texts", {"pairs.tsv": lines[:1]})
    with pytest.raises(UserError, match=r"Of 1 pairs of sentences in pairs.tsv none is held out for dev .*shares.dev=0.3"):
        data(tmp_path / "texts" / "pairs.tsv", tmp_path / "cache").corpus()


def test_a_column_split_says_which_rows_are_of_which_split(tmp_path, capsys):
    words = ["train", "valid", "Train", "", "test", "train"]
    lines = [f"{line}\t{word}\t{german(line)}" for line, word in zip(TRAIN, words, strict=True)]
    path = write(tmp_path, {"pairs.tsv": ["en\tSplit\tde", *lines]}) / "pairs.tsv"
    with pytest.warns(UserWarning, match=r"pairs\.tsv: 1 pairs have no split and are left out"):
        sources = found(path)
    pairs = {split: [pair.source for pair in source.pairs()] for split, source in sources.items()}
    assert pairs == {"train": [TRAIN[0], TRAIN[2], TRAIN[5]], "dev": [TRAIN[1]], "test": [TRAIN[4]]}
    few = data(path, tmp_path / "cache")
    with pytest.warns(UserWarning, match="left out"):
        corpus = few.corpus()
    assert "held out" not in capsys.readouterr().out
    assert [corpus.counts[split]["pairs"] for split in ("train", "dev", "test")] == [3, 1, 1]
    assert len({*few.fingerprint()["sha256"].values()}) == 3
    write(tmp_path, {"pairs.tsv": ["en\tsplit\tde", *(f"{k} {line}\ttrain\t{german(line)}" for k in range(30) for line in TRAIN)]})
    counts = data(path, tmp_path / "cache").corpus().counts
    assert "There are no pairs for dev:" in capsys.readouterr().out
    assert sum(count["pairs"] for count in counts.values()) == 180
    json = '{"en": "a", "de": "b", "split": "train"}\n{"en": "c", "de": "d", "split": "dev"}\n'
    (tmp_path / "a.jsonl").write_text(json, encoding="utf-8")
    assert [*found(tmp_path / "a.jsonl")] == ["train", "dev"]
    (tmp_path / "a.jsonl").write_text(json + '{"en": "e", "de": "f", "split": 0}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.jsonl, line 3: '0' is no split"):
        found(tmp_path / "a.jsonl")
    for lines, said in (
        (["en,de,split", "a,b,dev"], r"a\.csv: nothing that can be used has the split train"),
        (["en,de,split", "a,b,train", "c,d,tets"], r"a\.csv, line 3: 'tets' is no split; write train, dev or test"),
    ):
        write(tmp_path, {"a.csv": lines})
        with pytest.raises(UserError, match=said):
            found(tmp_path / "a.csv")


def test_new_sentences_are_the_column_of_a_table(tmp_path):
    few = data(tmp_path, tmp_path / "cache")
    for name, lines, rows in (
        ("a.csv", ["id;EN;de", '7;"a; dog";hund'], [("a; dog", {"id": "7", "de": "hund"})]),
        ("b.tsv", ["source\tde", "a dog\t", "cat\tx"], [("a dog", {"de": ""}), ("cat", {"de": "x"})]),
        ("c.csv", ["source,en", "web,a dog"], [("a dog", {"source": "web"})]),
        ("d.csv", ["en", '"a dog', 'runs"'], [("a dog runs", {})]),
    ):
        write(tmp_path, {name: lines})
        assert list(few.read_table(tmp_path / name)) == rows
    write(tmp_path, {"a.txt": ["en", "a dog"], "a.csv": ["a dog", "a cat"], "b.csv": ["en,id", "a dog,1", " ,2"]})
    assert few.read_table(tmp_path / "a.txt") is None
    with pytest.raises(UserError, match=r"a\.csv: its first line names no column en or source\. Name .* in a file \.txt"):
        few.read_table(tmp_path / "a.csv")
    with pytest.raises(UserError, match=r"b\.csv, line 3: its sentence is blank"):
        list(few.read_table(tmp_path / "b.csv"))
    lines = [b'{"en": "a dog", "de": "x"}\n', b'{"source": "a cat"}\n', b"a cow\n"]
    assert list(few.read_inputs(lines, "new")) == ["a dog", "a cat", "a cow"]
    with pytest.raises(UserError, match=r"new, line 1: it has no key source or en with a text"):
        list(few.read_inputs([b'{"text": "a dog"}\n'], "new"))
