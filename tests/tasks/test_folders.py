"""Files appear whole or not at all."""

import errno
import multiprocessing
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from tasks.folders import cached, read_arrays, whole_file, whole_folder, write_arrays
from tasks.word_vectors import read_vectors

PROCESSES, ROUNDS = 8, 3


def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path, monkeypatch):
    target = tmp_path / "record.json"
    target.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"), whole_file(target) as part:
        part.write_text("new")
    assert os.listdir(tmp_path) == ["record.json"]
    assert target.read_text() == "old"


def full(*_) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_by_the_place_that_was_to_be_written(tmp_path):
    for make, place in ((whole_file, tmp_path / "record.json"), (whole_folder, tmp_path / "cache" / "pairs")):
        with pytest.raises(OSError, match="No space left") as error, make(place):
            full()
        assert error.value.filename == str(place)
    with pytest.raises(OSError, match="No space left") as error, whole_file(tmp_path / "best.ckpt") as part:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/tmp1234", None, str(part))  # as a copy to it
    assert error.value.filename == str(tmp_path / "best.ckpt")
    with pytest.raises(OSError, match="elsewhere") as error, whole_folder(tmp_path / "cache" / "pairs"):
        raise FileNotFoundError(errno.ENOENT, "No such file", "elsewhere.txt")
    assert error.value.filename == "elsewhere.txt"
    assert [f for f in tmp_path.rglob("*") if f.name != "cache"] == []


def numbers(place: Path, value: int, fill=lambda: None) -> np.ndarray:
    """An array that is kept in a cache."""

    def write(folder: Path, array: np.ndarray) -> None:
        write_arrays(folder, {"numbers": array}, [value], None)
        fill()

    return cached(place, lambda: read_arrays(place, [value])[0]["numbers"], lambda: np.full(9, value), write, "numbers")


def test_a_cache_on_a_full_disk_is_done_without_and_its_folder_named(tmp_path):
    with pytest.warns(UserWarning, match=rf"numbers could not be kept in {tmp_path} \(No space left.*paths.cache_dir=..."):
        assert numbers(tmp_path / "n", 3, full).tolist() == [3] * 9
    assert [f.name for f in tmp_path.iterdir()] == ["n.lock"]


@pytest.mark.parametrize("damage", ["cut", "longer", "gone", "nested", "number", "recipe"])
def test_a_damaged_cache_is_made_again(tmp_path, damage):
    place = tmp_path / "n"
    numbers(place, 3)
    data, meta = place / "numbers.bin", place / "meta.json"
    if damage in ("cut", "longer"):
        data.write_bytes(data.read_bytes()[:-1] if damage == "cut" else data.read_bytes() + b"0")
    elif damage == "gone":
        data.unlink()
    else:
        new = {"nested": "[" * 99_999, "number": '{"meta": 1}', "recipe": meta.read_text().replace("[3]", "[4]")}
        meta.write_text(new[damage])
    with pytest.warns(UserWarning, match="n is damaged"):
        assert numbers(place, 3).tolist() == [3] * 9
    assert numbers(place, 3).tolist() == [3] * 9


def start_together(folder: Path, barrier, answers) -> None:
    """One of several processes that start at the same moment, in every round with an empty cache."""
    results: list[object] = []
    try:
        for round_ in range(ROUNDS):
            barrier.wait(60)
            text = folder / f"{round_}.txt"
            vectors = read_vectors([text], folder, "euclidean", 1.0, folder / "cache", "fail")
            results.append((len(vectors.index), int(numbers(folder / "cache" / f"n{round_}", round_).sum())))
    except Exception as error:
        barrier.abort()
        results.append(repr(error))
    answers.put(results)


def test_processes_that_start_together_all_get_what_is_kept(tmp_path):
    for round_ in range(ROUNDS):
        (tmp_path / f"{round_}.txt").write_text("".join(f"w{k} {k} 1 2\n" for k in range(200 + round_)))
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(PROCESSES), context.SimpleQueue()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fork.*")  # of a process with threads, which these do not use
        processes = [context.Process(target=start_together, args=(tmp_path, barrier, answers)) for _ in range(PROCESSES)]
        for process in processes:
            process.start()
    results = [answers.get() for _ in processes]
    for process in processes:
        process.join(60)
    assert results == [[(200 + r, 9 * r) for r in range(ROUNDS)]] * PROCESSES
    left = [file.name for file in tmp_path.rglob("*.part*")]
    assert left == []


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o775), (0o077, 0o700), (0o022, 0o755)])
def test_a_folder_is_for_whom_the_umask_says(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        with whole_folder(tmp_path / "kept") as part:
            (part / "file").write_text("x")
        with whole_file(tmp_path / "alone") as part:
            part.write_text("x")
    finally:
        os.umask(before)
    assert (tmp_path / "kept").stat().st_mode & 0o777 == mode
    assert (tmp_path / "kept" / "file").stat().st_mode & 0o777 == mode & 0o666
    assert (tmp_path / "alone").stat().st_mode & 0o777 == mode & 0o666
