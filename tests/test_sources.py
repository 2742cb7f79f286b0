"""Opening files of a stranger's directory: nothing outside it, nothing that blocks, nothing that changes."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from tokaudit.errors import Unreadable, UsageError
from tokaudit.sources import local, open_source

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"0123456789")
    return folder


def code_of_opening(folder: Path, name: str) -> str:
    with pytest.raises(Unreadable) as caught:
        open_source(folder).open(name)
    assert caught.value.file == name
    return caught.value.code


def read(folder: Path, name: str) -> bytes:
    with open_source(folder).open(name) as file:
        return file.read_all(1000)


def test_a_file_is_read_by_position_and_as_a_whole(model: Path) -> None:
    with open_source(model).open("config.json") as file:
        assert (file.name, file.size) == ("config.json", 10)
        assert file.read(3, 4) == b"3456"
        assert file.read(10, 0) == b""
        assert file.read_all(10) == b"0123456789"
        assert os.fstat(file.fileno()).st_size == 10


def test_reading_past_the_end_is_an_error_and_not_a_short_answer(model: Path) -> None:
    with (
        open_source(model).open("config.json") as file,
        pytest.raises(Unreadable, match="ends at byte 10, 3 bytes too early") as caught,
    ):
        file.read(5, 8)
    assert caught.value.code == "truncated"


@pytest.mark.parametrize("system", ["reads into a buffer", "does not"])
def test_a_window_is_filled_from_a_position(
    model: Path, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if system == "does not":
        monkeypatch.delattr(os, "preadv", raising=False)
    window = bytearray(4)
    with open_source(model).open("config.json") as file:
        file.fill(3, memoryview(window))
        assert window == b"3456"
        with pytest.raises(Unreadable, match="ends at byte 10, 1 bytes too early") as caught:
            file.fill(7, memoryview(window))
    assert caught.value.code == "truncated"


def test_a_file_over_the_limit_is_refused(model: Path) -> None:
    with (
        open_source(model).open("config.json") as file,
        pytest.raises(Unreadable, match="at most 9 bytes, found 10") as caught,
    ):
        file.read_all(9)
    assert caught.value.code == "file-too-large"


def test_a_sparse_file_of_gigabytes_is_refused_without_reading_it(model: Path) -> None:
    with open(model / "big", "wb") as file:
        file.truncate(2**40)
    with open_source(model).open("big") as opened, pytest.raises(Unreadable):
        opened.read_all(2**20)


@pytest.mark.parametrize("after", [b"0123456789more", b"012"])
def test_a_file_that_changes_while_it_is_read_is_refused(model: Path, after: bytes) -> None:
    def write_and_read() -> None:
        with open_source(model).open("config.json") as file:
            (model / "config.json").write_bytes(after)
            file.read(0, 10)

    with pytest.raises(Unreadable) as caught:
        write_and_read()
    assert caught.value.code == "changed-while-read"


def test_an_error_inside_the_block_is_not_replaced_by_the_check_on_leaving(model: Path) -> None:
    def write_and_fail() -> None:
        with open_source(model).open("config.json"):
            (model / "config.json").write_bytes(b"")
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()


def test_names_are_those_of_the_top_and_of_the_known_sub_folders(model: Path) -> None:
    for name in ("additional_chat_templates/rag.jinja", "1_Pooling/config.json", "2_Dense/config.json"):
        (model / name).parent.mkdir()
        (model / name).touch()
    (model / "onnx").mkdir()
    (model / "onnx" / "config.json").touch()
    (model / "1_Pooling" / "deeper").mkdir()
    (model / "1_Pooling" / "deeper" / "file").touch()
    (model / "gone.safetensors").symlink_to("nowhere")
    (model / "3_Normalize").symlink_to("1_Pooling")
    names = open_source(model).names()
    assert names == {
        "config.json", "gone.safetensors", "onnx", "additional_chat_templates", "1_Pooling", "2_Dense",
        "3_Normalize", "additional_chat_templates/rag.jinja", "1_Pooling/config.json", "1_Pooling/deeper",
        "2_Dense/config.json", "3_Normalize/config.json", "3_Normalize/deeper",
    }  # fmt: skip
    assert read(model, "1_Pooling/config.json") == b""


TEMPLATES = "additional_chat_templates"


def test_a_known_folder_may_be_a_link_to_another_one_inside(model: Path) -> None:
    (model / "elsewhere").mkdir()
    (model / "elsewhere" / "default.jinja").write_bytes(b"x")
    (model / TEMPLATES).symlink_to("elsewhere")
    source = open_source(model)
    assert f"{TEMPLATES}/default.jinja" in source.names()
    assert source.outside() == ()
    assert read(model, f"{TEMPLATES}/default.jinja") == b"x"


@pytest.mark.parametrize("target", ["..", "../absent", "/"])
def test_of_a_folder_outside_nothing_is_listed_but_that_it_leads_there(model: Path, target: str) -> None:
    (model / TEMPLATES).symlink_to(target)
    source = open_source(model)
    assert source.names() == {"config.json", TEMPLATES}
    (error,) = source.outside()
    assert (error.code, error.file) == ("path-escape", TEMPLATES)


def test_of_numbered_folders_only_those_of_sentence_transformers_count_as_outside(model: Path) -> None:
    (model / "2_Dense").symlink_to("..")
    assert open_source(model).outside() == ()
    (model / "modules.json").touch()
    assert [error.file for error in open_source(model).outside()] == ["2_Dense"]


@pytest.mark.parametrize("target", [TEMPLATES, "nowhere", "config.json", "."])
def test_a_folders_link_to_no_other_folder_is_followed_one_step_at_most(model: Path, target: str) -> None:
    (model / TEMPLATES).symlink_to(target)
    source = open_source(model)
    assert source.outside() == ()
    below = {f"{TEMPLATES}/{name}" for name in ("config.json", TEMPLATES)} if target == "." else set()
    assert source.names() == {"config.json", TEMPLATES} | below


def test_a_directory_with_too_many_files_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MOST_ENTRIES", 3)
    for number in range(3):
        (model / f"{number}").touch()
    with pytest.raises(Unreadable) as caught:
        open_source(model)
    assert caught.value.code == "too-many-files"


def test_names_that_are_not_utf8_are_listed_and_can_be_opened(model: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (model / name).write_bytes(b"x")
    assert name in open_source(model).names()
    assert read(model, name) == b"x"


def test_links_inside_the_directory_are_followed(model: Path) -> None:
    (model / "sub").mkdir()
    (model / "sub" / "real").write_bytes(b"inside")
    (model / "link").symlink_to("sub/real")
    (model / "absolute").symlink_to(model / "sub" / "real")
    (model / "folder").symlink_to("sub")
    assert read(model, "link") == read(model, "absolute") == read(model, "folder/real") == b"inside"


def test_the_directory_itself_may_be_reached_through_a_link(model: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(model)
    assert read(tmp_path / "way", "config.json") == b"0123456789"
    assert open_source(tmp_path / "way").name == str(tmp_path / "way")


@pytest.mark.parametrize("target", ["../secret", "../model-twin/secret", "/etc/passwd", "/proc/self/environ",
                                    "/dev/zero", "/dev/stdin", "folder/secret", "../absent"])  # fmt: skip
def test_a_link_that_leads_out_is_never_opened(
    model: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model.parent / "secret").write_bytes(b"secret")
    (model.parent / "model-twin").mkdir()
    (model.parent / "model-twin" / "secret").write_bytes(b"secret")
    (model / "folder").symlink_to("..")
    (model / "link").symlink_to(target)
    monkeypatch.setattr(os, "open", None)
    assert code_of_opening(model, "link") == "path-escape"


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/../config.json", "./config.json", "", "a\0b"]
)
def test_a_name_that_is_no_plain_relative_path_is_never_opened(model: Path, name: str) -> None:
    (model.parent / "secret").write_bytes(b"secret")
    assert code_of_opening(model, name) == "path-escape"


def test_a_folder_that_becomes_a_link_after_the_check_leads_nowhere(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model.parent / "outside").mkdir()
    (model.parent / "outside" / "file").write_bytes(b"secret")
    (model / "sub").symlink_to("../outside")
    monkeypatch.setattr(os.path, "realpath", lambda path: str(path))  # as it was before the link
    assert code_of_opening(model, "sub/file") == "no-such-file"


def cache(tmp_path: Path) -> tuple[Path, Path]:
    repository = tmp_path / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "abc").write_bytes(b"blob")
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    return repository, snapshot


def test_a_cached_snapshot_may_link_to_the_blobs_of_its_repository(tmp_path: Path) -> None:
    _, snapshot = cache(tmp_path)
    assert read(snapshot, "config.json") == b"blob"


def test_a_cached_snapshot_may_be_reached_through_links(tmp_path: Path) -> None:
    repository, snapshot = cache(tmp_path)
    (tmp_path / "way").symlink_to(snapshot)
    assert read(tmp_path / "way", "config.json") == b"blob"
    moved = tmp_path / "elsewhere"
    repository.rename(moved)
    repository.symlink_to(moved)
    assert read(snapshot, "config.json") == b"blob"


def test_a_cached_snapshot_may_not_link_to_another_repository(tmp_path: Path) -> None:
    repository, snapshot = cache(tmp_path)
    (repository.parent / "token").write_bytes(b"secret")
    (snapshot / "link").symlink_to("../../../token")
    assert code_of_opening(snapshot, "link") == "path-escape"


def test_only_the_layout_of_the_cache_widens_the_root(tmp_path: Path) -> None:
    repository, _ = cache(tmp_path)
    plain = repository.rename(repository.with_name("name"))
    assert code_of_opening(plain / "snapshots" / REVISION, "config.json") == "path-escape"


def test_a_snapshot_whose_blob_is_gone_says_so(tmp_path: Path) -> None:
    repository, snapshot = cache(tmp_path)
    (repository / "blobs" / "abc").unlink()
    with pytest.raises(Unreadable, match="symlink target is missing") as caught:
        open_source(snapshot).open("config.json")
    assert caught.value.code == "dangling-link"


def test_what_is_no_regular_file_is_refused_without_waiting(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(model / "fifo")
    (model / "folder").mkdir()
    (model / "loop").symlink_to("loop")
    (model / "there").symlink_to("back")
    (model / "back").symlink_to("there")
    monkeypatch.chdir(model)  # the path of a socket is limited to about 100 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        assert code_of_opening(model, "socket") == "not-a-regular-file"
    assert code_of_opening(model, "fifo") == "not-a-regular-file"
    assert code_of_opening(model, "folder") == "not-a-regular-file"
    assert code_of_opening(model, "loop") == "symlink-loop"
    assert code_of_opening(model, "there") == "symlink-loop"


def test_absent_and_unusable_names_are_told_apart(model: Path) -> None:
    assert code_of_opening(model, "absent") == "no-such-file"
    assert code_of_opening(model, "config.json/x") == "no-such-file"
    assert code_of_opening(model, "x" * 300) == "name-too-long"


def test_a_file_or_directory_without_read_permission_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")  # root, as in CI, is never denied

    source = open_source(model)
    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(Unreadable) as caught:
        source.open("config.json")
    assert caught.value.code == "permission"
    monkeypatch.setattr(os, "scandir", deny)
    with pytest.raises(Unreadable) as caught:
        open_source(model)
    assert caught.value.code == "permission"


def test_refusing_a_file_leaves_no_descriptor_open(model: Path) -> None:
    (model / "folder").mkdir()
    source = open_source(model)
    lowest = os.dup(0)
    os.close(lowest)
    for name in ("folder", "absent", "x" * 300):
        with pytest.raises(Unreadable):
            source.open(name)
    again = os.dup(0)
    os.close(again)
    assert again == lowest


def test_a_path_that_is_no_directory_is_named(model: Path) -> None:
    for path, code in [
        (model / "nope", "no-such-path"),
        (model / "config.json" / "x", "no-such-path"),
        (model / "config.json", "not-a-directory"),
        (model / ("x" * 300), "name-too-long"),
    ]:
        with pytest.raises(Unreadable) as caught:
            open_source(path)
        assert caught.value.code == code
        assert str(path) in caught.value.message


@pytest.mark.parametrize("uri", ["hf://org/model", "s3://bucket/model", "", "model\0x"])
def test_what_is_no_local_path_is_a_usage_error(uri: str) -> None:
    with pytest.raises(UsageError):
        open_source(uri)
