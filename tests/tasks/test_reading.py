"""Lines are read from whatever users give; what cannot be used is one short sentence with file and line."""

import gzip
import io

import pytest

from tasks import reading
from tasks.errors import UserError
from tasks.reading import Fault, Faults, read_lines


def test_a_file_that_cannot_be_opened_or_unpacked_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.txt cannot be read \(No such file"):
        list(read_lines(tmp_path / "nowhere.txt"))
    path = tmp_path / "a.txt.gz"
    whole = gzip.compress(b"".join(f"line {k}\n".encode() for k in range(1000)))
    for content in (b"no gzip", whole[:-20], whole[:30] + b"\0\0\0" + whole[33:]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"a\.txt\.gz cannot be read \("):
            list(read_lines(path))


def test_of_a_stream_only_so_much_is_held_at_once(monkeypatch):
    monkeypatch.setattr(reading, "LONGEST", 100)

    class Stream(io.BytesIO):
        largest = 0

        def readline(self, size=-1):
            line = super().readline(size)
            self.largest = max(self.largest, len(line))
            return line

    stream = Stream(b"a" * 1000 + b"\n" + b"b" * 100 + b"\n" + b"c" * 101)
    lines = list(reading.decode_lines(stream))
    assert [number for number, _ in lines] == [1, 2, 3]
    assert stream.largest <= 101
    assert isinstance(lines[0][1], Fault)
    assert isinstance(lines[2][1], Fault)


def test_faults_end_the_reading_or_are_counted():
    with pytest.raises(UserError, match=r"a\.txt, line 3: it is odd\. Correct the line, .*task\.data\.on_error=skip"):
        Faults("fail").add("a.txt, line 3", Fault("it is odd"))
    faults = Faults("skip")
    for k in (3, 5):
        faults.add(f"a.txt, line {k}", Fault("it is odd, and wrong"))
    assert (faults.count, faults.first) == (2, "line 3: it is odd, and wrong")


def test_records_are_parsed_and_their_faults_counted():
    def parse(record: str) -> int:
        if record == "x":
            raise Fault("it is x")
        return int(record)

    faults, records = Faults("skip"), [(1, "1"), (2, Fault("it is not UTF-8")), (4, "x"), (5, "5")]
    assert list(faults.parse("a.txt", records, parse)) == [1, 5]
    assert (faults.count, faults.first) == (2, "line 2: it is not UTF-8")
    with pytest.raises(UserError, match=r"^a\.txt, line 4: it is x\."):
        list(Faults("fail").parse("a.txt", records[2:], parse))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dog,hypernym,animal", "separated by commas"),
        ("dog;hypernym;animal", "separated by semicolons"),
        ("dog hypernym animal", "separated by blanks"),
        ("dog\thypernym", ""),
        ("dog, hypernym", ""),
    ],
)
def test_a_line_with_another_separator_is_told_so(line, said):
    hint = reading.other_separator(line, 3, 3)
    assert said in hint
    assert bool(said) is bool(hint)


def test_n_triples_are_told_how_they_become_a_table():
    hint = reading.other_separator('<http://x/a> <http://x/r> "b c"@en .', 3, 3)
    assert "It is a line of N-Triples" in hint
    assert "sed -E" in hint
    assert "N-Triples" not in reading.other_separator("<http://x/a> <http://x/b> .", 2, 2), "a hierarchy has no relation"


def test_graphs_with_another_separator_are_told_so(tmp_path):
    from tasks.edges import read_edges
    from tasks.graph.folder import read_folder
    from tasks.kg_completion.triples import read_graph

    for name in ("train.txt", "valid.txt", "test.txt"):
        (tmp_path / name).write_text("dog,hypernym,animal\ncat,hypernym,animal\n")
    with pytest.raises(UserError, match=r"train\.txt, line 1 has 1 column.*separated by commas, as those of a file .csv may be"):
        read_graph(tmp_path)
    (tmp_path / "edges.tsv").write_text("ann bob\nbob cy\n")
    with pytest.raises(UserError, match=r"edges\.tsv, line 1: 'ann bob'.*separated by blanks"):
        read_edges(tmp_path / "edges.tsv", "task.data.file")
    with pytest.raises(UserError, match=r"edges\.tsv, line 1: 'ann bob'.*separated by blanks"):
        read_folder(tmp_path, "mine", labelled=False)


@pytest.mark.parametrize(("place", "unit"), [("a.csv, line 5", "line"), ("good/a.txt", "file")])
def test_what_cannot_be_used_is_a_line_or_a_file(place, unit):
    with pytest.raises(UserError, match=rf"{place}: its text is empty. Correct the {unit}, or leave out such {unit}s"):
        Faults("fail").add(place, Fault("its text is empty"))
