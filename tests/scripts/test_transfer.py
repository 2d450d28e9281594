"""A file over HTTP is whole or not there; a break loses nothing; no server keeps the command for ever."""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from scripts.downloads import DownloadError, transfer
from scripts.downloads.transfer import ChecksumError, fetch

CONTENT = b"the 0.1 0.2\n" * 1000
SUM = hashlib.sha256(CONTENT).hexdigest()
OK = b"HTTP/1.1 200 OK\r\n"
Answer = Callable[[socket.socket, str], None]


class Server:
    """Answers each connection with the next of `answers`, and the last one again."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/vectors.txt"
        self.answers: list[Answer] = []
        self.requests: list[str] = []
        self.ends = False
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while not self.ends:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                request = connection.recv(65536).decode()
                self.requests.append(request)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                try:
                    answer(connection, request)
                except OSError:  # the command had enough
                    continue


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setattr(transfer, "PAUSE_S", 0.0)
    monkeypatch.setattr(transfer, "TRIES", 2)
    monkeypatch.setattr(transfer, "TIMEOUT_S", 0.15)
    one = Server()
    yield one
    one.ends = True
    one.socket.close()


def get(server: Server, folder, sha256: str | None = None, shows_cuts: bool = False, most: int = 1 << 20) -> bytes:
    path = folder / "vectors.txt"
    assert fetch(server.url, path, sha256, most, shows_cuts) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [file.name for file in folder.iterdir()] == ["vectors.txt"]
    return path.read_bytes()


def says(text: bytes) -> Answer:
    return lambda connection, request: connection.sendall(text)


def length(content: bytes) -> bytes:
    return b"Content-Length: %d\r\n" % len(content)


def drip(connection: socket.socket, content: bytes) -> None:
    for byte in content:
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


def test_a_server_that_drips_is_given_up_and_what_came_is_kept(server, tmp_path):
    def answer(connection, request):
        start = int(request.partition("bytes=")[2].partition("-")[0] or 0)
        code = b"HTTP/1.1 206 P\r\nContent-Range: bytes %d-%d/%d\r\n" % (start, len(CONTENT) - 1, len(CONTENT))
        connection.sendall((code if start else OK) + length(CONTENT[start:]) + b"\r\n")
        drip(connection, CONTENT[start:])

    server.answers = [answer]
    begun = time.monotonic()
    with pytest.raises(DownloadError, match="it sends fewer than 1,000 bytes a second.*bytes are kept"):
        get(server, tmp_path)
    assert time.monotonic() - begun < 2
    part = (tmp_path / "vectors.txt.part").read_bytes()
    assert len(part) > 5
    assert CONTENT.startswith(part), "the second connection went on where the first one ended"
    assert f"bytes={len(part)}-" not in server.requests[0] + server.requests[1]
    server.answers = [
        lambda connection, request: connection.sendall(
            b"HTTP/1.1 206 P\r\nContent-Range: bytes %d-/*\r\n" % len(part)
            + length(CONTENT[len(part) :]) + b"\r\n" + CONTENT[len(part) :]
        )
    ]  # fmt: skip
    assert get(server, tmp_path) == CONTENT
    assert f"bytes={len(part)}-" in server.requests[-1]


@pytest.mark.parametrize(
    "start", [b"", OK, OK + length(CONTENT) + b"\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n"],
    ids=["nothing", "no headers", "no body", "no chunk"],
)  # fmt: skip
def test_a_server_that_drips_headers_or_says_nothing_is_given_up(server, tmp_path, start):
    def answer(connection, request):
        connection.sendall(start)
        if start == OK:
            drip(connection, b"X-Long: " + b"a" * 100)
        elif start:
            drip(connection, b"1;" + b"a" * 100 if b"chunked" in start else b"")
        time.sleep(0.3)

    server.answers = [answer]
    begun = time.monotonic()
    with pytest.raises(DownloadError, match="could not be fetched .*(timed out|no answer within|fewer than)"):
        get(server, tmp_path, shows_cuts=True)
    assert time.monotonic() - begun < 4


def test_a_stall_loses_nothing_of_what_was_received(server, tmp_path):
    def answer(connection, request):
        connection.sendall(OK + length(CONTENT) + b"\r\n" + CONTENT[:777])
        time.sleep(0.3)

    server.answers = [answer, says(b"HTTP/1.1 500 No\r\n\r\n")]
    with pytest.raises(DownloadError, match="777 bytes are kept"):
        get(server, tmp_path)
    assert "bytes=777-" in server.requests[1]


@pytest.mark.parametrize("text", ["[1]", '{"url": 1}', "null", "[" * 99_999])
def test_a_damaged_note_of_an_earlier_try_is_none(server, tmp_path, text):
    (tmp_path / "vectors.txt.part").write_bytes(CONTENT[:9])
    (tmp_path / "vectors.txt.note.json").write_text(text)
    server.answers = [says(OK + length(CONTENT) + b"\r\n" + CONTENT)]
    assert get(server, tmp_path) == CONTENT
    assert "Range" not in server.requests[0]


def chunked(*chunks: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + body


def test_without_a_length_only_what_shows_its_end_is_taken(server, tmp_path):
    server.answers = [says(OK + b"\r\n" + CONTENT)]
    with pytest.raises(DownloadError, match="does not say how long the file is, and no checksum is known"):
        get(server, tmp_path)
    assert not list(tmp_path.iterdir())
    assert get(server, tmp_path, sha256=SUM) == CONTENT


def test_a_cut_text_without_a_length_is_not_taken(server, tmp_path):
    server.answers = [says(OK + b"\r\n" + CONTENT[:-5])]
    with pytest.raises(ChecksumError, match=f"does not have the sha256 {SUM}"):
        get(server, tmp_path, sha256=SUM)
    assert not list(tmp_path.iterdir())
    server.answers = [says(chunked(CONTENT[:100]))]
    with pytest.raises(DownloadError, match="could not be fetched .*100 bytes are kept"):
        get(server, tmp_path)
    (tmp_path / "vectors.txt.part").unlink()
    server.answers = [says(chunked(CONTENT[:100], CONTENT[100:], b""))]
    assert get(server, tmp_path) == CONTENT


@pytest.mark.parametrize("length", ["²".encode(), b"9" * 5000, b"-1", b"0x10", b"1 1"])
def test_a_length_that_is_none_is_one_sentence(server, tmp_path, length):
    server.answers = [says(OK + b"Content-Length: " + length + b"\r\n\r\n" + CONTENT)]
    with pytest.raises(DownloadError, match="the server's answer is damaged .Content-Length: ") as error:
        get(server, tmp_path)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 302 F\r\nLocation: http://a..b/\r\n\r\n", b"HTTP/1.1 302 F\r\nLocation: file:///etc/passwd\r\n\r\n",
        b"HTTP/1.1 302 F\r\nLocation: http://[::/\r\n\r\n", b"HTTP/9.9 999999 \x1b[2J\r\n\r\n", b"\xff" * 300, b"SSH-2.0\r\n",
        OK + b"A: b\r\n" * 200 + b"\r\n", OK + b"A: " + b"b" * 70000 + b"\r\n\r\n", b"HTTP/1.1 404 \x1b[2J" + b"a" * 9000 + b"\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc",
    ],
)  # fmt: skip
def test_whatever_a_server_says_is_one_short_line(server, tmp_path, text):
    server.answers = [says(text)]
    with pytest.raises(DownloadError) as error:
        get(server, tmp_path, shows_cuts=True)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500


def test_a_file_without_end_is_not_taken(server, tmp_path):
    server.answers = [says(OK + length(CONTENT) + b"\r\n" + CONTENT), says(chunked(CONTENT, CONTENT, b""))]
    for _ in range(2):
        with pytest.raises(DownloadError, match="has more than 9,000 bytes"):
            get(server, tmp_path, most=9000)


def test_https_is_not_given_up_on_the_way(server, tmp_path, monkeypatch):
    server.answers = [says(OK + length(CONTENT) + b"\r\n" + CONTENT)]
    urlopen = transfer.urllib.request.urlopen
    monkeypatch.setattr(
        transfer.urllib.request, "urlopen", lambda request, timeout: urlopen(server.url, timeout=timeout)
    )
    with pytest.raises(DownloadError, match="leads to http://.*, which is not protected by https"):
        fetch("https://example.org/vectors.txt", tmp_path / "vectors.txt", None, 1 << 20, False)
