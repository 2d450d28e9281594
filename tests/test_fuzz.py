"""Damaged files of every kind that is read: each is used all the same, or refused in one short paragraph."""

import contextlib
import csv
import gzip
import io
import json
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch
from scipy import sparse

from configs import composing
from configs.build import make
from configs.tables import load_layouts
from hyperbolic.manifolds import PoincareBall
from scripts import collect, trained
from scripts.downloads import DownloadError
from scripts.downloads.archives import unpack
from tasks import exported, search, sizes
from tasks.base import NamedPoints, TaskData
from tasks.comparison_table import as_markdown
from tasks.errors import UserError
from tasks.fingerprints import file_sha256
from tasks.graph.releases import read_release
from tasks.points_files import read_points, write_points
from tasks.prediction import _examples
from tasks.probing.conllu import read_sentences
from tasks.probing.toy import ToyEncoder
from tasks.probing.trees import measure
from tasks.reading import Faults
from tasks.word_vectors import read_vectors
from tests.configurations import checked
from tests.mutations import mutated, mutated_gzip
from tests.scripts.archives import tar_of, zip_of
from tests.scripts.test_tuning import NAME, TABLE
from tests.tasks import test_wordnet
from tests.tasks.entity_typing import synthetic
from tests.tasks.graph.releases import planetoid_files

FILES = 300  # damaged ones of each kind
LONGEST = 1000  # characters of a message; some quote several values
PAIRS = [("entailment", "A dog runs.", "An animal moves."), ("neutral", "Two men talk.", "They argue."),
         ("contradiction", "Nobody sleeps.", "Everybody sleeps.")]  # fmt: skip
TRIPLES = "a\tr\tb\nb\tr\tc\nc\ts\ta\né\ts\tb\n"
EDGES = "dog\tmammal\ncat\tmammal\nmammal\tanimal\nbird\tanimal\n"
VECTORS = "".join(f"{word} {k}.5 -{k}e-2 0.25\n" for k, word in enumerate([*synthetic.vocabulary(40), "unk", "é"]))
CORPUS = "the dog runs and the cat runs after the dog\na bird sings and the cat runs\nthe bird and the dog\n" * 20


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    composing.register()


def use(data: TaskData) -> None:
    """What a run does with data before it trains."""
    assert data.model_sizes
    json.dumps(data.identity).encode()
    for split in data.splits().values():
        split[torch.arange(min(3, len(split)))]
    json.dumps(data.fingerprint(), allow_nan=False)


def data(folder: Path, *words: str) -> Callable[[], TaskData]:
    places = (f"paths.data_dir={folder}", f"paths.cache_dir={folder}/cache")
    node = checked(*places, *words)["task"]["data"]
    node["batch_size"] = 8 if node["batch_size"] == sizes.AUTO else node["batch_size"]  # follows from the data
    probed = {"probed": ToyEncoder(8, 0)} if "probing" in node["_target_"] else {}
    return lambda: make(node, **probed)


def predict(data: TaskData, file: Path) -> None:
    """What mode=predict reads and repeats."""
    with _examples(data, str(file)) as read:
        examples, others = zip(*read, strict=True)
    data.encode(examples)[torch.arange(len(examples))]
    for example, other in zip(examples, others, strict=True):
        json.dumps(data.describe(example) | other, ensure_ascii=False, allow_nan=False).encode()


def write(folder: Path, **texts: str) -> list[Path]:
    paths = [folder / name.replace("_", ".") for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return paths


def table(ending: str, rows: Sequence[Sequence[str]]) -> str:
    """Rows, of which the first names the columns, as a file of this ending has them."""
    if ending == "jsonl":
        return "".join(json.dumps(dict(zip(rows[0], row, strict=True))) + "\n" for row in rows[1:])
    if ending == "csv":
        csv.writer(file := io.StringIO(), lineterminator="\n").writerows(rows)
        return file.getvalue()
    return "".join("\t".join(row) + "\n" for row in rows)  # quotes are characters as any


# Each of these leaves good files in a folder; it returns those to be damaged, and what reads them.
Reader = tuple[list[Path], Callable[[], object]]


def nli_json(folder: Path) -> Reader:
    names = ("gold_label", "sentence1", "sentence2")
    text = "".join(json.dumps(dict(zip(names, pair, strict=True)) | {"genre": "é"}) + "\n" for pair in PAIRS * 3)
    read = data(folder, "task=nli", f"data.dir={folder}")
    return write(folder, train_jsonl=text, dev_jsonl=text, test_jsonl=text), lambda: use(read())


def nli_table(folder: Path) -> Reader:
    text = "gold_label\tsentence1\tsentence2\tgenre\n" + "".join("\t".join(pair) + "\tfiction\n" for pair in PAIRS * 3)
    read = data(folder, "task=nli", f"data.dir={folder}", "task.data.on_error=skip")
    return write(folder, train_tsv=text, dev_txt=text, test_tsv=text), lambda: use(read())


def nli_gzip(folder: Path) -> Reader:
    names = ("label", "premise", "hypothesis")
    text = "".join(json.dumps(dict(zip(names, pair, strict=True))) + "\n" for pair in PAIRS * 3)
    read = data(folder, "task=nli", f"data.dir={folder}")
    return write(folder, train_jsonl_gz=text, dev_jsonl_gz=text, test_jsonl_gz=text), lambda: use(read())


def typing(folder: Path) -> Reader:
    root = folder / "ultrafine"
    files = [
        synthetic.write_mentions(root / name, n, n, 40, 140)
        for name, n in (("crowd/train.json", 9), ("crowd/dev.json", 4), ("crowd/test.json", 4))
    ]
    (root / "ontology").mkdir()
    (root / "ontology" / "types.txt").write_text("\n".join(synthetic.types(140)) + "\n")
    (folder / "poincare_glove").mkdir()
    (folder / "poincare_glove" / "small.txt").write_text(VECTORS)
    read = data(folder, "task=ultrafine", "task.data.preparation.workers=1")
    skip = data(folder, "task=ultrafine", "task.data.preparation.workers=1", "task.data.on_error=skip")
    turns = [read, skip]

    def both() -> None:
        turns.reverse()
        use(turns[0]())

    return files, both


def typing_ontology(folder: Path) -> Reader:
    read = typing(folder)[1]
    return [folder / "ultrafine" / "ontology" / "types.txt"], read


def triples(folder: Path) -> Reader:
    files = write(folder, train_txt=TRIPLES, valid_txt="a\ts\tb\n", test_txt="b\ts\tc\nc\tr\tb\n")
    read = data(folder, "task=kg", f"data.dir={folder}")
    return files, lambda: use(read())


def prefix(folder: Path) -> Reader:
    files = write(folder, train_tsv="1 2 3\t1 2\t1\n4 5\t6\t0\n" * 3, dev_tsv="1 2\t1\t1\n", test_tsv="7 8\t7\t1\n")
    words = (f"task.data.files.{file.stem}={file}" for file in files)
    read = data(folder, "task=prefix_toy", *words)
    return files, lambda: use(read())


CLASSES = [("Rain", "It rains. The road is wet."), ("Shares", 'They "rise", he said.'), ("é", "Nobody knows.")]
TEXTS = ("a dog runs", "two men talk .", "é sleeps", 'a "cat" runs', "nobody, here, sleeps !")
PLACES = ("train", "dev", "Training", "", "test")  # in a column split
ROWS = {  # of tables, the names of the columns first
    "nli": [("label", "premise", "hypothesis", "genre"), *((*pair, "é") for pair in PAIRS * 4)],
    "documents": [("label", "title", "text"), *((str(k % 2), *row) for k, row in enumerate(CLASSES * 4))],
    "kg": [("id", "relation", "head", "tail"), *(("1", "é", f"n{h}", f"n{t}") for t, h in permutations(range(5), 2))],
    "translation": [("en", "note", "de"), *((text, "é", text) for text in TEXTS * 3)],
    "graph": [("weight", "source", "target"), *(("0.5", f"n{k}", f"n{k // 2}") for k in range(1, 40))],
    "poincare_embeddings": [("parent", "child", "note"), *((*row.split()[::-1], "é") for row in EDGES.splitlines())],
}  # fmt: skip
SMALL = {"documents": ["task.data.min_count=1"], "translation": ["task.data.subwords=none"]}


def tables(task: str, *endings: str) -> Callable[[Path], Reader]:
    """A table for each split, whose columns have names."""

    def reader(folder: Path) -> Reader:
        names = dict(zip(("train", "valid", "test"), endings, strict=True))
        files = write(folder, **{f"{name}_{ending}": table(ending, ROWS[task]) for name, ending in names.items()})
        on_error = ["task.data.on_error=skip"] if "tsv" in endings and task in ("nli", "documents") else []
        read = data(folder, f"task={task}", f"data.dir={folder}", *SMALL.get(task, ()), *on_error)
        return files, lambda: use(read())

    reader.__name__ = f"tables-{task}-{'-'.join(endings)}"
    return reader


def with_splits(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    return [("split", *rows[0]), *((PLACES[k % len(PLACES)], *row) for k, row in enumerate(rows[1:]))]


def one_table(task: str, ending: str, setting: str = "data.dir") -> Callable[[Path], Reader]:
    """A table with all splits, which a column says."""

    def reader(folder: Path) -> Reader:
        rows = ROWS[task] if task == "poincare_embeddings" else with_splits(ROWS[task])
        files = write(folder, **{f"all_{ending}": table(ending, rows)})
        read = data(folder, f"task={task}", f"{setting}={files[0]}", *SMALL.get(task, ()))
        return files, lambda: use(read())

    reader.__name__ = f"one_table-{task}-{ending}"
    return reader


def graph_named(ending: str) -> Callable[[Path], Reader]:
    """A folder whose tables name their columns, with splits of the edges and of the nodes."""

    def reader(folder: Path) -> Reader:
        labels = [("id", "class"), *((f"n{k}", "ab"[k // 6 % 2]) for k in range(40))]
        features = [("index", "node", "x", "y"), *((str(k), f"n{k}", f"{k}.5", "-1e-2") for k in range(40))]
        tables = {"edges": with_splits(ROWS["graph"]), "labels": with_splits(labels), "features": features}
        files = write(folder, **{f"{name}_{ending}": table(ending, rows) for name, rows in tables.items()})
        turns = [data(folder, f"task={task}", f"data.dir={folder}") for task in ("graph", "graph_nc")]

        def both() -> None:
            turns.reverse()
            use(turns[0]())

        return files, both

    reader.__name__ = f"graph_named-{ending}"
    return reader


def new_examples(task: str, file: str, content: str) -> Callable[[Path], Reader]:
    """What the toy of a task reads with mode=predict."""

    def reader(folder: Path) -> Reader:
        known = data(folder, f"task={task}")()
        files = write(folder, **{file: content})
        return files, lambda: predict(known, files[0])

    reader.__name__ = f"new_examples-{task}-{file}"
    return reader


nli_inputs = new_examples(
    "nli_toy", "new_txt",
    'A man\tA person\n\nThe  cat\tsleeps\n{"premise": "A dog", "hypothesis": "An animal", "id": 1}\n',
)  # fmt: skip
typing_inputs = new_examples(
    "entity_typing_toy", "new_txt",
    'A man in [the park] sits.\n{"left": "A", "mention": "dog", "right": ["barks", "."]}\n'
    '{"left_context_token": [], "mention_span": "He", "right_context_token": ["is"], "id": null}\n',
)  # fmt: skip
questions = new_examples(
    "kg_completion_toy", "new_txt",
    '0.1\tancestor_of\t?\n?\tancestor_of\t0.1.0\n\n'
    '{"head": "0", "relation": "ancestor_of", "tail": "0.1", "id": [2]}\n',
)  # fmt: skip
document_inputs = new_examples(
    "document_classification_toy", "new_txt",
    'It rains. The road is wet.\n\n{"title": "é", "text": "They rise.", "id": 2}\n',
)  # fmt: skip
node_inputs = new_examples("graph_nc_toy", "new_txt", '0.2.0.1\n\n0\n{"node": "0.1", "id": 2}\n')
pair_inputs = new_examples("graph_toy", "new_txt", '0.1\t0.1.0\n\n0.2\n{"nodes": ["0.1", "0"], "id": 2}\n')
word_inputs = new_examples("poincare_glove_toy", "new_txt", 'c0\tb2\n\nc0\n{"word": "c0", "context": "b9", "id": 2}\n')
NEW = (
    nli_inputs, typing_inputs, questions, document_inputs, node_inputs, pair_inputs, word_inputs,
    new_examples("prefix_toy", "new_txt", "1 2\t1\n\n3 4 5\t6\n"),
    new_examples("translation_toy", "new_txt", "w1 w2\nw3 unknown é\n\n  w4  w5 \n"),
    new_examples("poincare_embeddings_toy", "new_txt", '0.1\t0\n\n0.1\n{"node": "0.1", "above": "0", "id": 2}\n'),
    new_examples("wordnet_subtree_toy", "new_txt", '0.1.1\n\n0\n{"node": "0.1", "id": 2}\n'),
    new_examples("probing_toy", "new_txt", 'w0.1 w0 .\n\nw0\n{"words": ["w0", "w0.2"], "id": 2}\n'),
    new_examples("graph_toy", "plain_csv", "0.1,0.1.0\n0.2,0\n"),
    new_examples("poincare_embeddings_toy", "plain_csv", '0.1;0\n"0.2";0\n'),
    new_examples("kg_completion_toy", "plain_csv", '0.1,ancestor_of,?\n?,"ancestor_of",0.1.0\n'),
)  # fmt: skip
COLUMNS = {  # of tables of new examples, with further ones
    "nli_toy": [("id", "premise", "hypothesis", "label"), *((str(k), *p[1:], p[0]) for k, p in enumerate(PAIRS))],
    "document_classification_toy": [("label", "title", "text"), *(("é", *row) for row in CLASSES)],
    "kg_completion_toy": [("id", "head", "relation", "tail"),
                          ("1", "0.1", "ancestor_of", "?"), ("é", "?", "ancestor_of", "0.1.0")],
    "graph_toy": [("weight", "source", "target"), ("0.5", "0.1", "0.1.0"), ("é", "0.2", "")],
    "graph_nc_toy": [("class", "node", "note"), ("1", "0.1", "é"), ("", "0", "")],
    "poincare_embeddings_toy": [("note", "child", "parent"), ("é", "0.1", "0"), ("", "0.2", "")],
    "translation_toy": [("id", "source", "target"), *((str(k), text, "é") for k, text in enumerate(TEXTS))],
}  # fmt: skip
NAMED = (
    *(new_examples(task, "new_csv", table("csv", rows)) for task, rows in COLUMNS.items()),
    *(new_examples(task, "new_tsv", table("tsv", rows)) for task, rows in COLUMNS.items()),
    *(one_table(task, ending) for task in ("nli", "documents", "translation") for ending in ("csv", "tsv", "jsonl")),
    *(one_table(task, ending) for task in ("kg", "graph") for ending in ("csv", "tsv")),
    *(one_table("poincare_embeddings", ending, "task.data.file") for ending in ("csv", "tsv")),
    tables("kg", "csv", "tsv", "csv"), tables("translation", "csv", "tsv", "jsonl"),
    graph_named("csv"), graph_named("tsv"),
)  # fmt: skip
documents_csv, documents_tsv, documents_json = (tables("documents", *[each] * 3) for each in ("csv", "tsv", "jsonl"))


def documents_folder(folder: Path) -> Reader:
    """A folder for each class, with a file for each document."""
    home, files = folder / "classes", []
    for name in ("a", "é"):
        (home / name).mkdir(parents=True)
        for k, texts in enumerate(CLASSES * 4):
            files += [home / name / f"{k}.txt"]
            files[-1].write_text("\n".join(texts), encoding="utf-8")
    read = data(folder, "task=documents", f"data.dir={home}", "task.data.min_count=1")
    return files, lambda: use(read())


def searches(folder: Path) -> Reader:
    settings = [{"optim.lr": f"0.0{k}", "encoder": ("gru", "rnn")[k % 2]} for k in range(10)]
    names = [f"{search.PREFIX}{k:03d}" for k in range(10)]
    trials = [search.Trial(k, settings[k], search.COMPLETE, names[k], k / 10, 3, 0, "abc", 2.5) for k in range(9)]
    trials += [search.Trial(9, settings[9], search.FAILED, names[9], reason="it ended")]
    identity = {"words": [], "space": {"optim.lr": [0.0, 0.1, False, False], "encoder": ["gru", "rnn"]}}
    words = ["task=kg", "seed=1"]
    made = search.Search("kg", ["-m"], words, "random", 0, 10, identity, "0", "val/mrr", "max", trials, {})
    search.write(made, folder)

    def read() -> None:
        found = search.read(folder)
        assert search.rows(found)
        assert as_markdown(search.grid(found))
        assert search.again_over_seeds(found, found.ranked()[0]) if found.trials else True

    return [folder / search.SUMMARY], read


def tuning(folder: Path) -> Reader:
    """What a search chose for a cell of a table, and the table."""
    (folder / "tuning").mkdir()
    (folder / "published").mkdir()
    rows = [("rank", "trial", "state", "val/accuracy", "optim.lr", "encoder", "epoch", "wall_s", "seed", "commit"),
            ("1", "0", "complete", "0.7", "0.03", "", "5", "60.5", "9", "abc"),
            ("2", "1", "failed", "", "0.01", "gru", "", "60.5", "9", "abc")]  # fmt: skip
    files = [folder / "tuning" / f"{NAME}.csv", folder / "published" / "hnn_table1.yaml"]
    for file, text in zip(files, (table("csv", rows), TABLE), strict=True):
        file.write_text(text, encoding="utf-8")

    def read() -> None:
        for cell in (cell for layout in load_layouts(folder / "published") for cell in layout.cells):
            assert all(cell.words)
            print(cell.tuning.note if cell.tuning else "")

    return files, read


def archive(name: str, pack: Callable[[dict[str, bytes]], bytes]) -> Callable[[Path], Reader]:
    def reader(folder: Path) -> Reader:
        (folder / name).write_bytes(pack({"a.json": b"{}\n" * 200, "b/c.txt": "é\n".encode() * 200}))

        def read() -> None:
            try:
                unpack(folder / name, folder / "out", lambda member: member, 10_000)
            except DownloadError as error:
                assert not (folder / "out").exists()
                raise UserError(str(error)) from None
            finally:
                shutil.rmtree(folder / "out", ignore_errors=True)
                assert {path.name for path in folder.iterdir()} == {name}

        return [folder / name], read

    reader.__name__ = f"archive-{name}"
    return reader


def wordnet(folder: Path) -> Reader:
    test_wordnet.write(folder)
    read = data(folder, "task=poincare_embeddings", f"task.data.wordnet={folder}")
    return [folder / "data.noun", folder / "index.noun"], lambda: use(read())


def edges(folder: Path) -> Reader:
    files = write(folder, edges_tsv=EDGES)
    read = data(folder, "task=poincare_embeddings", f"task.data.file={files[0]}")
    return files, lambda: use(read())


def points(folder: Path) -> Reader:
    names = ("dog", "mammal", "cat", "animal", "bird")
    file = write_points(folder / "points.npz", names, np.random.default_rng(0).random((5, 2)) / 3, "PoincareBall", 1.0)
    return [file], lambda: read_points(file, "task.embeddings")


def vectors(folder: Path) -> Reader:
    """With and without the first line of word2vec, and as its binary files begin, which are not read."""
    binary = b"42 3\n" + b"".join(b"w%d " % k + np.float32([k, 1, 2]).tobytes() for k in range(42))
    files = [*write(folder, glove_txt=VECTORS, word2vec_txt="42 3\n" + VECTORS), folder / "word2vec.bin"]
    files[2].write_bytes(binary)
    turns = [(file, on_error) for file in files for on_error in ("fail", "skip")]

    def read() -> None:
        for file, on_error in turns:
            with contextlib.suppress(UserError):
                read_vectors([file], folder, "auto", 1.0, folder / "cache", on_error)

    return files, read


def corpus(folder: Path) -> Reader:
    files = write(folder, corpus_txt=CORPUS)
    small = ("task.data.min_count=1", "task.data.sizes={dev: 0.2, test: 0.2}")
    read = data(folder, "task=poincare_glove", f"task.data.file={files[0]}", *small)
    return files, lambda: use(read())


def aligned(folder: Path) -> Reader:
    """Aligned files, plain and packed, and a table with both languages."""
    words = ("a dog runs", "two men talk .", "é sleeps", "&quot; a cat &quot; runs", "nobody sleeps here !")
    text = "".join(f"{word}\n" for word in words * 4)
    files = write(folder, train_en=text, train_de_gz=text, valid_en=text, valid_de=text, test_en=text, test_de=text)
    files += write(folder, pairs_txt="".join(f"{word}\t{word}\tsource {k}\n" for k, word in enumerate(words * 9)))
    small = ("task.data.subwords=none", "task.data.held_out.shares={dev: 0.2, test: 0.2}")
    read = data(folder, "task=translation", f"data.dir={folder}", "task.data.subwords=none")
    read_table = data(folder, "task=tatoeba", f"task.data.folder={folder}", "task.data.table.file=pairs.txt", *small)

    def both() -> None:
        use(read())
        use(read_table())

    return files, both


def treebank(folder: Path) -> Reader:
    text = "".join(
        "# text = A dog's barks.\n1\tA\ta\tDET\tDT\t_\t2\tdet\t_\t_\n2-3\tdog's\t_\t_\t_\t_\t_\t_\t_\t_\n"
        "2\tdog\tdog\tNOUN\tNN\tNumber=Sing\t4\tnsubj\t_\t_\n3\t's\t's\tPART\tPOS\t_\t2\tcase\t_\t_\n"
        "4\tbarks\tbark\tVERB\tVBZ\t_\t0\troot\t_\t_\n4.1\té\té\tX\tX\t_\t_\t_\t4:dep\t_\n"
        "5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_\n\n"
        for _ in range(3)
    )
    files = write(folder, treebank_conllu=text, packed_conllu_gz=text)

    def read() -> None:
        for file in files:
            for on_error in ("skip", "fail"):
                for sentence in read_sentences(file, "xpos", Faults(on_error)):
                    assert len(sentence.words) == len(sentence.heads) == len(sentence.punctuation)
                    measure(sentence.heads)

    return files, read


def records(folder: Path) -> Reader:
    kept = next(collect.RUNS.glob("hnn_prefix10_gru_hyp-*.json")).read_bytes()
    run = folder / "out" / "run"
    run.mkdir(parents=True)
    (run / "record.json").write_bytes(kept)
    (run / "history.csv").write_text("epoch,step,val/accuracy,seconds\n1,4,0.5,1.0\n2,8,,2.0\n")

    def read() -> None:
        shutil.rmtree(folder / "runs", ignore_errors=True)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            collect.main([str(folder / "out")], root=folder, runs=folder / "runs")
        for line in said.getvalue().splitlines():
            assert line.startswith(("refused: ", "error: ")), line
            assert len(line) < LONGEST + 100
        for run_read in trained.read_runs([run]):
            assert run_read.title
            assert run_read.stem
            assert run_read.space
            assert run_read.best_epoch is None or run_read.best_epoch >= 0

    return [run / "record.json", run / "history.csv"], read


def caches(folder: Path) -> Reader:
    """What describes the arrays of a cache; they themselves are compared by their sizes."""
    text = "label\tpremise\thypothesis\n" + "".join("\t".join(pair) + "\n" for pair in PAIRS)
    write(folder, train_tsv=text, dev_tsv=text, test_tsv=text)
    (folder / "poincare_glove").mkdir()
    (folder / "poincare_glove" / "small.txt").write_text(VECTORS)
    read = data(folder, "task=nli", f"data.dir={folder}", f"paths.cache_dir={folder}/kept")
    use(read())
    read_vectors(["poincare_glove/small.txt"], folder, "auto", 1.0, folder / "kept", "fail")

    def both() -> None:
        use(read())
        read_vectors(["poincare_glove/small.txt"], folder, "auto", 1.0, folder / "kept", "fail")

    return sorted((folder / "kept").rglob("meta.json")), both


def graph_folder(folder: Path) -> Reader:
    write(folder, edges_tsv="".join(f"n{k}\tn{k // 2}\n" for k in range(1, 40)))
    write(folder, labels_tsv="".join(f"n{k}\t{'ab'[k % 2]}\n" for k in range(40)))
    write(folder, features_tsv="".join(f"n{k}\t{k}.5\t-1e-2\n" for k in range(40)))
    links, nodes = (data(folder, f"task={task}", f"data.dir={folder}") for task in ("graph", "graph_nc"))
    turns = [links, nodes]

    def both() -> None:
        turns.reverse()
        use(turns[0]())

    return [folder / f"{part}.tsv" for part in ("edges", "labels", "features")], both


def graph_arrays(folder: Path) -> Reader:
    write(folder, edges_tsv="".join(f"{k}\t{k // 2}\n" for k in range(1, 40)))
    np.save(folder / "features.npy", np.random.default_rng(0).random((40, 3), dtype=np.float32))
    read = data(folder, "task=graph", f"data.dir={folder}")
    return [folder / "features.npy"], lambda: use(read())


def graph_pickles(folder: Path) -> Reader:
    """As Planetoid's."""
    known = planetoid_files(folder / "cora")
    return known, lambda: read_release(folder / "cora", "cora", labelled=True)


def graph_tables(folder: Path) -> Reader:
    """As those of HGCN's trees."""
    home = folder / "disease_nc"
    home.mkdir()
    (home / "disease_nc.edges.csv").write_text("".join(f"{k},{k // 2}\n" for k in range(1, 40)))
    np.save(home / "disease_nc.labels.npy", np.arange(40) % 2)
    sparse.save_npz(home / "disease_nc.feats.npz", sparse.csr_array(np.eye(40)))
    return sorted(home.iterdir()), lambda: read_release(home, "disease_nc", labelled=True)


def graph_airports(folder: Path) -> Reader:
    graph = networkx.path_graph(12)
    for k, node in graph.nodes.items():
        node["feat"] = [k, 1.0, 2.0, 3.0, k / 6]
    (folder / "airport").mkdir()
    file = folder / "airport" / "airport.p"
    file.write_bytes(pickle.dumps(graph))
    return [file], lambda: read_release(file.parent, "airport", labelled=True)


def exports(folder: Path) -> Reader:
    """With sums that are right of what is damaged, too."""
    checkpoint = {"state_dict": {"a": torch.ones(2, 3)}, "config": {"seed": 1}, "data": {"b": "c"}, "metrics": {"d": 0.5}}
    points = {"words": NamedPoints(["dog", "é"], PoincareBall(c=0.5), torch.tensor([[0.1, 0.2], [0.3, -0.4]]))}
    home = exported.write(folder / "model", checkpoint, points, "# A card\n")
    turns = [True, False]

    def read() -> None:
        turns.reverse()
        if turns[0]:
            sums = "".join(f"{file_sha256(home / file)}  {file}\n" for file in exported.FILES)
            (home / exported.SUMS).write_text(sums)
        exported.load(home)

    return sorted(home.iterdir()), read


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
