"""Data sets are fetched whole and checked, or not at all; archives of strangers stay inside of their folder."""

import errno
import hashlib
import http.server
import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import PurePosixPath

import pytest
from omegaconf import OmegaConf

from scripts import download as command
from scripts.download import SOURCES, SUMS, Source, below, flat, main
from scripts.downloads import transfer
from tests.cli import ROOT
from tests.scripts.archives import left_behind, tar_of, zip_of

CONTENT = {"train.json": b'{"y_str": ["person"]}\n' * 4000, "dev.json": b"{}\n", "test.json": b"{}\n{}\n"}


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; breaks after `cut` bytes of each answer while there are cuts left."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.ranges = True
        self.version = '"1"'
        self.status = 200
        self.requests: list[str | None] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass

    def do_GET(self) -> None:
        server: Server = self.server
        requested = self.headers.get("Range")
        server.requests.append(requested)
        content = server.files.get(self.path[1:])
        if content is None or server.status != 200:
            return self.send_error(404 if content is None else server.status)
        same = self.headers.get("If-Range") in (None, server.version)
        start = int(re.fullmatch(r"bytes=(\d+)-", requested)[1]) if requested and server.ranges and same else 0
        if start >= len(content) and start:
            return self.send_error(416)
        body = content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", server.version)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if server.cuts:
            body = body[: server.cuts.pop(0)]
            self.close_connection = True
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(transfer, "PAUSE_S", 0.0)
    monkeypatch.setattr(transfer, "CHUNK", 1000)
    http_server = Server()
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield http_server
    http_server.shutdown()
    http_server.server_close()
    thread.join()


@pytest.fixture
def release(server) -> dict[str, Source]:
    server.files["ultrafine.tar.gz"] = tar_of(CONTENT)
    return {"ultrafine": replace(SOURCES["ultrafine"], url=server.url("ultrafine.tar.gz"))}


WHOLE = {f"ultrafine/crowd/{name}" for name in CONTENT} | {SUMS}


def test_a_release_lands_in_the_official_layout(release, server, tmp_path, capsys):
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 0
    assert left_behind(tmp_path) == WHOLE
    for name, content in CONTENT.items():
        assert (tmp_path / "ultrafine/crowd" / name).read_bytes() == content
    assert "ultrafine/crowd/train.json" in capsys.readouterr().out
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 0
    assert "is already in" in capsys.readouterr().out
    assert len(server.requests) == 1, "nothing is fetched twice"
    assert main(["ultrafine", "--data-dir", str(tmp_path), "--force"], release) == 0
    assert len(server.requests) == 2


def test_a_broken_connection_is_taken_up_where_it_broke(release, server, tmp_path):
    server.cuts = [100, 50]
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 0
    assert server.requests == [None, "bytes=100-", "bytes=150-"]
    assert left_behind(tmp_path) == WHOLE


def test_the_next_call_goes_on_where_the_last_one_gave_up(release, server, tmp_path, capsys):
    server.cuts = [100] + [0] * transfer.TRIES
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 1
    message = capsys.readouterr().err
    assert "the connection ended early" in message
    assert "100 bytes are kept" in message
    assert not (tmp_path / "ultrafine").exists()
    server.requests.clear()
    server.cuts.clear()
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 0
    assert server.requests == ["bytes=100-"]
    assert (tmp_path / "ultrafine/crowd/train.json").read_bytes() == CONTENT["train.json"]


@pytest.mark.parametrize("change", ["new file", "no ranges", "shorter file"])
def test_a_part_is_not_continued_with_another_file(release, server, tmp_path, change):
    server.cuts = [100] + [0] * transfer.TRIES
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 1
    server.cuts.clear()
    if change == "new file":
        server.version = '"2"'
        server.files["ultrafine.tar.gz"] = tar_of({**CONTENT, "dev.json": b"another"})
    elif change == "no ranges":
        server.ranges = False
    else:
        (tmp_path / ".downloads/ultrafine_acl18.tar.gz.part").write_bytes(b"x" * 10**6)
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 0
    expected = b"another" if change == "new file" else CONTENT["dev.json"]
    assert (tmp_path / "ultrafine/crowd/dev.json").read_bytes() == expected
    assert left_behind(tmp_path) == WHOLE


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (OSError(errno.ENOSPC, "No space left"), 1)])
def test_an_archive_that_could_not_be_unpacked_is_not_fetched_again(release, server, tmp_path, monkeypatch, error, code):
    def stop(*_) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(command, "unpack", stop)
        assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == code
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 0
    assert len(server.requests) == 1
    assert left_behind(tmp_path) == WHOLE


def test_a_server_that_is_not_there_is_told_in_one_paragraph(tmp_path, capsys, server, release):
    gone = {"ultrafine": replace(release["ultrafine"], url="http://127.0.0.1:9/nothing.tar.gz")}
    assert main(["ultrafine", "--data-dir", str(tmp_path)], gone) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: http://127.0.0.1:9/nothing.tar.gz could not be fetched (")
    assert message.count("\n") == 1
    assert left_behind(tmp_path) == set()


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (503, transfer.TRIES)])
def test_a_refusal_is_not_tried_again_and_a_hiccup_is(release, server, tmp_path, capsys, status, requests):
    server.status = status
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 1
    assert f"the server answers {status}" in capsys.readouterr().err
    assert len(server.requests) == requests


def test_a_known_checksum_is_compared(release, tmp_path, capsys):
    wrong = {"ultrafine": replace(release["ultrafine"], sha256="0" * 64)}
    assert main(["ultrafine", "--data-dir", str(tmp_path)], wrong) == 1
    assert "does not have the sha256 0000" in capsys.readouterr().err
    assert left_behind(tmp_path) == set(), "a file with a wrong checksum is not kept"


def test_the_checksum_of_the_first_fetch_is_kept_and_compared(release, server, tmp_path, capsys):
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 0
    digest = hashlib.sha256(server.files["ultrafine.tar.gz"]).hexdigest()
    assert json.loads((tmp_path / SUMS).read_text()) == {release["ultrafine"].url: digest}
    server.files["ultrafine.tar.gz"] = tar_of({**CONTENT, "dev.json": b"changed"})
    assert main(["ultrafine", "--data-dir", str(tmp_path), "--force"], release) == 1
    assert f"delete its line in {tmp_path / SUMS}" in capsys.readouterr().err
    assert (tmp_path / "ultrafine/crowd/dev.json").read_bytes() == CONTENT["dev.json"], "the old files stay"


@pytest.mark.parametrize("text", ["[1]", '{"a": 1}', "[" * 99_999, "{"])
def test_sums_that_are_damaged_are_named(release, server, tmp_path, capsys, text):
    (tmp_path / SUMS).write_text(text)
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 1
    assert f"{tmp_path / SUMS} is damaged" in capsys.readouterr().err


def test_a_page_or_a_damaged_archive_is_refused(release, server, tmp_path, capsys):
    server.files["ultrafine.tar.gz"] = b"<html>moved</html>"
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 1
    assert "is damaged or no archive" in capsys.readouterr().err
    server.files["ultrafine.tar.gz"] = tar_of(CONTENT)[:-200]
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 1
    assert "is damaged or no archive" in capsys.readouterr().err
    server.files["ultrafine.tar.gz"] = tar_of({"train.json": b"{}"})
    assert main(["ultrafine", "--data-dir", str(tmp_path)], release) == 1
    assert "has no crowd/dev.json" in capsys.readouterr().err


def test_poincare_glove_is_a_file_and_otherwise_says_how_to_train_one(server, tmp_path, capsys):
    source = SOURCES["poincare_glove"]
    server.files["vectors"] = b"the 0.1 0.2\n"
    sources = {"poincare_glove": replace(source, url=server.url("vectors"))}
    assert main(["poincare_glove", "--data-dir", str(tmp_path)], sources) == 0
    assert (tmp_path / "poincare_glove" / source.name).read_bytes() == b"the 0.1 0.2\n"
    server.files["vectors"] = b"<!DOCTYPE html>"
    (tmp_path / SUMS).unlink()
    assert main(["poincare_glove", "--data-dir", str(tmp_path), "--force"], sources) == 1
    message = capsys.readouterr().err
    assert "answers with a page" in message
    assert "python run.py task=poincare_glove task.data.file=corpus.txt" in message
    assert (tmp_path / "poincare_glove" / source.name).read_bytes() == b"the 0.1 0.2\n"


@pytest.mark.parametrize("name", ["snli", "multinli"])
def test_pairs_of_sentences_are_taken_out_flat_without_what_macos_adds(server, tmp_path, name):
    source = SOURCES[name]
    names = [file for (file,) in source.files]
    content = {f"{name}_1.0/{file}": b"{}\n" for file in names} | {f"{name}_1.0/README.txt": b"read"}
    content |= {f"__MACOSX/{name}_1.0/._{file}": b"Mac" for file in names}
    server.files["pairs.zip"] = zip_of(content)
    sources = {name: replace(source, url=server.url("pairs.zip"), sha256=None)}
    assert main([name, "--data-dir", str(tmp_path)], sources) == 0
    assert left_behind(tmp_path) == {f"{name}/{file}" for file in names} | {SUMS}


@pytest.mark.parametrize("name", [name for name in SOURCES if name.endswith("_csv")])
def test_texts_with_classes_are_taken_out_flat_and_have_a_published_checksum(server, tmp_path, name):
    files = {f"{name}/{file}": file.encode() for file in ("train.csv", "test.csv", "classes.txt", "readme.txt")}
    server.files["texts.tgz"] = tar_of(files | {f"{name}/._train.csv": b"Mac"}, "")
    assert len(SOURCES[name].sha256) == 64
    source = replace(SOURCES[name], url=server.url("texts.tgz"), sha256=None)
    assert main([name, "--data-dir", str(tmp_path)], {name: source}) == 0
    assert left_behind(tmp_path) == {*files, SUMS}


@pytest.mark.parametrize(("name", "folder"), [("wn18rr", "WN18RR"), ("fb15k237", "FB15k-237"), ("umls", "UMLS")])
def test_a_knowledge_graph_lands_where_its_task_reads_it(server, tmp_path, name, folder):
    rows = {f"{split}.txt": b"a\tr\tb\n" for split in ("train", "valid", "test")}
    server.files["a.tar.gz"] = tar_of(rows | {"notes.md": b"no"}, "")
    assert len(SOURCES[name].sha256) == 64
    assert re.search(r"/[0-9a-f]{40}/", SOURCES[name].url), "a branch moves"
    source = replace(SOURCES[name], url=server.url("a.tar.gz"), sha256=None)
    assert main([name, "--data-dir", str(tmp_path)], {name: source}) == 0
    assert left_behind(tmp_path) == {f"{folder}/{file}" for file in rows} | {SUMS}
    config = OmegaConf.load(ROOT / "configs" / "task" / f"{name}.yaml")
    assert OmegaConf.to_container(config)["data"]["folder"] == f"${{paths.data_dir}}/{folder}"


def test_the_nouns_of_wordnet_and_the_words_of_wn18rr_are_taken_out(server, tmp_path):
    kinds = ("noun", "verb", "adj", "adv", "sense")
    content = {f"WordNet-3.0/dict/{name}.{kind}": b"1" for name in ("data", "index") for kind in kinds}
    server.files["wordnet.tar.gz"] = tar_of(content, "")
    source = replace(SOURCES["wordnet"], url=server.url("wordnet.tar.gz"), sha256=None)
    assert main(["wordnet", "--data-dir", str(tmp_path)], {"wordnet": source}) == 0
    taken = ("data.noun", "index.noun", "data.verb", "data.adj", "data.adv")
    assert left_behind(tmp_path) == {*(f"wordnet30/{name}" for name in taken), SUMS}


def test_glove_is_taken_out_flat(server, tmp_path):
    names = [f"glove.6B.{d}d.txt" for d in (50, 100, 200, 300)]
    server.files["glove.zip"] = zip_of({f"inside/{name}": name.encode() for name in names} | {"readme.md": b"no"})
    source = replace(SOURCES["glove"], url=server.url("glove.zip"), sha256=None)
    assert main(["glove", "--data-dir", str(tmp_path)], {"glove": source}) == 0
    assert left_behind(tmp_path) == {f"glove/{name}" for name in names} | {SUMS}


def test_only_what_is_below_the_named_folders_is_taken():
    place = below("crowd", "ontology")
    assert place(PurePosixPath("release/crowd/train.json")) == PurePosixPath("crowd/train.json")
    assert place(PurePosixPath("ontology/types.txt")) == PurePosixPath("ontology/types.txt")
    assert place(PurePosixPath("release/readme.txt")) is None
    assert place(PurePosixPath("release/crowd/._train.json")) is None


def test_a_folder_of_a_repository_is_taken_out(server, tmp_path):
    names = [f"tok/{split}.lc.norm.tok.{k}" for split in ("train", "val", "test_2016_flickr") for k in ("en", "de")]
    content = dict.fromkeys((f"dataset-1a/data/task1/{name}" for name in names), b"a man .\n")
    server.files["multi30k.tar.gz"] = tar_of(content | {"dataset-1a/data/task2/x": b"", "a": b""}, "")
    source = replace(SOURCES["multi30k"], url=server.url("multi30k.tar.gz"), sums={})
    assert main(["multi30k", "--data-dir", str(tmp_path)], {"multi30k": source}) == 0
    assert left_behind(tmp_path) == {f"multi30k/{name}" for name in names} | {SUMS}


@pytest.mark.parametrize(
    ("name", "top", "also"),
    [("graphs", "hgcn-a5/data/", "hgcn-a5/models/base.py"), ("ud_english_ewt", "UD-4c/", "UD-4c/not-to-release/a.conllu")],
)
def test_files_of_a_repository_are_those_of_its_revision(server, tmp_path, capsys, name, top, also):
    content = {file: file.encode() for (file,) in SOURCES[name].files}
    server.files["a.tar.gz"] = tar_of({top + file: text for file, text in content.items()} | {also: b"no"}, "")
    sums = {file: hashlib.sha256(text).hexdigest() for file, text in content.items()}
    source = replace(SOURCES[name], url=server.url("a.tar.gz"), sums=sums)
    assert main([name, "--data-dir", str(tmp_path)], {name: source}) == 0
    assert left_behind(tmp_path) == {f"{name}/{file}" for file in content}
    packed_anew = {top + file: text for file, text in reversed(content.items())}
    server.files["a.tar.gz"] = tar_of(packed_anew | {also: b"no, no"}, "")
    assert main([name, "--data-dir", str(tmp_path), "--force"], {name: source}) == 0
    first = next(iter(content))
    wrong = replace(source, sums={first: "0" * 64})
    assert main([name, "--data-dir", str(tmp_path), "--force"], {name: wrong}) == 1
    assert f"{first} is not the file that is expected; nothing was taken" in capsys.readouterr().err


def test_wrong_files_never_reach_the_folder_and_are_fetched_again(server, tmp_path, capsys):
    """Two of three files of an archive are wrong, one of which is not among those that are named as needed."""
    right = {"a.txt": b"a", "b.txt": b"b", "more.txt": b"more"}
    sums = {name: hashlib.sha256(text).hexdigest() for name, text in right.items()}
    wrong = tar_of(right | {"b.txt": b"?", "more.txt": b"?"}, "")
    source = replace(SOURCES["umls"], url=server.url("x.tar.gz"), files=(("a.txt",),), place=flat(".txt"), sums=sums, sha256=None)
    arguments = ["umls", "--data-dir", str(tmp_path)]
    server.files["x.tar.gz"] = wrong
    for _ in range(2):
        assert main(arguments, {"umls": source}) == 1
        assert "b.txt is not the file that is expected; nothing was taken" in capsys.readouterr().err
        assert left_behind(tmp_path) == set()
    server.files["x.tar.gz"] = tar_of(right, "")
    assert main(arguments, {"umls": source}) == 0
    server.files["x.tar.gz"] = wrong
    assert main([*arguments, "--force"], {"umls": source}) == 1
    assert {file.name: file.read_bytes() for file in (tmp_path / "UMLS").iterdir()} == right
    (tmp_path / "UMLS/more.txt").unlink()
    server.files["x.tar.gz"] = tar_of(right, "")
    assert main(arguments, {"umls": source}) == 0, "a file that has a sum is needed too"
    assert {file.name: file.read_bytes() for file in (tmp_path / "UMLS").iterdir()} == right


def test_every_needed_file_of_a_repository_has_a_sum():
    for name in ("graphs", "multi30k", "ud_english_ewt"):
        source = SOURCES[name]
        assert {file for (file,) in source.files} <= source.sums.keys()
        assert re.search(r"/archive/[0-9a-f]{40}\.tar\.gz$", source.url), "a tag can be moved"


def test_the_command_names_what_it_can_fetch(tmp_path):
    requests = subprocess.run(
        [sys.executable, "scripts/download.py", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert requests.returncode == 0
    assert all(f"python scripts/download.py {name}" in requests.stdout for name in SOURCES)
    assert all(source.url.startswith("http") for source in command.SOURCES.values())
