"""A Spark that stays warm between two processes of one user: how a process finds it and borrows it.

`warm_keeper.py` is the process that keeps it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from origins.errors import WherryError, list_spark_errors
from origins.lazy import SparkSession
from origins.quantities import parse_seconds
from origins.quick_dataclass import dataclass
from origins.secret import SECRET
from origins.spark_private import JvmAddress, attach_jvm, has_jvm, leave_jvm
from runners.model.json_form import JsonForm
from runners.model.spec import MASTER, SparkOptions
from runners.model.text import find_version
from runners.spark.quick_start import is_private, measure_file
from runners.spark.start import (
    SparkMissing,
    check_java,
    find_java,
    is_set_elsewhere,
    list_settings,
    note_start,
    silence_loggers,
    use_python,
)

VARIABLE = "WHERRY_WARM"
"""The environment variable for how long a Spark stays warm. It overrides definitions, and `0s` forbids warm Sparks."""

SOCKET, NOTE, LOG, CLEANS = "socket", "keeper.json", "log", "cleans"
"""The files in the folder of a keeper. `CLEANS` exists while the keeper cleans its Spark and does not answer."""

ANSWERS, ANSWERS_CLEAN = 3.0, 30.0
"""How many seconds a process waits for the answer of a keeper, and of a keeper that is cleaning its Spark."""

_LEAVES = 30.0
"""How many seconds a keeper may take to end after a request."""

_FOR_JVM = re.compile(
    "PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|CLASSPATH|LD_LIBRARY_PATH|LD_PRELOAD|_JAVA_OPTIONS"
    "|(JAVA|JDK|SPARK|PYSPARK|HADOOP|KRB5|AWS|AZURE|GOOGLE)_.*"
)
"""The variables that Spark, Hadoop and the clients of object stores read. Only Python functions see other variables."""
_NOT_FOR_JVM = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")
"""The variables that pyspark sets for this process."""
_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_")
_SECRET_VARIABLE = re.compile(r"(?i)(?!.*_(FILE|PATH)$).*(secret|passw|token|connection_string|_key(_|$))")
_SECRET_SETTING = re.compile(r"(?i).*(secret|passw|token|access[.]?key)")
_FOREIGN = ("spark.jars", "spark.driver.extraClassPath", "spark.executor.extraClassPath", "spark.plugins")
"""The settings that add other programs than Spark and Delta to the JVM."""


def read_keep(options: SparkOptions) -> float | None:
    """Return for how many seconds a Spark with these options stays warm.

    0 forbids it. None leaves the decision to `wherry warm`. Raises `WarmError` if the variable is no duration.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return parse_seconds(options.keep_warm) or None
    try:
        return parse_seconds(given)
    except ValueError as error:
        raise WarmError(
            f"{VARIABLE}: {error}.", hint=f"Set it to how long an idle Spark stays warm:  {VARIABLE}=15m"
        ) from error


class WarmError(WherryError):
    """A Spark cannot be kept warm here."""

    code = "WARM"


def find_obstacle(options: SparkOptions) -> str:
    """Return why a Spark with these options cannot stay warm, in words; empty if it can."""
    conf = options.settings
    if MASTER in conf:
        return "the definition names a master"
    if is_set_elsewhere():
        return "files beside the definition configure Spark"
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        return "PYSPARK_PIN_THREAD is off"
    held = [key for key, value in conf.items() if isinstance(value, SECRET) or _SECRET_SETTING.match(key)]
    if held:
        return f"spark.conf holds a secret, {held[0]}"
    foreign = bool(options.packages) or any(key.startswith(_FOREIGN) for key in conf)
    held = [name for name in sorted(os.environ) if _FOR_JVM.fullmatch(name) and _SECRET_VARIABLE.match(name)]
    held = [name for name in held if foreign or not name.startswith(_CLOUDS)]
    return f"Spark may read a secret from the environment, {held[0]}" if held else ""


def list_jvm_environment() -> dict[str, str]:
    """Return the environment of a JVM that stays warm. It has no secrets."""
    return {
        name: value
        for name, value in os.environ.items()
        if _FOR_JVM.fullmatch(name) and not _SECRET_VARIABLE.match(name) and name not in _NOT_FOR_JVM
    }


def find_base(*, make: bool = False) -> Path | None:
    """Return this user's private folder, with a folder for each keeper; None if no folder is surely private."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [Path(runtime, "wherry-warm")] if runtime and is_private(Path(runtime)) else []
    for place in (*places, Path("~/.cache/wherry/warm").expanduser()):
        with contextlib.suppress(OSError):
            if make:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.mkdir(mode=0o700, exist_ok=True)
            if is_private(place):
                return place
    return None


def name_folder(conf: Mapping[str, str], packages: Sequence[str]) -> str:
    """Return the name of the folder for all processes that would start the same Spark, so that they can share it."""
    java, here = find_java(), os.stat(".")
    facts = {
        "wherry": [find_version(), *map(measure_file, sorted(Path(__file__).parent.glob("*.py")))],
        "python": [sys.executable, sys.version, sys.prefix],
        "packages": [_find_installed(name) for name in ("pyspark", "delta-spark", "py4j")],
        "java": java and [str(java.resolve()), measure_file(java)],
        "settings": list_settings(conf, packages),
        "environment": list_jvm_environment(),
        "folder": [os.getcwd(), here.st_dev, here.st_ino],
        "user": [os.geteuid(), os.getegid(), sorted(os.getgroups()), _read_umask()],
        "machine": [socket.gethostname(), *map(_read_link, ("mnt", "net", "pid"))],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _find_installed(name: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _read_umask() -> str:
    with contextlib.suppress(OSError):
        return "".join(re.findall(r"^Umask:\s*(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE))
    return ""


def _read_link(space: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/ns/{space}")
    return ""


def attach(conf: Mapping[str, str], packages: Sequence[str], keep: float | None) -> SparkSession | None:
    """Return a session in a Spark that stays warm.

    If `keep` is a number of seconds, a missing Spark is started. It is None if this process must start a separate
    Spark, because the warm one is in use or does not answer.
    """
    if keep == 0 or has_jvm():
        return None
    base = find_base(make=keep is not None)
    if base is None or (keep is None and not any(base.iterdir())):
        return None
    folder = base / name_folder(conf, packages)
    try:
        with note_start():
            lent = _borrow(folder, keep, conf, packages)
    except OSError:
        return None
    if lent is None:
        return None
    talk, answer = lent
    silence_loggers()
    environment = list_jvm_environment()
    further = {name: value for name, value in os.environ.items() if environment.get(name) != value}
    try:
        with use_python(conf):
            session = attach_jvm(JvmAddress(**answer["address"]), further)
    except list_spark_errors(AssertionError, AttributeError, KeyError, RuntimeError, TypeError):  # the JVM has ended
        talk.close()
        return None
    _hold(talk)
    return session


def _borrow(
    folder: Path, keep: float | None, conf: Mapping[str, str], packages: Sequence[str]
) -> tuple[socket.socket, Mapping[str, Any]] | None:
    """Return the lease of the Spark in this folder, and its keeper's answer; None if there is none, or it is in use.

    Raises OSError if the keeper does not answer.
    """
    try:
        talk, answer = ask(folder, {"want": "lease", "keep": keep, "process": os.getpid()})
    except (FileNotFoundError, ConnectionRefusedError):
        if keep is None:
            return None
        talk, answer = start_keeper(folder, conf, packages, keep=keep)
    if answer.get("state") == "lent":
        talk.settimeout(None)
        return talk, answer
    talk.close()
    return None


def start_keeper(
    folder: Path, conf: Mapping[str, str], packages: Sequence[str], *, keep: float, lend: bool = True
) -> tuple[socket.socket, Mapping[str, Any]]:
    """Start a keeper, and let it `lend` its Spark to this process.

    Return its message after the Spark has started or failed.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    here, there = socket.socketpair()
    code = "import sys; sys.path[:] = sys.argv[2:]; from runners.spark.warm_keeper import main; main(int(sys.argv[1]))"
    paths = [str(Path(__file__).parents[2]), *(path for path in sys.path if path)]
    log = os.open(folder / LOG, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        keeper = subprocess.Popen(
            [sys.executable, "-c", code, str(there.fileno()), *paths],
            env=list_jvm_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[there.fileno()],
            start_new_session=True,
        )
    finally:
        os.close(log)
        there.close()
    _KEEPERS.append(keeper)
    order = {"folder": str(folder), "conf": dict(conf), "packages": list(packages), "keep": keep, "lend": lend}
    try:
        send(here, {**order, "process": os.getpid()})
        return here, receive(here)
    except OSError:
        return here, {}


def keep_warm(options: SparkOptions, keep: float) -> str:
    """Start a Spark with these options that stays warm, unless there is one. Return `started`, `warm` or `starting`.

    Raises `WarmError` if a Spark cannot stay warm here, and `SparkMissing` if it does not start.
    """
    obstacle = find_obstacle(options)
    if obstacle:
        raise WarmError(f"This Spark cannot stay warm: {obstacle}.", hint=_HOWTO)
    check_java()
    base = find_base(make=True)
    if base is None:
        raise WarmError(
            "Wherry found no folder that only this user can read.",
            hint="Wherry tries $XDG_RUNTIME_DIR and ~/.cache/wherry/warm. Make one of them your own, with mode 700.",
        )
    folder = base / name_folder(options.conf, options.packages)
    try:
        talk, answer = ask(folder, {"want": "status", "keep": keep})
        talk.close()
        return "warm"
    except (FileNotFoundError, ConnectionRefusedError):
        talk, answer = start_keeper(folder, options.conf, options.packages, keep=keep, lend=False)
        talk.close()
    except OSError as error:
        raise WarmError(
            f"The keeper of the warm Spark does not answer: {error}.", hint="End it:  wherry warm stop"
        ) from error
    if answer.get("state") == "busy":
        return "starting"
    if answer.get("state") != "idle":
        raise SparkMissing(
            str(answer.get("message") or "The warm Spark did not start."),
            hint=str(answer.get("hint") or f"Read its log, {folder / LOG}."),
        )
    return "started"


_HOWTO = "The page `howto/keep-spark-warm.md` of the documentation says what a warm Spark needs."

_KEEPERS: list[subprocess.Popen[bytes]] = []
"""The keepers that this process has started. They continue after its end."""

_UNFINISHED: set[str] = set()
"""The runs of this process that a later run may find open."""


def begin_use(run: str) -> None:
    """Record that a later run may end the JVM of this process, because the ledger or a note names the JVM."""
    _UNFINISHED.add(run)


def end_use(run: str) -> None:
    """Record that this run no longer gives a reason to end the JVM."""
    _UNFINISHED.discard(run)


def _hold(talk: socket.socket) -> None:
    """Keep the lease until this process ends."""
    _LEASES.append(talk.detach())
    atexit.register(_say_goodbye)


_LEASES: list[int] = []
"""The lease of this process, as an open file. The operating system closes it at the end of the process."""


def _say_goodbye() -> None:
    """Give the Spark back, unless a run of this process is unfinished. The keeper then ends the JVM."""
    for lease in _LEASES if not _UNFINISHED else ():
        leave_jvm()
        with contextlib.suppress(OSError):
            os.write(lease, GOODBYE)


def _let_go_in_child() -> None:
    """Close the lease in a child made by `fork`. Otherwise the child would keep it after the parent's end."""
    while _LEASES:
        os.close(_LEASES.pop())


os.register_at_fork(after_in_child=_let_go_in_child)

GOODBYE = b"goodbye\n"


def send(talk: socket.socket, facts: Mapping[str, Any]) -> None:
    """Send one message."""
    talk.sendall(json.dumps(facts).encode() + b"\n")


def receive(talk: socket.socket) -> Mapping[str, Any]:
    """Return the next message. Raises ConnectionError at the end, or if the text is no message."""
    text = b""
    while not text.endswith(b"\n"):
        more = talk.recv(65_536)
        text += more
        if not more or len(text) > _LONGEST:
            raise ConnectionResetError("the other process ended")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConnectionAbortedError("the other process speaks another language") from error
    if not isinstance(found, dict):
        raise ConnectionAbortedError("the other process speaks another language")
    return found


_LONGEST = 1 << 20


def ask(folder: Path, question: Mapping[str, Any], *, patient: bool = True) -> tuple[socket.socket, Mapping[str, Any]]:
    """Ask the keeper of this folder. Return the connection and the answer. Raises OSError unless it answers in time."""
    note = read_note(folder)
    talk = socket.socket(socket.AF_UNIX)
    try:
        talk.settimeout(ANSWERS_CLEAN if patient and (folder / CLEANS).exists() else ANSWERS)
        with shorten_path(folder) as place:
            talk.connect(f"{place}/{SOCKET}")
        check_peer(talk)
        send(talk, {**question, "token": note["token"]})
        return talk, receive(talk)
    except BaseException:
        talk.close()
        raise


@contextlib.contextmanager
def shorten_path(folder: Path) -> Iterator[str]:
    """Give a path to this folder that fits into the address of a socket, which has at most 100 characters."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        quick = f"/proc/self/fd/{handle}"
        yield quick if os.path.isdir(quick) else str(folder)
    finally:
        os.close(handle)


def check_peer(talk: socket.socket) -> None:
    """Raise PermissionError if the other end belongs to another user."""
    if hasattr(socket, "SO_PEERCRED"):
        _, user, _ = struct.unpack("3i", talk.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.geteuid():
            raise PermissionError("another user is at the other end")


def read_note(folder: Path) -> Mapping[str, Any]:
    """Return the note of a keeper. Raises OSError if it is missing, or if another user may have written or read it."""
    if not is_private(folder):
        raise FileNotFoundError(f"{folder} is not there, or is not private")
    handle = os.open(folder / NOTE, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, encoding="utf-8") as file:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise PermissionError(f"{folder / NOTE} is not private")
        try:
            note: Mapping[str, Any] = json.load(file)
            return {**note, "token": str(note["token"])}
        except (ValueError, KeyError, TypeError) as error:
            raise ConnectionAbortedError(f"{folder / NOTE} is broken") from error


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[bool]:
    """Lock this folder, so that no other process keeps a Spark in it. Give False if another process does."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        yield False
        return
    try:
        yield is_at(folder, handle)
    finally:
        os.close(handle)


def is_at(folder: Path, handle: int) -> bool:
    """Whether the path still leads to this open folder."""
    try:
        return os.path.samestat(folder.lstat(), os.fstat(handle))
    except OSError:
        return False


@dataclass(frozen=True, kw_only=True)
class WarmSpark(JsonForm):
    """A Spark that stays warm, or is starting."""

    state: str
    """`starting`, `idle`, `busy`, `cleaning`, or `frozen` if its keeper does not answer."""
    folder: str
    """The folder in which runs can use it."""
    seconds: float | None
    """How many seconds it stays warm, if it is idle."""
    used_by: int | None
    """The id of the process that uses it."""
    keeper: int
    """The id of the process that keeps it."""
    jvm: int | None
    memory: int | None
    """The memory of the JVM in bytes."""
    place: str
    """The folder of its keeper."""


def list_warm() -> list[WarmSpark]:
    """Return the Sparks of this user that stay warm. Also remove the folders of keepers that have ended."""
    base = find_base()
    folders = sorted(base.iterdir()) if base is not None else []
    return [found for folder in folders if (found := _look(folder)) is not None]


def _look(folder: Path) -> WarmSpark | None:
    try:
        with lock_folder(folder) as mine:
            if mine:
                shutil.rmtree(folder, ignore_errors=True)
                return None
        note = read_note(folder)
    except OSError:
        return None
    try:
        talk, answer = ask(folder, {"want": "status"}, patient=False)
        talk.close()
    except (FileNotFoundError, ConnectionRefusedError):
        answer = {"state": "starting"}
    except OSError:
        answer = {"state": "cleaning" if (folder / CLEANS).exists() else "frozen"}
    jvm = answer.get("jvm")
    return WarmSpark(
        state=str(answer.get("state")),
        folder=str(note.get("cwd")),
        seconds=answer.get("seconds"),
        used_by=answer.get("used_by"),
        keeper=int(note.get("keeper", 0)),
        jvm=jvm,
        memory=_read_memory(jvm) if jvm else None,
        place=str(folder),
    )


def _read_memory(process: int) -> int | None:
    with contextlib.suppress(OSError):
        found = re.search(r"^VmRSS:\s*(\d+) kB", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
        return int(found.group(1)) * 1024 if found else None
    return None


def end_warm(spark: WarmSpark) -> str:
    """Ask the keeper to end, or kill it if it does not answer.

    Return `ended`, or `alive` if it could not be killed. `busy` means that it ends after the process that uses its
    Spark.
    """
    folder = Path(spark.place)
    try:
        talk, answer = ask(folder, {"want": "stop"})
        with talk:
            talk.settimeout(_LEAVES)
            if answer.get("state") == "busy":
                return "busy"
            with contextlib.suppress(ConnectionError):
                receive(talk)  # the keeper ends, and closes the connection
            return "ended"
    except OSError:
        return "ended" if _kill(folder) else "alive"


def _kill(folder: Path) -> bool:
    """Kill the keeper that has locked this folder. Its JVM ends with it."""
    try:
        process = os.pidfd_open(int(read_note(folder)["keeper"]))
    except (OSError, ValueError, KeyError, AttributeError):
        return not folder.exists()
    try:
        with lock_folder(folder) as mine:
            if not mine:
                signal.pidfd_send_signal(process, signal.SIGKILL)
        return True
    except OSError:
        return not folder.exists()
    finally:
        os.close(process)
