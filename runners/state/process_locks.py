"""Locks that allow one run at a time on this host and end with their processes, and the identities of processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import select
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from origins.errors import WherryError
from origins.spark_private import STARTER, find_start
from runners.model.entry import HostBody, OwnerBody, ProcessBody

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TRIES = 1000


class LockError(WherryError):
    """The lock file of a state cannot be opened or locked."""

    code = "LOCK"


class StateLock:
    """The right to run a pipeline on this host. The system releases it as soon as its process has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self) -> bool:
        """Take the lock without waiting. Return False if it is taken, also by another `StateLock` of this process."""
        if self._file is not None:
            return True
        for _ in range(_TRIES):
            file = _open_lock(self.path)
            if _try_lock(self.path, file, fcntl.LOCK_EX) and _is_at(file, self.path):
                self._file = file
                _HELD.add(self)
                return True
            is_only_probed = _try_lock(self.path, file, fcntl.LOCK_SH)
            os.close(file)
            if not is_only_probed:
                break
        return False

    def release(self) -> None:
        """Release the lock. A repeated call has no effect. The file stays, so that all processes lock the same file."""
        if self._file is not None:
            _HELD.discard(self)
            os.close(self._file)
            self._file = None

    @property
    def identity(self) -> str:
        """The identity of the lock's file, which no other file of this name has.

        Empty while this object does not have the lock.
        """
        return "" if self._file is None else _identify_file(self._file)

    def is_held(self, identity: str = "") -> bool | None:
        """Whether the lock is taken now. None if the file is missing, or has another identity.

        The check changes nothing, and blocks no other process.
        """
        try:
            file = _open_own(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _make_unusable_error(self.path, error) from error
        try:
            if identity and _identify_file(file) != identity:
                return None
            return not _try_lock(self.path, file, fcntl.LOCK_SH)
        finally:
            os.close(file)


def lock_path(place: str) -> Path:
    """Return the lock file of a state that is not a directory of this host.

    It is in a folder that only this user can enter. Raises `LockError` if there is none.
    """
    name = hashlib.sha256(place.encode()).hexdigest()[:32]
    return _find_private_folder() / f"wherry-{name}.lock"


def _find_private_folder() -> Path:
    """Return this user's folder for locks on this host, which is created if it is missing.

    Another user may have taken the name in the temporary folder. The folder in the home is for that case. A home may be
    shared by hosts, so its name includes the host.
    """
    temporary = Path(tempfile.gettempdir()) / f"wherry-{os.geteuid()}"
    for folder in (temporary, Path("~/.cache/wherry").expanduser() / f"locks-{socket.gethostname()}"):
        with contextlib.suppress(OSError):
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
                return folder
    raise LockError(
        f"{temporary} is not a folder that only this user can enter.",
        hint="Wherry keeps its locks there. Remove it, or set TMPDIR to a folder of your own.",
    )


def sweep_locks(path: Path, *, named: Collection[str] = (), older: float = 3_600) -> None:
    """Remove the files that dead runs left beside this lock.

    A file is removed if no process has locked it, and it is at least `older` seconds old. Files that are `named` by
    owners stay, because they prove whether these owners are alive.
    """
    for file in path.parent.glob(f"{path.name}-*"):
        with contextlib.suppress(OSError, LockError):
            old = time.time() - file.lstat().st_mtime >= older
            if old and file.name not in named and not StateLock(file).is_held():
                file.unlink(missing_ok=True)


def identify_host() -> HostBody:
    """Return this process's identity, by which a later process can tell whether it is alive.

    `boot` changes when the host restarts. It is empty if the system does not give it.
    """
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return HostBody(host=socket.gethostname(), boot=boot, **vars(identify_process(os.getpid())))


def identify_process(pid: int) -> ProcessBody:
    """Return the identity of a process. `started` is empty if it has ended, or if there is no /proc."""
    return ProcessBody(pid=pid, started=find_start(pid))


def is_process_alive(pid: int, started: str) -> bool:
    """Whether this process is alive, and not a later process with the same number.

    It is False if that is unknown, which is the case without /proc.
    """
    return started != "" and find_start(pid) == started


def end_process(pid: int, started: str, *, seconds: float = 30) -> bool:
    """Kill this process and wait for its end. Return False if it is alive or if that is unknown.

    No other process is ever killed, even if the number is used again meanwhile.
    """
    if started == "" or not hasattr(os, "pidfd_open"):
        return False
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not is_process_alive(pid, started):
            return True
        signal.pidfd_send_signal(process, signal.SIGKILL)
        end = select.poll()
        end.register(process, select.POLLIN)
        return bool(end.poll(seconds * 1000))
    except PermissionError:
        return False
    finally:
        os.close(process)


def end_orphan(owner: OwnerBody) -> None:
    """End the JVMs of an owner of this boot whose process has ended. They may still be writing.

    The watcher of a JVM does that too, but may have been killed together with the process. Only a JVM that Python
    started for Spark, as this user, is ended. While the process is alive, its JVM may work for other runs, and may be
    the JVM of this process.
    """
    if owner.boot != identify_host().boot or is_process_alive(owner.pid, owner.started):
        return
    for jvm in list_jvms_of(owner):
        if _is_jvm_of_spark(jvm.pid):
            end_process(jvm.pid, jvm.started)


def list_jvms_of(owner: OwnerBody) -> Iterator[ProcessBody]:
    """Yield the JVM of an owner that the ledger knows, and the JVMs of this host that its process started."""
    if owner.jvm:
        yield owner.jvm
    starter = f"{STARTER}={owner.pid} {owner.started}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            jvm = identify_process(int(folder.name))
            if starter in (folder / "environ").read_bytes().split(b"\0"):
                yield jvm


def _is_jvm_of_spark(pid: int) -> bool:
    """Whether this process is a JVM of this user that Python started for Spark, by its program and environment."""
    try:
        process = Path(f"/proc/{pid}")
        words = (process / "cmdline").read_bytes().split(b"\0")
        variables = (process / "environ").read_bytes().split(b"\0")
        own = process.stat().st_uid == os.geteuid()
    except OSError:
        return False
    started = any(each.startswith(b"_PYSPARK_DRIVER_CONN_INFO_PATH=") for each in variables)
    return own and started and b"org.apache.spark.deploy.SparkSubmit" in words


_HELD: set[StateLock] = set()


def _let_go_in_child() -> None:
    """Release the locks in a child made by `fork`.

    It has its parent's files, and would keep a lock after the parent's end.
    """
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)


def _open_lock(path: Path) -> int:
    """Return the opened lock file. Create it if it is missing.

    It is open for reading, so that one user can check another user's lock.
    """
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        return _open_own(path)
    except OSError as error:
        raise _make_unusable_error(path, error) from error


def _open_own(path: Path) -> int:
    """Return the opened file. Raises OSError, without waiting, if it is no regular file."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EINVAL, "it is not a regular file")


def _make_unusable_error(path: Path, error: OSError) -> LockError:
    return LockError(
        f"The lock file {path} cannot be opened: {error.strerror}.",
        hint="The lock keeps two runs of one pipeline apart. Make its folder writable.",
    )


def _identify_file(file: int) -> str:
    found = os.fstat(file)
    return f"{found.st_dev}:{found.st_ino}"


def _try_lock(path: Path, file: int, how: int) -> bool:
    """Return whether the opened file could be locked. Raises `LockError` if its file system has no locks."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LockError(
            f"The lock file {path} cannot be locked: {error.strerror}.",
            hint="The lock keeps two runs of one pipeline apart. Put the state on a local disk, or into a catalog:  "
            "state: {schema: main.wherry}\nIf it is in a catalog already, set TMPDIR to a folder of a local disk.",
        ) from error
    return True


def _is_at(file: int, path: Path) -> bool:
    """Whether the path still leads to the open file. Temporary folders may be cleaned."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False
