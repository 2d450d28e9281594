"""Archives of strangers stay inside of their folder, and take neither much memory nor much room."""

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import tracemalloc
import zipfile
from pathlib import PurePosixPath

import pytest

from scripts.downloads import DownloadError, archives
from scripts.downloads.archives import unpack
from tests.scripts.archives import left_behind, tar_of, zip_of


def everything(member: PurePosixPath) -> PurePosixPath:
    return member


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "crowd/../../evil", "..\\evil", "C:/evil"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_members_do_not_leave_the_folder(tmp_path, name, kind):
    archive = tmp_path / "evil.archive"
    archive.write_bytes(zip_of({"good": b"1", name: b"2"}) if kind == "zip" else tar_of({"good": b"1", name: b"2"}, ""))
    with pytest.raises(DownloadError, match="would land outside of the folder; nothing was taken"):
        unpack(archive, tmp_path / "out" / "data", everything, 1000)
    assert left_behind(tmp_path) == {"evil.archive"}


@pytest.mark.parametrize("kind", ["symlink", "hard link", "device", "zip symlink"])
def test_links_and_devices_are_refused(tmp_path, kind):
    archive = tmp_path / "evil.archive"
    if kind == "zip symlink":
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(info, "/etc")
    else:
        info = tarfile.TarInfo("link")
        info.type = {"symlink": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}[kind]
        info.linkname = "/etc/passwd"
        with tarfile.open(archive, "w:gz") as file:
            file.addfile(info)
    with pytest.raises(DownloadError, match="'link' is a link or a device"):
        unpack(archive, tmp_path / "data", everything, 1000)
    assert left_behind(tmp_path) == {"evil.archive"}


@pytest.mark.parametrize("make", [zip_of, lambda files: tar_of(files, "")])
def test_a_bomb_is_stopped(tmp_path, make):
    archive = tmp_path / "bomb"
    archive.write_bytes(make({"a": b"0" * 600, "b": b"0" * 600}))
    assert len(unpack(archive, tmp_path / "fits", everything, 1200)) == 2
    with pytest.raises(DownloadError, match="more than 1,199 bytes"):
        unpack(archive, tmp_path / "data", everything, 1199)
    assert not (tmp_path / "data").exists()


def test_a_member_that_is_not_wanted_counts_too(tmp_path):
    archive = tmp_path / "bomb"
    archive.write_bytes(tar_of({"a": b"0" * 600, "b": b"0" * 600}, ""))
    with pytest.raises(DownloadError, match="more than 1,199 bytes"):
        unpack(archive, tmp_path / "data", lambda name: None, 1199)


def header(kind: bytes, size: int, name: bytes = b"x") -> bytes:
    """A block that announces `size` bytes of this kind."""
    info = tarfile.TarInfo(name.decode())
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def bomb(kind: str) -> bytes:
    """A tar that wants much memory for what it says of its members: 16 MiB or more."""
    size = 1 << 24
    if kind == "long name":
        return header(tarfile.GNUTYPE_LONGNAME, size) + b"a" * size + header(tarfile.REGTYPE, 0)
    if kind == "pax":
        record = b"%d path=" % size
        return (
            header(tarfile.XHDTYPE, size)
            + record
            + b"a" * (size - len(record) - 1)
            + b"\n"
            + header(tarfile.REGTYPE, 0)
        )
    if kind == "many long names":
        return (header(tarfile.GNUTYPE_LONGNAME, 512) + b"a" * 512) * 2000 + header(tarfile.REGTYPE, 0)
    if kind == "sparse":
        block = bytearray(header(tarfile.GNUTYPE_SPARSE, 0))
        block[482] = 1  # more of the map follows
        block[148:156] = b"%06o\0 " % (256 + sum(block[:148]) + sum(block[156:]))
        more = (b"%011o\0" % 1) * 42 + b"\1" + b"\0" * 7
        return bytes(block) + more * (size // 512)
    return b"".join(header(tarfile.REGTYPE, 0, b"%090d" % k) for k in range(2000))


@pytest.mark.parametrize("kind", ["long name", "pax", "many long names", "sparse", "many members"])
def test_what_a_tar_says_of_its_members_takes_little_memory(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(archives, "MEMBERS", 1000)
    archive = tmp_path / "bomb.tar.gz"
    archive.write_bytes(gzip.compress(bomb(kind) + b"\0" * 1024, 1))
    tracemalloc.start()
    try:
        with pytest.raises(DownloadError, match="says of its members is too large|more than 1,000 members|no data set"):
            unpack(archive, tmp_path / "data", lambda name: None, 1 << 40)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert left_behind(tmp_path) == {"bomb.tar.gz"}


def test_the_directory_of_a_zip_takes_little_memory(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for k in range(200):
            file.writestr(zipfile.ZipInfo(f"{k:060000d}"), b"")
    archive = tmp_path / "bomb.zip"
    archive.write_bytes(buffer.getvalue())
    with pytest.raises(DownloadError, match="what it says of its members is too large"):
        unpack(archive, tmp_path / "data", everything, 1 << 40)


@pytest.mark.parametrize("name", ["a" * 1001, "a\x1b[2Jb", "a\nb", "\udcff"])
def test_names_that_no_data_set_has_are_refused(tmp_path, name):
    archive = tmp_path / "odd.tar.gz"
    archive.write_bytes(tar_of({name: b"1"}, ""))
    with pytest.raises(DownloadError, match="has a name that no data set has") as error:
        unpack(archive, tmp_path / "data", everything, 1000)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300


DAMAGED = {
    "a tar of xz": lzma.compress(b"1" * 1000),
    "a tar of bz2": bz2.compress(b"1" * 1000),
    "gzip, then noise": gzip.compress(b"1" * 1000)[:12] + b"\xff" * 100,
    "gzip with a wrong sum": tar_of({"a": b"1" * 5000})[:-8] + b"\0" * 8,
    "nothing": b"",
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_is_one_sentence(tmp_path, kind):
    archive = tmp_path / "damaged"
    archive.write_bytes(DAMAGED[kind])
    with pytest.raises(DownloadError, match="is damaged or no archive"):
        unpack(archive, tmp_path / "data", everything, 1 << 20)
    assert left_behind(tmp_path) == {"damaged"}


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_is_only_stored_or_deflated(tmp_path, method):
    archive = tmp_path / "odd.zip"
    with zipfile.ZipFile(archive, "w", method) as file:
        file.writestr("a", b"1" * 1000)
    with pytest.raises(DownloadError, match="'a' is neither stored nor deflated"):
        unpack(archive, tmp_path / "data", everything, 1 << 20)
