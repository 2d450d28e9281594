"""Damaged files of every kind that is read: each is used all the same, or refused in one short paragraph."""

import contextlib
import gzip
import io
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.errors import UserError
from tests.fuzz_files import (
    aligned,
    archive,
    caches,
    corpus,
    edges,
    exports,
    graph_airports,
    graph_arrays,
    graph_folder,
    graph_pickles,
    graph_tables,
    points,
    records,
    searches,
    treebank,
    tuning,
    vectors,
    wordnet,
)
from tests.fuzz_tables import (
    FILES,
    LONGEST,
    NAMED,
    NEW,
    TRIPLES,
    document_inputs,
    documents_folder,
    graph_named,
    nli_gzip,
    nli_json,
    nli_table,
    node_inputs,
    one_table,
    pair_inputs,
    prefix,
    questions,
    tables,
    triples,
    typing,
    typing_inputs,
    typing_ontology,
    word_inputs,
)
from tests.mutations import mutated, mutated_gzip
from tests.scripts.archives import tar_of, zip_of
from tests.scripts.test_tuning import NAME

documents_csv, documents_tsv, documents_json = (tables("documents", *[each] * 3) for each in ("csv", "tsv", "jsonl"))


READERS = (
    graph_folder, graph_arrays, graph_pickles, graph_tables, graph_airports, exports,
    nli_json, nli_table, nli_gzip, typing, typing_ontology, triples, prefix, wordnet, edges, points, vectors, corpus,
    aligned, treebank, records, caches, documents_csv, documents_tsv, documents_json, documents_folder, searches,
    tuning, archive("a.zip", zip_of), archive("a.tar.gz", tar_of), *NEW, *NAMED,
)  # fmt: skip


@contextlib.contextmanager
def short_messages() -> Iterator[None]:
    """Errors, warnings and lines that are printed are each one short paragraph; errors are those of a user."""
    printed = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        warnings.simplefilter("always")
        said: UserError | None = None
        try:
            yield
        except UserError as error:
            said = error
    assert all(issubclass(w.category, (UserWarning, ResourceWarning)) for w in warned), [str(w.message)[:300] for w in warned]
    for text in (*([str(said)] if said else []), *(str(w.message) for w in warned), *printed.getvalue().splitlines()):
        assert len(text) < LONGEST, text[:LONGEST]
        assert text.isprintable(), repr(text)
    try:
        if said:
            raise said
    finally:
        del said  # which knows this frame: together they would keep files open until the next collection


def damage(files: list[Path], seed: int) -> dict[Path, bytes]:
    """Damage one of some files; returns what it was."""
    file = files[seed % len(files)]
    good = file.read_bytes()
    file.write_bytes(mutated_gzip(gzip.decompress(good), seed) if file.suffix == ".gz" else mutated(good, seed))
    return {file: good}


WORST = (  # reader, file, its content, what is said; None: it is used
    (nli_json, "train.jsonl", '{"label": ' + "[" * 99_999, "nested too deeply"),
    (nli_json, "test.jsonl", '{"label": "a", "premise": "\\ud800", "hypothesis": "b"}', "half of a surrogate pair"),
    (nli_table, "train.tsv", "label\t" + "\x1b[31m" * 600_000, "no column"),
    (nli_gzip, "dev.jsonl.gz", "no gzip", "cannot be read"),
    (typing, "ultrafine/crowd/dev.json", '{"y_str": ' + '{"a":' * 99_999, "no mention that can be used"),
    (typing_ontology, "ultrafine/ontology/types.txt", "person\n" + "a" * 3_000_000 + "\n" + "a" * 3_000_000, "line 3"),
    (typing_inputs, "new.txt", '{"mention": "\\udc00"}', "half of a surrogate pair"),
    (triples, "train.txt", "a\tr\t" + "b" * 3_000_000 + "\na\tr\n", "has 2 columns instead of 3"),
    (triples, "train.txt", TRIPLES + "a\tr\t" + '"' * 300_001 + "\n", None),
    (questions, "new.txt", "a" * 3_000_000 + "\tr\t?", "has no entity"),
    (prefix, "dev.tsv", "1 2\t" + "9" * 5_000 + "\t1", "is not a list of word ids"),
    (wordnet, "data.noun", "00000010 03 n 01 " + "e" * 3_000_000, "no synset"),
    (edges, "edges.tsv", "\u202e" + "x" * 3_000_000 + "\n", "is not of the form"),
    (vectors, "glove.txt", "a 1e300 2\nb 1 2\n", None),
    (aligned, "train.en", "\u202e" + "x" * 3_000_000 + "\na\n", "line k of the one has to be"),
    (aligned, "pairs.txt", "a\u2028" * 100_000 + "\n", "it has 1 columns"),
    (treebank, "treebank.conllu", "1\t" + "x\t" * 99_999 + "\n", "columns with tabs between them"),
    (documents_csv, "train.csv", "label,text\n0," + '"' * 3_000_000, "valid.csv, line 3"),
    (documents_json, "valid.jsonl", '{"label": ' + "[" * 99_999, "nested too deeply"),
    (searches, "search.json", '{"trials": ' + "[" * 99_999, "is damaged"),
    (searches, "search.json", '{"trials": [], "' + "a" * 70_000 + '": 1}', "is damaged"),
    (tuning, f"tuning/{NAME}.csv", "rank,trial,state,val/mrr,lr,epoch\n1,1,,0.5," + "1" * 200_000, "no ranked table"),
    (tuning, "published/hnn_table1.yaml", "[" * 99_999, "is not a table file"),
    (archive("a.zip", zip_of), "a.zip", "PK", "damaged or no archive"),
    (node_inputs, "new.txt", '{"node": ' + "[" * 99_999, "has no node"),
    (pair_inputs, "new.txt", '{"nodes": ["0", "\\ud800"]}', "has no node"),
    (word_inputs, "new.txt", "c0\t" + "b" * 3_000_000, "has no word"),
    (document_inputs, "new.txt", '{"text": "a", "title": [' + "[" * 99_999, "nested too deeply"),
    (graph_named("csv"), "labels.csv", "id,class,split\nn1,a," + "\u202e" * 3_000_000, "is no split"),
    (one_table("nli", "tsv"), "all.tsv", "split\tlabel\tpremise\thypothesis\n\t" + '"' * 600_001 + "\ta\tb", "nothing"),
    (records, "out/run/history.csv", "epoch,step\n1,\u2028\n", "no row of a run's history"),
    (records, "out/run/record.json", '{"config": {}, "a": "\\ud800"}', "not the record of a run"),
)


@pytest.mark.parametrize(("reader", "name", "content", "said"), WORST, ids=lambda x: getattr(x, "__name__", ""))
def test_the_worst_files_are_used_or_refused_in_one_paragraph(tmp_path, reader, name, content, said):
    _, read = reader(tmp_path)
    (tmp_path / name).write_text(content, encoding="utf-8")
    if said is None:
        with short_messages():
            read()
    else:
        with pytest.raises(UserError, match=said), short_messages():
            read()


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_damaged_file_is_used_or_refused_in_one_paragraph(tmp_path, reader):
    files, read = reader(tmp_path)
    with short_messages():
        read()
    for seed in range(FILES):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        good = damage(files, seed)
        with contextlib.suppress(UserError), short_messages():
            read()
        for file, content in good.items():
            file.write_bytes(content)
