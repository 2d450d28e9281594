"""Readers of tables, texts and JSON, each with valid files: what `test_fuzz` damages."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import pytest
import torch

from configs import composing
from configs.build import make
from tasks import sizes
from tasks.base import TaskData
from tasks.prediction import _examples
from tasks.probing.toy import ToyEncoder
from tests.configurations import checked
from tests.tasks.entity_typing import synthetic

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
