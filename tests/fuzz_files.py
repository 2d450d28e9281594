"""Readers of graphs, corpora, treebanks, archives, records and searches, each with valid files: what `test_fuzz` damages."""

import contextlib
import io
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import networkx
import numpy as np
import torch
from scipy import sparse

from configs.tables import load_layouts
from hyperbolic.manifolds import PoincareBall
from scripts import collect, trained
from scripts.downloads import DownloadError
from scripts.downloads.archives import unpack
from tasks import exported, search
from tasks.base import NamedPoints
from tasks.comparison_table import as_markdown
from tasks.errors import UserError
from tasks.fingerprints import file_sha256
from tasks.graph.releases import read_release
from tasks.points_files import read_points, write_points
from tasks.probing.conllu import read_sentences
from tasks.probing.trees import measure
from tasks.reading import Faults
from tasks.word_vectors import read_vectors
from tests.fuzz_tables import CORPUS, EDGES, LONGEST, PAIRS, VECTORS, Reader, data, table, use, write
from tests.scripts.test_tuning import NAME, TABLE
from tests.tasks import test_wordnet
from tests.tasks.graph.releases import planetoid_files


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
