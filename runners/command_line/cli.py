"""The edge of the command `wherry`: whatever happens becomes an exit code and a sentence."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence

import click

from runners.command_line.commands import wherry
from runners.command_line.exits import BROKEN_PIPE, BY_CODE, FAILED, INTERRUPTED, WRONG
from runners.definitions.known import collect_secrets
from runners.listeners.standard_error import Lines, end_json_stream, flush


def main() -> None:
    """Run the command that was typed, and end with its exit code."""
    sys.exit(execute(sys.argv[1:]))


def execute(words: Sequence[str]) -> int:
    """Run a command; returns its exit code. Whatever happens, no stack trace reaches the terminal."""
    end_json_stream()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if not logging.getLogger("wherry").handlers:
        logging.getLogger("wherry").addHandler(Lines())
        logging.getLogger("wherry").setLevel(logging.INFO)
    for handler in logging.getLogger("wherry").handlers:
        handler.setFormatter(None)
    with collect_secrets() as secrets:
        return _executed(words, secrets)


def _executed(words: Sequence[str], secrets: Mapping[str, str]) -> int:
    try:
        code = wherry.main(args=list(words), prog_name="wherry", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return WRONG
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except SystemExit as ended:  # click's answer to a closed pipe, and the end of a shell's completion
        return BROKEN_PIPE if ended.code == 1 else 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        flush()
        if _is_interrupted(error):
            click.echo("interrupted", err=True)
            return INTERRUPTED
        return _told(error, secrets)
    finally:
        flush()


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether it came of an interrupt: a Spark in the middle of a call ends with errors of its own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _told(error: Exception, secrets: Mapping[str, str]) -> int:
    """Say on standard error what went wrong and what to do; an error that nobody foresaw leaves its trace in a file."""
    from runners.command_line.doctor import foreign_packages

    foreign = list(foreign_packages())
    if foreign:
        click.echo(f"{foreign[0].found}.\n{foreign[0].advice}", err=True)
        return FAILED
    from origins.errors import WherryError
    from origins.secret import cut
    from runners.errors import inaccessible

    error = inaccessible(error) or error
    if isinstance(error, WherryError):
        from runners.command_line.printing import explained
        from runners.listeners.log_lines import complain

        complain("\n".join([str(error), *explained(error.code)]), code=error.code)
        return BY_CODE.get(error.code, FAILED)
    from runners.definitions.secrets import without
    from runners.listeners.log_lines import complain

    handle, name = tempfile.mkstemp(prefix="wherry-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as log:
        log.write(without(secrets, "".join(traceback.format_exception(error))))
    said = cut(" ".join(without(secrets, f"{type(error).__name__}: {error}").split()), 300)

    complain(
        f"An error that Wherry does not know: {said}\nThe trace is in {name}; please report it.", code="UNEXPECTED"
    )
    return FAILED
