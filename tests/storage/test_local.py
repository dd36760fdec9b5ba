"""The local disk: links, permissions, full disks, killed processes, and what it leaves on the
disk.
"""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.errors import MissingFile, StorageError, TransientStorageError
from stateshift.storage import failures
from stateshift.storage.local import calls
from stateshift.storage.local import calls as local_calls
from stateshift.storage.local.calls import PIECE
from stateshift.storage.local.storage import LocalStorage
from stateshift.storage.protocol import CHUNK
from stateshift.storage.temporaries import is_temporary, temporary

ROOT = str(Path(__file__).resolve().parents[2])


def python(
    script: str, *arguments: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own; its output is what it prints."""
    return subprocess.run(
        [*before, sys.executable, "-c", textwrap.dedent(script), *arguments],
        env={**os.environ, "PYTHONPATH": ROOT, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def names(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "root"))


# -- listing


def test_links_to_files_and_directories_are_followed(storage: LocalStorage, tmp_path: Path) -> None:
    storage.write("real/a", lambda: iter([b"xyz"]))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "b").write_bytes(b"12345")
    root = tmp_path / "root"
    (root / "file-link").symlink_to("real/a")
    (root / "directory-link").symlink_to("real")
    (root / "outside-link").symlink_to(tmp_path / "outside")
    assert sorted((i.path, i.size) for i in storage.list()) == [
        ("directory-link/a", 3),
        ("file-link", 3),
        ("outside-link/b", 5),
        ("real/a", 3),
    ]


@pytest.mark.parametrize("target", [".", "..", "/", "../..", "d/e/f"])
def test_a_link_that_runs_in_a_circle_is_refused_by_name(
    storage: LocalStorage, tmp_path: Path, target: str
) -> None:
    storage.write("d/e/f/a", lambda: iter([b""]))
    link = tmp_path / "root" / "d" / "e" / "f" / "loop"
    link.symlink_to(
        tmp_path / "root" / "d" / "e" / "f" / target
        if target != "d/e/f"
        else tmp_path / "root" / target
    )
    with pytest.raises(StorageError, match=str(link)) as raised:
        list(storage.list())
    assert raised.value.hint == f"rm {link}"


def test_two_links_that_lead_into_each_other_are_refused(
    storage: LocalStorage, tmp_path: Path
) -> None:
    storage.write("a/x", lambda: iter([b""]))
    storage.write("b/y", lambda: iter([b""]))
    (tmp_path / "root/a/to-b").symlink_to(tmp_path / "root/b")
    (tmp_path / "root/b/to-a").symlink_to(tmp_path / "root/a")
    with pytest.raises(StorageError, match="symbolic link"):
        list(storage.list("a"))


def test_a_link_to_itself_is_refused(storage: LocalStorage, tmp_path: Path) -> None:
    storage.write("a", lambda: iter([b""]))
    (tmp_path / "root/self").symlink_to("self")
    with pytest.raises(StorageError, match="circle"):
        list(storage.list())


def test_a_name_that_is_not_utf8_is_refused_by_name(storage: LocalStorage, tmp_path: Path) -> None:
    storage.write("d/a", lambda: iter([b""]))
    try:
        with open(os.fsencode(tmp_path / "root" / "d") + b"/bad\xff", "wb"):
            pass
    except OSError:
        pytest.skip("this file system takes no such names")
    with pytest.raises(StorageError, match=r"bad\\xff"):
        list(storage.list())


def test_what_vanishes_while_listing_was_not_there(storage: LocalStorage, tmp_path: Path) -> None:
    for directory in range(20):
        storage.write(f"{directory}/a", lambda: iter([b""]))
    listing = storage.list()
    first = next(listing)
    for directory in range(20):
        (tmp_path / "root" / str(directory) / "a").unlink()
        (tmp_path / "root" / str(directory)).rmdir()
    assert list(listing) == []
    assert first.path.endswith("/a")


def test_our_temporary_files_are_left_out_and_pruned(storage: LocalStorage, tmp_path: Path) -> None:
    storage.write("d/a", lambda: iter([b""]))
    leftover = tmp_path / "root" / temporary("d/b")
    leftover.write_bytes(b"half")
    (tmp_path / "root" / "d" / ".stateshift-mine").write_bytes(b"not a temporary one")
    assert sorted(i.path for i in storage.list()) == ["d/.stateshift-mine", "d/a"]
    storage.prune()
    assert not leftover.exists()
    assert sorted(i.path for i in storage.list()) == ["d/.stateshift-mine", "d/a"]


@pytest.mark.long
def test_exactly_one_of_several_processes_creates(tmp_path: Path) -> None:
    script = """
        import sys, time
        from stateshift.errors import AlreadyThere
        from stateshift.storage.local.storage import LocalStorage
        storage = LocalStorage(sys.argv[1])
        while time.time() < float(sys.argv[3]):
            pass
        won = 0
        for n in range(200):
            try:
                storage.create(f"locks/{n}", sys.argv[2].encode() * 100)
                won += 1
            except AlreadyThere:
                assert len(storage.read(f"locks/{n}")) == 100, "seen before it was whole"
        print(won)
    """
    start = str(time.time() + 1.0)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), str(tmp_path), name, start],
            env={**os.environ, "PYTHONPATH": ROOT},
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abcd"
    ]
    won = [int(process.communicate(timeout=600)[0]) for process in running]
    assert sum(won) == 200
    assert len(names(tmp_path)) == 201


def test_a_move_that_was_killed_between_its_two_names_is_finished_by_its_repeat(
    storage: LocalStorage, tmp_path: Path
) -> None:
    storage.write("a/x", lambda: iter([b"content"]))
    (tmp_path / "root/b").mkdir()
    os.link(tmp_path / "root/a/x", tmp_path / "root/b/x")
    storage.move("a/x", "b/x")
    assert [i.path for i in storage.list()] == ["b/x"]
    assert storage.read("b/x") == b"content"


def test_a_file_is_not_moved_onto_itself_through_a_link(
    storage: LocalStorage, tmp_path: Path
) -> None:
    storage.write("a/x", lambda: iter([b"content"]))
    (tmp_path / "root/b").symlink_to("a")
    with pytest.raises(StorageError, match="is a symbolic link"):
        storage.move("a/x", "b/x")
    with pytest.raises(FileExistsError):
        calls.rename_exclusively(str(tmp_path / "root/a/x"), str(tmp_path / "root/b/x"))
    assert storage.read("a/x") == b"content"


@pytest.fixture
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    other = Path("/dev/shm")
    if not os.access(other, os.W_OK) or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is no other file system here")
    target = other / f"stateshift-test-{os.getpid()}"
    target.mkdir()
    try:
        yield target
    finally:
        for left in target.iterdir():
            left.unlink()
        target.rmdir()


def test_a_move_to_another_file_system_says_so(tmp_path: Path, other_file_system: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.write("a", lambda: iter([b"x"]))
    with pytest.raises(OSError) as caught:
        calls.rename_exclusively(str(tmp_path / "a"), str(other_file_system / "a"))
    assert "not on one file system" in str(failures.from_os(caught.value, storage.location, "a"))
    assert storage.read("a") == b"x"


def test_files_get_the_permissions_that_any_program_would_give(
    storage: LocalStorage, tmp_path: Path
) -> None:
    before = os.umask(0o027)
    try:
        storage.write("a", lambda: iter([b"x"]))
        storage.create("b", b"x")
    finally:
        os.umask(before)
    assert [(tmp_path / "root" / n).stat().st_mode & 0o777 for n in "ab"] == [0o640, 0o640]


def test_a_link_under_the_temporary_name_is_not_followed(
    storage: LocalStorage, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / temporary("a")).symlink_to(precious)
    with pytest.raises(StorageError):
        storage.write("a", lambda: iter([b"x"]))
    assert precious.read_bytes() == b"precious"


# -- killed


WRITER = """
    import os, sys
    from stateshift.storage.local.storage import LocalStorage
    storage = LocalStorage(sys.argv[1])
    n = 0
    while True:
        n += 1
        def content():
            for _ in range(64):
                yield n.to_bytes(8, "big") * 1024
            if n == 1:
                print("going", flush=True)
        storage.write("d/file", content)
"""


@pytest.mark.long
def test_a_process_killed_while_it_writes_leaves_a_whole_file(tmp_path: Path) -> None:
    generator = random.Random(20)
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": ROOT},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(generator.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        storage = LocalStorage(str(tmp_path))
        assert [i.path for i in storage.list()] in ([], ["d/file"])
        if storage.stat("d/file") is not None:
            content = storage.read("d/file")
            assert content == content[:8] * (1024 * 64)
    storage.write("d/file", lambda: iter([b"repeat"]))
    assert names(tmp_path) == ["d", "d/file"]  # the leftover's name was taken by the repeat


def test_a_process_killed_in_the_middle_of_a_write_leaves_the_old_file(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.write("a", lambda: iter([b"old"]))
    done = python(
        """
        import os, signal, sys
        from stateshift.storage.local.storage import LocalStorage
        def content():
            yield b"x" * 1_000_000
            os.kill(os.getpid(), signal.SIGKILL)
            yield b"y"
        LocalStorage(sys.argv[1]).write("a", content)
        """,
        str(tmp_path),
    )
    assert done.returncode == -signal.SIGKILL
    assert storage.read("a") == b"old"
    assert [i.path for i in storage.list()] == ["a"]
    assert sorted(map(is_temporary, names(tmp_path))) == [False, True]


# -- full, read-only, forbidden


def test_a_file_beyond_the_limit_is_an_error_with_a_hint_and_leaves_nothing(tmp_path: Path) -> None:
    done = python(
        """
        import resource, signal, sys
        from stateshift.errors import StorageError
        from stateshift.storage.local.storage import LocalStorage
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        storage = LocalStorage(sys.argv[1])
        storage.write("small", lambda: iter([b"x" * 100_000]))
        for write in (
            lambda: storage.write("large", lambda: iter([b"x" * 60_000] * 2)),
            lambda: storage.write("small", lambda: iter([b"y" * 1000] * 101)),
            lambda: storage.create("lock", b"z" * 100_001),
        ):
            try:
                write()
            except StorageError as error:
                print(type(error).__name__, "|", error.fact, "|", error.hint)
        """,
        str(tmp_path),
    )
    lines = said(done)
    assert len(lines) == 3
    assert all(
        line.startswith("StorageError | the file would be larger") and "ulimit -f" in line
        for line in lines
    )
    assert names(tmp_path) == ["small"]
    assert (tmp_path / "small").read_bytes() == b"x" * 100_000


def in_own_mounts(mount: str, script: str, *arguments: str) -> list[str]:
    """Run a script where `mount` (a shell command) was done for it alone; skip where that is not
    allowed.
    """
    own = (
        ("unshare", "--mount")
        if os.geteuid() == 0
        else ("unshare", "--user", "--map-root-user", "--mount")
    )
    shell = (*own, "sh", "-c", f'{mount} || exit 77; exec "$@"', "sh")
    try:
        done = python(script, *arguments, before=shell)
    except FileNotFoundError:
        pytest.skip("there is no unshare(1) here")
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    return said(done)


def test_a_full_disk_is_an_error_with_a_hint_and_leaves_the_old_file(tmp_path: Path) -> None:
    lines = in_own_mounts(
        f"mount -t tmpfs -o size=1m none '{tmp_path}'",
        """
        import os, sys
        from stateshift.errors import StorageError, TransientStorageError
        from stateshift.storage.local.storage import LocalStorage
        storage = LocalStorage(sys.argv[1])
        storage.write("a", lambda: iter([b"x" * 600_000]))
        for attempt in (
            lambda: storage.write("a", lambda: iter([b"y" * 100_000] * 6)),
            lambda: storage.write("d/e/b", lambda: iter([b"y" * 600_000])),
            lambda: storage.create("lock", b"z" * 600_000),
        ):
            try:
                attempt()
            except StorageError as error:
                print(not isinstance(error, TransientStorageError), "|", error.fact, "|", error.hint)
        print(storage.read("a") == b"x" * 600_000, [i.path for i in storage.list()], os.listdir(sys.argv[1]))
        storage.prune()
        storage.write("d/e/b", lambda: iter([b"y" * 300_000]))
        storage.sync()
        """,
        str(tmp_path),
    )
    assert len(lines) == 4
    assert all(
        line.startswith("True | no space left on") and f"df -h {tmp_path}" in line
        for line in lines[:3]
    )
    assert lines[3].startswith("True ['a'] ['")
    assert "stateshift-" not in lines[3]


def test_a_read_only_disk_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    lines = in_own_mounts(
        f"mount --bind '{tmp_path}' '{tmp_path}' && mount -o remount,ro,bind '{tmp_path}'",
        """
        import sys
        from stateshift.errors import StorageError
        from stateshift.storage.local.storage import LocalStorage
        storage = LocalStorage(sys.argv[1])
        print(storage.read("a"), storage.sync())
        for attempt in (
            lambda: storage.write("b", lambda: iter([b"y"])),
            lambda: storage.create("b", b"y"),
            lambda: storage.move("a", "b"),
            lambda: storage.remove("a"),
        ):
            try:
                attempt()
            except StorageError as error:
                print(error.fact, "|", error.hint)
        """,
        str(tmp_path),
    )
    assert lines[0] == "b'x' None"
    assert len(lines) == 5
    assert all(line.startswith("mounted read-only") and "findmnt -T" in line for line in lines[1:])


def test_what_may_not_be_read_or_written_is_an_error_with_a_hint() -> None:
    done = python(
        """
        import os, shutil, sys, tempfile
        from stateshift.errors import StorageError
        from stateshift.storage.local.storage import LocalStorage
        if os.getuid() == 0:
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
        root = tempfile.mkdtemp(dir="/tmp")
        storage = LocalStorage(root)
        for path in ("open/a", "closed/b", "fixed/c"):
            storage.write(path, lambda: iter([b"x"]))
        os.chmod(root + "/closed", 0)
        os.chmod(root + "/fixed", 0o555)
        os.chmod(root + "/open/a", 0)
        for attempt in (
            lambda: list(storage.list()),
            lambda: storage.stat("closed/b"),
            lambda: storage.read("open/a"),
            lambda: list(storage.chunks("closed/b")),
            lambda: storage.write("fixed/d", lambda: iter([b"x"])),
            lambda: storage.write("fixed/d/e", lambda: iter([b"x"])),
            lambda: storage.create("closed/d", b"x"),
            lambda: storage.move("fixed/c", "open/c"),
            lambda: storage.remove("fixed/c"),
            lambda: storage.prune(),
        ):
            try:
                print("no error", attempt())
            except StorageError as error:
                print(type(error).__name__, "|", error.fact, "|", error.hint)
        os.chmod(root + "/closed", 0o700); os.chmod(root + "/fixed", 0o700)
        print(sorted(i.path for i in storage.list()))
        shutil.rmtree(root)
        """
    )
    *attempts, left = said(done)
    assert len(attempts) == 10
    for line in attempts:
        assert line.startswith("StorageError | no permission on file:///tmp/")
        assert "namei -l /tmp/" in line
    assert left == "['closed/b', 'fixed/c', 'open/a']"


def test_a_name_that_is_too_long_is_an_error_with_a_hint(storage: LocalStorage) -> None:
    for attempt in (
        lambda: storage.write("n" * 300, lambda: iter([b""])),
        lambda: storage.create("n" * 300, b""),
        lambda: storage.stat("n" * 300),
        lambda: storage.read("n" * 300),
    ):
        with pytest.raises(StorageError, match="too long") as raised:
            attempt()
        assert raised.value.hint


@pytest.mark.parametrize("can", [True, False])
def test_the_disk_may_begin_with_a_large_file_while_it_is_written(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, can: bool
) -> None:
    begun, real = [], calls._sync_file_range
    if can and real is None:
        pytest.skip("only Linux has sync_file_range")

    def spied(*arguments: Any) -> int:
        begun.append([arguments[1].value, arguments[2].value])
        return int(real(*arguments))

    monkeypatch.setattr(calls, "_sync_file_range", spied if can else None)
    pieces = [bytes([n]) * (3 << 20) for n in range(10)]
    assert storage.write("large", lambda: iter(pieces)) == 30 << 20
    assert storage.read("large") == b"".join(pieces)
    assert begun == ([[0, 9 << 20], [9 << 20, 9 << 20], [18 << 20, 9 << 20]] if can else [])


def test_a_file_of_255_bytes_name_can_be_written(storage: LocalStorage) -> None:
    storage.write("n" * 255, lambda: iter([b"x"]))
    storage.create("ü" * 127, b"x")
    assert sorted(len(i.path) for i in storage.list()) == [127, 255]


# -- durable, and quick to open


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, 9999]
)
def test_what_does_not_pass_is_never_transient(number: int) -> None:
    assert not isinstance(
        failures.from_os(OSError(number, "x"), "file:///a", "b"), TransientStorageError
    )


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ETIMEDOUT, errno.ECONNRESET, errno.EAGAIN])
def test_what_may_pass_is_transient(number: int) -> None:
    assert isinstance(
        failures.from_os(OSError(number, "x"), "file:///a", "b"), TransientStorageError
    )


def test_hints_can_be_pasted_whatever_the_name() -> None:
    error = failures.from_os(OSError(errno.ENOSPC, "x"), "file:///a b", "it's $HOME")
    assert error.hint is not None
    quoted = error.hint.removeprefix("df -h ").split(";")[0]
    shown = subprocess.run(
        ["sh", "-c", f"printf %s {quoted}"], capture_output=True, text=True, check=True
    ).stdout
    assert shown == "/a b/it's $HOME"


def test_nothing_is_remembered_of_what_was_written_but_its_directory(storage: LocalStorage) -> None:
    for number in range(500):
        storage.write(f"d/{number}", lambda: iter([b"x"]))
    remembered = [len(value) for value in vars(storage).values() if isinstance(value, dict | set)]
    # The device, the directory that was written to, and two that were made.
    assert sum(remembered) <= 4
    storage.sync()
    assert sum(len(value) for value in vars(storage).values() if isinstance(value, dict | set)) == 0


def test_a_killed_create_leaves_nothing(tmp_path: Path) -> None:
    """Killed just before the file gets its name, as Python's audit events tell."""
    done = python(
        """
        import os, sys
        from stateshift.storage.local.storage import LocalStorage
        def kill(event, arguments):
            if event == "os.link":
                os.kill(os.getpid(), 9)
        sys.addaudithook(kill)
        LocalStorage(sys.argv[1]).create("c/lock", b"x")
        """,
        str(tmp_path),
    )
    assert done.returncode == -9
    assert list((tmp_path / "c").iterdir()) == []


def test_a_removed_directory_does_not_hinder_the_sync(
    storage: LocalStorage, tmp_path: Path
) -> None:
    storage.write("d/e/a", lambda: iter([b"x"]))
    storage.remove("d/e/a")
    storage.prune()
    assert not (tmp_path / "root").exists()
    storage.sync()


def traced(calls: str, program: str, tmp_path: Path, *arguments: str) -> str:
    """Return what strace, which sees it from outside, says of a program's system calls. Others do
    not stop it.
    """
    trace = tmp_path / "trace"
    before = ("strace", "-f", "--seccomp-bpf", "-o", str(trace), "-e", f"trace={calls}")
    try:
        done = python(program, str(tmp_path), *arguments, before=before)
    except FileNotFoundError:
        pytest.skip("there is no strace here")
    said(done)
    return trace.read_text()


def test_a_directory_that_was_made_is_synced_for_the_first_file_created_in_it(
    tmp_path: Path,
) -> None:
    """And not for each: its entry is durable from then on."""
    trace = traced(
        "fsync",
        """
        import sys
        from stateshift.storage.local.storage import LocalStorage
        storage = LocalStorage(sys.argv[1])
        for number in range(5):
            storage.create(f"a/b/c/{number}", b"x")
        """,
        tmp_path,
    )
    first = 1 + 4  # the file, the directory it is in, and the three that entries were made in
    assert trace.count("fsync(") == first + 4 * 2


def test_of_many_files_in_a_directory_the_way_there_is_looked_at_once(tmp_path: Path) -> None:
    trace = traced(
        "lstat,newfstatat,fstat",
        """
        import sys
        from stateshift.storage.local.storage import LocalStorage
        storage = LocalStorage(sys.argv[1])
        for number in range(100):
            storage.write(f"state/0/1/{number}.delta", lambda: iter([b"x"]))
        """,
        tmp_path,
    )
    looks = [line for line in trace.splitlines() if f'"{tmp_path}/state' in line]
    assert 3 <= len(looks) < 20  # three names on the way, and the making of the directories


def test_syncing_is_shown_to_the_kernel(tmp_path: Path) -> None:
    """syncfs in sync, fsync before the link in create and move."""
    trace = traced(
        "syncfs,fsync,linkat,link,unlink,rename",
        """
        import sys
        from stateshift.storage.local.storage import LocalStorage
        storage = LocalStorage(sys.argv[1])
        storage.write("a/b", lambda: iter([b"x"])); storage.sync()
        storage.create("c/lock", b"x")
        storage.move("a/b", "d/b")
        storage.remove("d/b")
        """,
        tmp_path,
    )
    calls = [line.split(maxsplit=1)[1].split("(")[0] for line in trace.splitlines() if "(" in line]
    text = " ".join(
        c for c in calls if c in ("syncfs", "fsync", "linkat", "link", "unlink", "rename")
    )
    assert re.search(
        "rename syncfs fsync linkat (unlink )?fsync fsync .*fsync linkat unlink fsync", text
    )
    assert text.rstrip().endswith("unlink fsync")


def test_looking_at_a_local_directory_imports_no_fsspec(tmp_path: Path) -> None:
    done = python(
        """
        import sys
        from stateshift.storage.opening import open_storage
        storage = open_storage(sys.argv[1])
        list(storage.list())
        heavy = ("fsspec", "requests", "hdfs", "asyncio", "typer", "rich", "pyspark", "random", "tempfile")
        print(storage.location, [name for name in heavy if name in sys.modules])
        """,
        str(tmp_path),
    )
    [line] = said(done)
    assert line.startswith(f"file://{tmp_path} ")
    assert "fsspec" not in line
    assert "asyncio" not in line


def test_opening_takes_relative_paths_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stateshift.storage.opening import open_storage

    monkeypatch.chdir(tmp_path)
    open_storage("x").write("a", lambda: iter([b"1"]))
    assert (tmp_path / "x" / "a").read_bytes() == b"1"
    with pytest.raises(MissingFile):
        open_storage(f"file:{tmp_path}/y").read("a")


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
@pytest.mark.parametrize("offset", [0, 1, CHUNK, 3 * CHUNK])
def test_a_file_is_read_to_its_end_in_pieces_that_are_not_too_large(
    tmp_path: Path, size: int, offset: int
) -> None:
    content = os.urandom(size)
    (tmp_path / "a").write_bytes(content)
    pieces = list(LocalStorage(str(tmp_path)).chunks("a", offset))
    assert b"".join(pieces) == content[offset:]
    assert all(0 < len(piece) <= CHUNK for piece in pieces)


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end_and_one_that_shrinks_as_well(
    tmp_path: Path,
) -> None:
    for more, expected in ((b"more" * CHUNK, CHUNK + 9 + 4 * CHUNK), (None, CHUNK)):
        (tmp_path / "a").write_bytes(b"x" * (CHUNK + 9))
        chunks = LocalStorage(str(tmp_path)).chunks("a")
        first = len(next(chunks))
        if more is None:
            os.truncate(tmp_path / "a", CHUNK)
        else:
            with open(tmp_path / "a", "ab") as file:
                file.write(more)
        assert first + sum(map(len, chunks)) == expected


def test_what_is_below_a_file_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(MissingFile):
        list(LocalStorage(str(tmp_path)).chunks("a/b"))


# -- written as it was read


def test_what_is_written_as_it_was_read_is_the_same(tmp_path: Path) -> None:
    here, there = LocalStorage(str(tmp_path / "here")), LocalStorage(str(tmp_path / "there"))
    for size in (0, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE, 5 * PIECE + 7):
        content = os.urandom(size)
        here.write("a", lambda content=content: iter([content]))
        for offset in (0, 1, PIECE, 4096):
            assert there.write("b", lambda offset=offset: here.chunks("a", offset)) == max(
                0, size - offset
            )
            assert there.read("b") == content[offset:]


def test_the_system_copies_what_a_thread_writes_as_it_has_read_it(tmp_path: Path) -> None:
    """Seen by the file that is read having changed behind the reader's back: what is written is
    what the system found. Nothing of an image changes so; it is the only way to see who has copied.
    """
    storage = LocalStorage(str(tmp_path))
    storage.write("a", lambda: iter([b"a" * 3 * PIECE]))

    def changed() -> Iterator[bytes]:
        for piece in storage.chunks("a"):
            with open(tmp_path / "a", "r+b") as file:
                file.write(b"b" * 3 * PIECE)
            yield piece

    storage.write("b", changed)
    if not hasattr(os, "copy_file_range"):
        pytest.skip("only Linux has copy_file_range")
    assert storage.read("b") == b"b" * 3 * PIECE


def test_a_piece_whose_file_is_closed_is_written_as_the_bytes_that_it_is(tmp_path: Path) -> None:
    """Its number may be another file's by then."""
    storage = LocalStorage(str(tmp_path))
    for name in "ab":
        storage.write(name, lambda name=name: iter([name.encode() * 2 * PIECE]))
    reading = storage.chunks("a")
    first = next(reading)
    reading.close()
    other = storage.chunks("b")
    next(other)
    storage.write("c", lambda: iter([first]))
    assert storage.read("c") == b"a" * PIECE
    storage.write("d", lambda: iter(list(storage.chunks("a")) + list(storage.chunks("b"))))
    assert storage.read("d") == b"a" * 2 * PIECE + b"b" * 2 * PIECE


def test_pieces_of_two_files_in_turn_are_each_their_own(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    contents = {name: os.urandom(3 * PIECE + 5) for name in "ab"}
    for name, content in contents.items():
        storage.write(name, lambda content=content: iter([content]))
    pairs = zip(storage.chunks("a"), storage.chunks("b"), strict=True)
    storage.write("c", lambda: (piece for pair in pairs for piece in pair))
    cuts = range(0, 3 * PIECE + 5, PIECE)
    assert storage.read("c") == b"".join(
        contents[name][cut : cut + PIECE] for cut in cuts for name in "ab"
    )


def test_pieces_are_written_as_bytes_where_the_system_copies_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(3 * PIECE + 5)
    storage = LocalStorage(str(tmp_path))
    storage.write("a", lambda: iter([content]))

    def refused(*arguments: Any) -> int:
        raise OSError(errno.EXDEV, "two file systems")

    def in_part(source: int, target: int, size: int, offset: int) -> int:
        return os.copy_file_range(source, target, size // 2, offset) if size > 4096 else 0

    for way in (None, refused, in_part, lambda *_: 0):
        monkeypatch.setattr(local_calls, "_copy_range", way)
        storage.write("b", lambda: storage.chunks("a"))
        assert storage.read("b") == content


def test_what_is_on_two_file_systems_is_copied_all_the_same(
    tmp_path: Path, other_file_system: Path
) -> None:
    content = os.urandom(2 * PIECE + 5)
    here, there = LocalStorage(str(tmp_path)), LocalStorage(str(other_file_system))
    here.write("a", lambda: iter([content]))
    there.write("b", lambda: here.chunks("a"))
    here.write("c", lambda: there.chunks("b"))
    assert here.read("c") == content
