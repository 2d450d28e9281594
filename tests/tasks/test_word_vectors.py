"""Word vectors are read as they are in the file, on every manifold; faulty files are named with their line."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.charts import poincare_to_lorentz
from tasks import vector_files, word_vectors
from tasks.errors import UserError
from tasks.text import PAD, UNK
from tasks.vector_files import dimension, parse, write_vectors
from tasks.word_vectors import find_vectors, read_vectors, rows_of_words

PLAIN = "the 3 4\ncat 0.5 -0.25\nunk 10 20\n"


@pytest.fixture
def read(tmp_path):
    """Reads a file of this content; what is left out of the arguments is the default here."""

    def call(content: str | bytes, name: str = "glove/vectors.txt", cached: bool = False, **settings):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        defaults = {"space": "auto", "c": 1.0, "cache": tmp_path / "cache" if cached else None, "on_error": "fail"}
        return read_vectors([name], tmp_path / "data", **{**defaults, **settings})

    return call


def test_rows_of_a_plain_file(read):
    words = read(PLAIN)
    assert words.tangent.dtype == torch.float32
    assert words.tangent.tolist() == [[0, 0], [1, 2], [3, 4], [0.5, -0.25]], "padding, a tenth of unk, the words"
    assert words.index == {"the": 2, "cat": 3, "unk": UNK}
    assert (words.row("The"), words.row("unk"), words.row("dog")) == (2, UNK, UNK)
    assert (words.d, words.space, words.source) == (2, "euclidean", "vectors.txt")
    assert len(words.sha256) == 64
    assert not words.tangent[PAD].any()


def test_a_gzipped_file_has_the_rows_of_a_plain_one(read, monkeypatch):
    plain = read(PLAIN)
    monkeypatch.setattr(vector_files, "BLOCK", 13)
    packed = read(gzip.compress(PLAIN.encode()), "glove/vectors.txt.gz")
    assert packed.tangent.tolist() == plain.tangent.tolist()
    assert (packed.index, packed.sha256, packed.source) == (plain.index, plain.sha256, "vectors.txt.gz")
    for damaged in (gzip.compress(PLAIN.encode())[:-12], PLAIN.encode()):
        with pytest.raises(UserError, match=r"vectors\.txt\.gz cannot be read \("):
            read(damaged, "glove/vectors.txt.gz")


def test_a_file_in_utf_16_is_named_with_the_command_that_converts_it(read):
    with pytest.raises(UserError, match=r"vectors\.txt is not UTF-8; `iconv -f UTF-16 -t UTF-8 FILE > NEW` converts"):
        read(PLAIN.encode("utf-16"))


def test_a_byte_order_mark_is_no_part_of_the_first_word(read):
    assert read("\ufeffthe 1 2\ncat 3 4\n").index == read("the 1 2\ncat 3 4\n").index
    assert read("\ufeff2 2\nthe 1 2\ncat 3 4\n").index.keys() == {"the", "cat"}


def test_without_a_vector_for_unknown_words_it_is_a_tenth_of_the_mean(read):
    assert read("a 1 2\nb 3 6\n").tangent[UNK].tolist() == pytest.approx([0.2, 0.4])
    both = read("unk 1 1\n<unk> 2 2\n")
    assert both.index == {"<unk>": UNK, "unk": 2}, "<unk> comes first"
    ball = read("a 0.5 0\nb 0.3 0\n", "poincare.txt")
    assert ball.points(PoincareBall())[UNK].tolist() == pytest.approx([0.04, 0]), "of the coordinates, as in hyfi"


@pytest.mark.parametrize("c", [0.25, 1.0, 3.0])
def test_plain_vectors_go_through_exp0_with_their_own_curvature(read, c):
    points = read("a 0.3 0.4\n", c=c).points(PoincareBall())[2]
    v = np.array([0.3, 0.4])
    expected = PoincareBall(c).expmap0(torch.tensor(v)) * c**0.5  # the same point in the ball of radius 1
    torch.testing.assert_close(points.double(), expected, atol=1e-6, rtol=1e-6)
    assert np.linalg.norm(points) == pytest.approx(np.tanh(c**0.5 * 0.5), rel=1e-6)


BALL = [[0.1, -0.2], [0.6, 0.7], [1e-9, 0.0], [0.0, 0.0], [-0.9999, 0.0]]


def ball_file() -> str:
    return "".join(f"w{k} {x!r} {y!r}\n" for k, (x, y) in enumerate(BALL))


@pytest.mark.parametrize("c", [0.3, 1.0, 5.0])
def test_points_of_the_ball_are_the_same_points_everywhere(read, c):
    words = read(ball_file(), "poincare_glove.txt")
    assert words.space == "poincare"
    x = torch.tensor(BALL)
    ball = words.points(PoincareBall(c))[2:]
    torch.testing.assert_close(ball * c**0.5, x, atol=1e-6, rtol=1e-5)
    lorentz, klein = words.points(Lorentz(c))[2:], words.points(Klein(c))[2:]
    torch.testing.assert_close(lorentz[:4], poincare_to_lorentz(x[:4] / c**0.5, c), atol=1e-5, rtol=1e-5)
    origin = PoincareBall().dist0(x)
    for manifold, points in ((PoincareBall(c), ball), (Lorentz(c), lorentz), (Klein(c), klein)):
        n = 4 if manifold.name == "Klein" else 5  # in float32 Klein's model ends before the last point
        torch.testing.assert_close(manifold.dist0(points)[:n] * c**0.5, origin[:n], atol=1e-4, rtol=1e-3)
    assert words.points(Euclidean()) is words.tangent
    torch.testing.assert_close(words.tangent[2:], PoincareBall().logmap0(x), atol=1e-6, rtol=1e-3)


def test_a_learned_curvature_is_used_as_it_is(read):
    words, ball = read(ball_file(), "poincare_glove.txt"), PoincareBall(2.0, learn_c=True)
    points = words.points(ball)
    torch.testing.assert_close(points, words.points(PoincareBall(2.0)))
    assert not points.requires_grad


def test_points_outside_of_the_ball_are_put_inside_and_counted(read):
    with pytest.warns(UserWarning, match=r"2 of 3 points lay outside the unit ball, first 'b'"):
        words = read("a 0.1 0\nb 3 4\nc 1 0\n", "poincare.txt")
    points = words.points(PoincareBall())
    torch.testing.assert_close(points[3], torch.tensor([0.6, 0.8]) * word_vectors.MAX_NORM, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("name", "scale", "space"),
    [
        ("glove/glove.6B.2d.txt", 0.1, "euclidean"),
        ("glove/Poincare_2d.txt", 0.1, "poincare"),
        ("poincare_glove/vectors.txt", 0.1, "poincare"),
        ("poincare_glove/vectors.txt", 9.0, "euclidean"),
    ],
)
def test_the_space_of_a_file_is_found_by_its_name_and_norms(read, name, scale, space):
    content = "".join(f"w{k} {scale * k / 300} 0.0\n" for k in range(200))
    assert read(content, name).space == space


def test_a_space_in_the_settings_comes_first(read):
    assert read(PLAIN.replace("3 4", "0 0"), "poincare.txt", space="euclidean").space == "euclidean"
    assert read("a 0.5 0\n", space="poincare").space == "poincare"


def test_word2vecs_first_line_is_understood_and_checked(read):
    assert read("2 3\na 1 2 3\nb 4 5 6\n").tangent[2:].tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(UserError, match="promises 3 words, and 2 follow; the file may have been cut off"):
        read("3 3\na 1 2 3\nb 4 5 6\n")
    assert read("5 1\n6 2\n").index == {"5": 2, "6": 3}, "two words of dimension 1, no first line"


@pytest.mark.parametrize("header", ["9" * 5000 + " 3", "2 " + "9" * 5000, f"2 {2**70}"])
def test_a_first_line_of_huge_numbers_is_a_faulty_line(read, header):
    with pytest.raises(UserError, match="line 1: "):
        read(f"{header}\na 1 2 3\nb 4 5 6\n")
    with pytest.warns(UserWarning, match="the first is line 1: "):
        vectors = read(f"{header}\na 1 2 3\nb 4 5 6\n", on_error="skip")
    assert vectors.tangent[2:].tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "content",
    ["a 1 2\r\nb 3 4\r\n", "a\t1\t2\nb\t3\t4\n", "a 1 2 \nb  3  4\n", "a 1 2\nb 3 4", "a 1e0 +2\nb 3.0 4.\n"],
)
def test_blanks_line_ends_and_numbers_may_be_written_otherwise(read, content):
    words = read(content)
    assert words.tangent[2:].tolist() == [[1, 2], [3, 4]]
    assert words.index == {"a": 2, "b": 3}


def test_words_may_hold_any_letters_and_even_blanks(read):
    words = read("a\u00a0b 1 2\n\u0085 3 4\n. . . 5 6\n日本 7 8\n")
    assert words.index == {"a\u00a0b": 2, "\u0085": 3, ". . .": 4, "日本": 5}
    assert words.tangent[4].tolist() == [5, 6]


FAULTS = [
    (b"a 1 2\nb 1\nc 3 4\n", "line 2: 1 numbers instead of 2", "1 lines with too few numbers"),
    (b"a 1 2\nb 1 2 3\nc 3 4\n", "line 2: 3 numbers instead of 2", "1 lines with too many numbers"),
    (b"a 1 2\nb 1 x\nc 3 4\n", "line 2: b'b 1 x' is not a word and 2 numbers", "that is no number"),
    (b"a 1 2\nb 1 1-2\nc 3 4\n", "line 2: b'b 1 1-2' is not a word", "that is no number"),
    (b"a 1 2\nb 1 nan\nc 3 4\n", "line 2: a number is not finite", "that are not finite"),
    (b"a 1 2\nb inf 1\nc 3 4\n", "line 2: a number is not finite", "that are not finite"),
    (b"a 1 2\n\xff 1 2\nc 3 4\n", r"line 2: the word b'\xff' is not UTF-8", "that are not UTF-8"),
    (b"a 1 2\n\nc 3 4\n", "line 2: 0 numbers instead of 2", "too few"),
    (b"a 1 2\na 7 8\nc 3 4\n", "line 2: the word 'a' stands in line 1 too", "words that came before"),
]


@pytest.mark.parametrize(("content", "message", "reason"), FAULTS)
@pytest.mark.parametrize("block", [1 << 24, 16])
def test_a_faulty_line_is_named_or_skipped_and_counted(read, monkeypatch, content, message, reason, block):
    monkeypatch.setattr(vector_files, "BLOCK", block)
    with pytest.raises(UserError) as caught:
        read(content)
    assert f"vectors.txt, {message}" in str(caught.value)
    assert "on_error=skip" in str(caught.value)
    with pytest.warns(UserWarning, match=r"vectors\.txt: 1 lines were skipped") as caught:
        words = read(content, on_error="skip")
    assert reason in str(caught[0].message)
    assert message in str(caught[0].message)
    assert words.index == {"a": 2, "c": 3}
    assert words.tangent[2:].tolist() == [[1, 2], [3, 4]]


def test_faults_that_would_cancel_in_the_sum_are_noticed(read):
    with pytest.raises(UserError, match="line 1: 3 numbers instead of 2"):
        read("a 1 2 3\nb 4\nc 5 6\nd 7 8\n")


@pytest.mark.parametrize("content", ["a 1 2 3\nb 1  2\nc 1 2 3\t4\n", "a 1 2 3\nb 1 \t 2\nc 1 2 3\t4\n"])
def test_numbers_of_one_line_are_not_those_of_the_next(read, content):
    with pytest.raises(UserError, match="line 2: 2 numbers instead of 3"):
        read(content)


def test_blocks_give_what_the_whole_file_gives(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    path = tmp_path / "vectors.txt"
    write_vectors(path, [f"w{k}" for k in range(300)], rows)
    whole = parse(path, "fail")
    monkeypatch.setattr(vector_files, "BLOCK", 999)
    parts = parse(path, "fail")
    assert parts.words == whole.words
    assert parts.sha256 == whole.sha256
    np.testing.assert_array_equal(parts.vectors, rows)  # nine digits give every float32 back
    np.testing.assert_allclose(parts.norms, np.linalg.norm(rows.astype(float), axis=1))


@pytest.mark.parametrize("content", ["", "\n\n", "word\n"])
def test_a_file_without_vectors_is_named(read, content):
    with pytest.raises(UserError, match=r"vectors\.txt"):
        read(content)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"space": "ball"}, "task.data.vectors.space must be one of auto, euclidean, poincare"),
        ({"c": 0.0}, "task.data.vectors.c must be a positive number"),
        ({"c": True}, "task.data.vectors.c must be a positive number"),
        ({"on_error": "ignore"}, "task.data.on_error must be one of fail, skip"),
    ],
)
def test_a_wrong_setting_is_named(read, setting, message):
    with pytest.raises(UserError, match=message):
        read(PLAIN, **setting)


def test_the_first_pattern_that_matches_gives_its_largest_dimension(tmp_path):
    for name, row in (("glove.6B.50d.txt", "a 50"), ("glove.6B.100d.txt", "a 100"), ("other.txt", "a 7 7 7")):
        (tmp_path / name).write_text(f"{row}\n")
    settings = {"space": "auto", "c": 1.0, "cache": None, "on_error": "fail"}
    patterns = ["poincare_glove/*.txt", "glove.6B.*d*.txt", "*.txt"]
    assert read_vectors(patterns, tmp_path, **settings).source == "glove.6B.100d.txt"
    assert read_vectors([tmp_path / "other.txt", *patterns], tmp_path / "elsewhere", **settings).source == "other.txt"
    assert [dimension(tmp_path / f) for f in ("glove.6B.50d.txt", "other.txt")] == [50, 3]
    with pytest.raises(UserError, match=r"none of .*nothing\.txt exists.*python scripts/download.py glove"):
        read_vectors(["nothing.txt"], tmp_path, **settings)


def test_the_name_of_a_file_says_more_than_that_of_its_folder(tmp_path):
    (tmp_path / "poincare_glove").mkdir()
    for name, space in (("vectors.txt", "poincare"), ("vectors.euclidean.2d.txt", "euclidean")):
        (tmp_path / "poincare_glove" / name).write_text("a 0.1 0.2\n")
        assert read_vectors([f"poincare_glove/{name}"], tmp_path, "auto", 1.0, None, "fail").space == space


def test_a_path_of_a_file_is_no_pattern(tmp_path):
    (tmp_path / "a[1]").mkdir()
    for name in ("a[1]/g.txt", "a[1]/g*.txt", "a[1]/gx.txt"):
        (tmp_path / name).write_text("a 1 2\n")
    for name in ("a[1]/g.txt", "a[1]/g*.txt"):
        assert find_vectors([name], tmp_path) == find_vectors([tmp_path / name], Path("elsewhere")) == tmp_path / name
    assert find_vectors(["a[[]1]/gx*"], tmp_path) == tmp_path / "a[1]/gx.txt"
    with pytest.raises(UserError, match="the home folder ~nosuchuser is not known"):
        find_vectors(["~nosuchuser/g.txt"], tmp_path)


def folders(tmp_path: Path) -> list[Path]:
    return [place for place in (tmp_path / "cache/vectors").iterdir() if place.is_dir()]


def test_the_second_time_the_vectors_are_mapped_from_the_cache(read, tmp_path, monkeypatch):
    first = read(PLAIN, cached=True)
    assert len(folders(tmp_path)) == 1, "no part of a folder is left"
    monkeypatch.setattr(word_vectors, "parse", None)
    second = read_vectors(["glove/vectors.txt"], tmp_path / "data", "auto", 1.0, tmp_path / "cache", "fail")
    assert second.index == first.index
    assert torch.equal(second.tangent, first.tangent)
    assert (second.sha256, second.space, second.source) == (first.sha256, first.space, first.source)
    second.tangent[0] = 1  # a copy in memory: the file stays
    third = read_vectors(["glove/vectors.txt"], tmp_path / "data", "auto", 1.0, tmp_path / "cache", "fail")
    assert not third.tangent[0].any()


def test_another_file_or_setting_has_another_cache(read, tmp_path):
    read(PLAIN, cached=True)
    assert read(PLAIN + "dog 1 1\n", cached=True).row("dog") == 4
    assert read(PLAIN + "dog 1 1\n", cached=True, c=4.0).tangent[2].tolist() == [6, 8]
    assert len(folders(tmp_path)) == 3


@pytest.mark.parametrize("damage", ["meta.json", "words.bin", "tangent.bin", "missing"])
def test_a_damaged_cache_is_made_again(read, tmp_path, damage):
    first = read(PLAIN)
    read(PLAIN, cached=True)
    (folder,) = folders(tmp_path)
    if damage == "missing":
        (folder / "words.bin").unlink()
    else:
        (folder / damage).write_bytes((folder / damage).read_bytes()[:-5])
    with pytest.warns(UserWarning, match="is damaged .* made again"):
        again = read_vectors(["glove/vectors.txt"], tmp_path / "data", "auto", 1.0, tmp_path / "cache", "fail")
    assert again.index == first.index
    assert torch.equal(again.tangent, first.tangent)


def test_a_warning_says_what_was_skipped_from_the_cache_too(tmp_path):
    (tmp_path / "v.txt").write_text("a 1 2\nb 3\nc 4 5\n")
    for _ in range(2):
        with pytest.warns(UserWarning, match="1 lines were skipped"):
            read_vectors(["v.txt"], tmp_path, "auto", 1.0, tmp_path / "cache", "skip")


def test_vectors_are_used_where_they_cannot_be_kept(read, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.warns(UserWarning, match=r"could not be kept in .*paths\.cache_dir"):
        assert read(PLAIN, cached=True).row("the") == 2


START = """
import multiprocessing, sys, time
from pathlib import Path
from tasks import word_vectors

root, parse = Path(sys.argv[1]), word_vectors.parse

def slow(path, on_error):
    with (root / "parsed").open("ab") as file:
        file.write(b"x")
    time.sleep(0.2)
    return parse(path, on_error)

def read(_):
    words = word_vectors.read_vectors(["vectors.txt"], root, "auto", 1.0, root / "cache", "fail")
    return words.index, words.tangent.tolist()

word_vectors.parse = slow
with multiprocessing.get_context("fork").Pool(5) as pool:
    for _ in range(2):
        first, *others = pool.map(read, range(5), chunksize=1)
        assert first[0] == {"a": 2, "b": 3} and first[1][2:] == [[1, 2], [3, 4]], first
        assert all(other == first for other in others), others
        for file in root.glob("cache/vectors/*/tangent.bin"):
            file.write_bytes(file.read_bytes()[:-3])  # and again, from a damaged cache
"""


@pytest.mark.long
def test_of_several_processes_that_start_together_one_parses_and_all_get_the_vectors(tmp_path):
    (tmp_path / "vectors.txt").write_text("a 1 2\nb 3 4\n")
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", START, str(tmp_path)], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "parsed").read_bytes() == b"xx", "once, and once for the damaged cache"


@pytest.mark.parametrize("cached", [False, True])
def test_rows_of_words_are_the_numbers_of_the_file(read, tmp_path, cached):
    read(PLAIN, "poincare_glove/v.txt")
    cache = tmp_path / "cache" if cached else None
    for words in (["cat", "Cat", "the", "dog"], ["the"], []):  # the second time from the cache
        rows = rows_of_words(words, ["*/v.txt"], tmp_path / "data", cache, "fail")
        values = {"the": [3, 4], "cat": [0.5, -0.25]}
        assert rows.has_row.tolist() == [word in values for word in words]
        assert rows.matrix.tolist() == [values.get(word, [0, 0]) for word in words]
        assert rows.matrix.dtype == torch.float32
        assert rows.matrix.shape == (len(words), 2)
    whole = read_vectors(["*/v.txt"], tmp_path / "data", "auto", 1.0, None, "fail")
    assert (rows.source, rows.sha256) == ("v.txt", whole.sha256)


@pytest.mark.data
def test_the_glove_file_at_hand_is_read(data_dir, tmp_path):
    words = read_vectors(["glove/glove.6B.*d*.txt"], data_dir, "auto", 1.0, tmp_path, "fail")
    assert words.space == "euclidean"
    assert words.row("the") == 2
    assert words.d >= 50
    assert torch.isfinite(words.tangent).all()
