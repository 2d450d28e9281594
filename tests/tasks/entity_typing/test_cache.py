"""Prepared files: as in memory, whole or not at all, once for all processes, and made again when anything changed."""

import json
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tasks.entity_typing import cache, chunks
from tasks.entity_typing.cache import Recipe, prepare_mentions
from tasks.entity_typing.examples import Encoder, Limits, encode
from tasks.entity_typing.mentions import parse
from tasks.entity_typing.release import Source
from tasks.errors import UserError
from tasks.fingerprints import file_sha256
from tasks.text import UNK
from tests.tasks.entity_typing import synthetic

LIMITS = Limits(5, 10, 25)
WORDS = synthetic.vocabulary(500)
INDEX = {w: k for k, w in enumerate(WORDS, start=2)}


def recipe(folder: Path, sizes=(300, 40), **changes) -> Recipe:
    """A recipe for made-up files of some sizes; the files are written where they are not there yet."""
    sources = []
    for k, n in enumerate(sizes):
        path = folder / f"part{k}.json"
        if not path.exists():
            synthetic.write_mentions(path, n, k, 500, 160)
        sources.append(Source(f"part{k}", path.name, path))
    settings = {"index": INDEX, "limits": LIMITS, "types": ("person", "group"), "grow": True, "keep_untyped": False}
    return Recipe(tuple(sources), **(settings | {"on_error": "fail"} | changes))


def expected(job: Recipe) -> tuple:
    """What a recipe gives, in memory."""
    encoder = Encoder(job.index, job.limits, {t: k for k, t in enumerate(job.types)}, grow=True)
    mentions = [parse(line) for s in job.sources for line in s.path.read_bytes().splitlines()]
    return encode(mentions, encoder), tuple(encoder.types)


def same(found, columns) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(found, columns, strict=True))


@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_prepared_files_are_as_in_memory(tmp_path, monkeypatch, size):
    monkeypatch.setattr(chunks, "CHUNK", size)
    job = recipe(tmp_path)
    found = prepare_mentions(tmp_path / "cache", "made", job, 1)
    columns, types = expected(job)
    assert same(found.columns, columns)
    assert found.types == types
    assert [(p["start"], p["stop"], p["lines"]) for p in found.parts.values()] == [(0, 300, 300), (300, 340, 40)]
    assert found.parts["part0"]["sha256"] == file_sha256(tmp_path / "part0.json")
    found.columns.words[0] = 7
    assert same(prepare_mentions(tmp_path / "cache", "made", job, 1).columns, columns), "changes are not written back"


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_several_processes_give_the_same(tmp_path, monkeypatch, real):
    job = recipe(tmp_path)
    monkeypatch.setattr(chunks, "CHUNK", 8000)
    monkeypatch.setattr(chunks, "PARALLEL", 0)
    if not real:  # threads start faster, and end in another order too
        monkeypatch.setattr(chunks.signal, "signal", lambda *a: None)
        monkeypatch.setattr(
            chunks, "ProcessPoolExecutor", lambda n, _, start, fields: ThreadPoolExecutor(n, "", start, fields)
        )
    found = prepare_mentions(tmp_path / "cache", "made", job, 2)
    columns, types = expected(job)
    assert same(found.columns, columns)
    assert found.types == types


def test_the_second_time_nothing_is_made(tmp_path, capsys, monkeypatch):
    first = prepare_mentions(tmp_path / "cache", "made", recipe(tmp_path), 1)
    assert "made: 340 mentions prepared in" in capsys.readouterr().out
    monkeypatch.setattr(cache, "_make", None)
    second = prepare_mentions(tmp_path / "cache", "made", recipe(tmp_path), 1)
    assert same(first.columns, second.columns)
    assert first.types == second.types
    assert capsys.readouterr().out == ""
    (meta,) = (tmp_path / "cache").glob("*/meta.json")
    assert "tmp" not in meta.read_text()


@pytest.mark.parametrize(
    "changes",
    [
        {"limits": Limits(4, 10, 25)},
        {"index": INDEX | {"more": 502}},
        {"index": dict(zip(INDEX, [3, 2, *range(4, 502)], strict=True))},
        {"types": ("person",)},
        {"on_error": "skip"},
        {"keep_untyped": True},
    ],
)
def test_other_settings_are_another_folder(tmp_path, changes):
    prepare_mentions(tmp_path / "cache", "made", recipe(tmp_path), 1)
    job = recipe(tmp_path, **changes)
    prepare_mentions(tmp_path / "cache", "made", job, 1)
    assert len([f for f in (tmp_path / "cache").iterdir() if f.is_dir()]) == 2


def test_a_file_that_changed_is_read_again(tmp_path):
    job = recipe(tmp_path)
    prepare_mentions(tmp_path / "cache", "made", job, 1)
    path = job.sources[1].path
    stat = path.stat()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(reversed(lines)))  # of the same size
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))
    columns, _ = expected(job)
    assert same(prepare_mentions(tmp_path / "cache", "made", job, 1).columns, columns)


def test_what_was_interrupted_leaves_nothing_and_is_made_again(tmp_path, monkeypatch):
    job, folder = recipe(tmp_path), tmp_path / "cache"
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "CHUNK", 1000)
        patch.setattr(chunks.ChunkEncoder, "__call__", interrupted_after(5))
        with pytest.raises(KeyboardInterrupt):
            prepare_mentions(folder, "made", job, 1)
    assert [f.name for f in folder.iterdir() if f.is_dir()] == []
    key = next(f.stem for f in folder.glob("*.lock"))
    (folder / f"{key}.abc.part").mkdir()  # of a process that was killed
    (folder / f"{key}.abc.part" / "words.bin").write_bytes(b"half")
    columns, _ = expected(job)
    assert same(prepare_mentions(folder, "made", job, 1).columns, columns)
    assert [f.name for f in folder.iterdir() if f.is_dir()] == [key]


def interrupted_after(calls: int):
    encoder, left = chunks.ChunkEncoder.__call__, [calls]

    def call(self, *arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return encoder(self, *arguments)

    return call


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest", "no manifest", "empty manifest"])
def test_a_damaged_folder_is_made_again(tmp_path, damage):
    job, folder = recipe(tmp_path), tmp_path / "cache"
    prepare_mentions(folder, "made", job, 1)
    place = next(f for f in folder.iterdir() if f.is_dir())
    manifest = place / "meta.json"
    if damage == "cut":
        (place / "words.bin").write_bytes((place / "words.bin").read_bytes()[:-4])
    elif damage == "gone":
        (place / "types.bin").unlink()
    elif damage == "manifest":
        manifest.write_text(manifest.read_text().replace("340", "341"))
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text("")
    with pytest.warns(UserWarning, match="is damaged .* made again"):
        found = prepare_mentions(folder, "made", job, 1)
    assert same(found.columns, expected(job)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare_mentions(folder, "made", job, 1)


def test_of_several_that_start_together_one_prepares(tmp_path, monkeypatch):
    job, made, found = recipe(tmp_path), [], []
    make = cache._make
    monkeypatch.setattr(cache, "_make", lambda *a: (made.append(1), make(*a)))
    threads = [
        threading.Thread(target=lambda: found.append(prepare_mentions(tmp_path / "cache", "made", job, 1))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(found) == 4
    assert all(same(f.columns, found[0].columns) for f in found)


def put(path: Path, number: int, line: bytes) -> None:
    """Replace a line of a file, counted from 1."""
    lines = path.read_bytes().splitlines()
    lines[number - 1] = line
    path.write_bytes(b"\n".join(lines) + b"\n")


BAD = {
    "json": (b'{"mention_span": "a', "it is not a JSON object"),
    "utf-8": (b'{"mention_span": "\xff"}', "it is not UTF-8"),
    "type": (b'{"left_context_token": [], "mention_span": "a", "right_context_token": [], "y_str": []}', "no type"),
    "mention": (b'{"left_context_token": [], "mention_span": "", "right_context_token": [], "y_str": ["a"]}', "empty"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("number", [1, 37, 40])
def test_a_faulty_line_is_named_or_skipped_and_counted(tmp_path, monkeypatch, kind, number):
    monkeypatch.setattr(chunks, "CHUNK", 3000)
    job = recipe(tmp_path)
    line, said = BAD[kind]
    put(job.sources[1].path, number, line)
    with pytest.raises(UserError, match=rf"part1\.json, line {number}: .*{said}.*task\.data\.on_error=skip"):
        prepare_mentions(tmp_path / "cache", "made", job, 1)
    assert not [f for f in (tmp_path / "cache").iterdir() if f.is_dir()]
    part = prepare_mentions(tmp_path / "cache", "made", recipe(tmp_path, on_error="skip"), 1).parts["part1"]
    assert (part["skipped"], part["lines"], part["stop"] - part["start"]) == (1, 40, 39)
    assert part["first_fault"].startswith(f"line {number}: ")


def test_where_all_lines_are_skipped_the_first_is_named(tmp_path):
    job = recipe(tmp_path, on_error="skip")
    job.sources[1].path.write_text("[\n{\n")
    with pytest.raises(UserError, match=r"part1\.json has no mention that can be used; 2 were skipped, and the first is line 1: it"):
        prepare_mentions(tmp_path / "cache", "made", job, 1)


def test_types_outside_of_the_ontology_are_named_or_left_out_and_counted(tmp_path):
    known = tuple(synthetic.types(160))
    lines = [
        {"left_context_token": [], "mention_span": "w1", "right_context_token": [], "y_str": types}
        for types in (["person"], ["person", "strange"], ["strange"], ["group", "strange", "odd"])
    ]
    path = tmp_path / "part0.json"
    path.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(UserError, match=r"part0\.json, line 2: the type 'strange' is not in the list of types"):
        prepare_mentions(tmp_path / "cache", "made", recipe(tmp_path, (4,), types=known, grow=False), 1)
    found = prepare_mentions(tmp_path / "cache", "made", recipe(tmp_path, (4,), types=known, grow=False, on_error="skip"), 1)
    assert (found.parts["part0"]["skipped"], found.parts["part0"]["outside"]) == (1, 3)
    assert [known[k] for k in found.columns.types] == ["person", "person", "group"]
    assert found.types == known


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_blank_lines_are_passed_over_and_counted_as_lines(tmp_path, monkeypatch, on_error):
    monkeypatch.setattr(chunks, "CHUNK", 3000)
    job = recipe(tmp_path, on_error=on_error)
    columns, types = expected(job)
    path = job.sources[1].path
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([b"", *lines[:3], b" \t", b"\r", *lines[3:], b"", b""]) + b"\n")
    found = prepare_mentions(tmp_path / "cache", "made", job, 1)
    assert same(found.columns, columns)
    assert found.types == types
    part = found.parts["part1"]
    assert (part["skipped"], part["first_fault"], part["lines"], part["start"], part["stop"]) == (0, None, 45, 300, 340)
    put(path, 7, b"nonsense")
    with pytest.raises(UserError, match=r"part1\.json, line 7: it is not a JSON object"):
        prepare_mentions(tmp_path / "cache", "made", recipe(tmp_path), 1)


@pytest.mark.parametrize("size", [200, 1 << 20])
def test_words_without_a_vector_are_counted(tmp_path, monkeypatch, size):
    """Running ones by source; distinct ones in lower case, where they first appear in their split."""
    monkeypatch.setattr(chunks, "CHUNK", size)

    def line(left: str, mention: str, right: str, types=("person",)) -> bytes:
        parts = {"left_context_token": left.split(), "mention_span": mention, "right_context_token": right.split()}
        return json.dumps(parts | {"y_str": types}).encode()

    lines = {
        "a": [
            line("w1 New", "w2 new", "w3 old"),
            line("w1", "w2", "w3"),
            line("lost", "w1", "", ()),
            line("", "OLD", ""),
        ],
        "b": [line("new", "newer", "")] * 2,
        "dev": [line("w1", "newer", ""), line("trimmed " + "w1 " * 20, "w2", "w3 " * 10)],
    }
    sources = []
    for name, content in lines.items():
        path = tmp_path / f"{name}.json"
        path.write_bytes(b"\n".join(content))
        sources.append(Source(name, path.name, path, "dev" if name == "dev" else "train"))
    settings = {"index": INDEX, "limits": LIMITS, "types": (), "grow": True, "keep_untyped": False, "on_error": "skip"}
    job = Recipe(tuple(sources), **settings)
    for found in (prepare_mentions(tmp_path / "cache", "made", job, 1), prepare_mentions(tmp_path / "cache", "made", job, 1)):
        counts = {p: (part["words"], part["unknown"], part["unknown_distinct"]) for p, part in found.parts.items()}
        assert counts == {"a": (10, 4, 2), "b": (4, 4, 1), "dev": (27, 1, 1)}
        assert (found.columns.words >= 1).all()
        assert int((found.columns.words == UNK).sum()) == 9


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\r\n\n"])
def test_a_file_without_mentions_is_named(tmp_path, content):
    job = recipe(tmp_path)
    job.sources[1].path.write_bytes(content)
    with pytest.raises(UserError, match=r"part1\.json has no mention that can be used"):
        prepare_mentions(tmp_path / "cache", "made", job, 1)


def test_a_file_that_changes_meanwhile_is_named(tmp_path, monkeypatch):
    job, encoder = recipe(tmp_path), chunks.ChunkEncoder.__call__

    def changes(self, path, start, stop):
        os.utime(path, ns=(0, 0))
        return encoder(self, path, start, stop)

    monkeypatch.setattr(chunks.ChunkEncoder, "__call__", changes)
    with pytest.raises(UserError, match="changed while it was read"):
        prepare_mentions(tmp_path / "cache", "made", job, 1)
    assert not [f for f in (tmp_path / "cache").iterdir() if f.is_dir()]


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"could not be prepared in .*paths\.cache_dir="):
        prepare_mentions(tmp_path / "file" / "cache", "made", recipe(tmp_path), 1)


@pytest.mark.parametrize("size", [1, 5, 8, 9, 100])
@pytest.mark.parametrize("content", [b"", b"a", b"aaa\nbbb\n", b"aaa\n\nbbbbbbbbbbb\ncc"])
def test_pieces_end_where_lines_end_and_miss_nothing(tmp_path, size, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    found = list(chunks.pieces(path, size))
    assert b"".join(content[a:b] for a, b in found) == content
    assert all(content[b - 1 : b] == b"\n" for _, b in found[:-1])
    assert all(b > a for a, b in found)


@pytest.mark.slow  # starts processes
def test_a_process_that_is_ended_from_outside_is_an_error_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "PARALLEL", 0)
    monkeypatch.setattr(chunks, "_encode", synthetic.end_process)
    with pytest.raises(UserError, match=r"ended from outside.*task\.data\.preparation\.workers=1"):
        list(chunks.encode_chunks(chunks.ChunkEncoder({}, LIMITS, {}, True, False, False), [Path(__file__)], 2))
