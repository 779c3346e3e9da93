"""The entry point of the command `wherry`: every outcome becomes an exit code and a sentence."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence

import click

from runners.command_line.commands import wherry
from runners.command_line.process_end import (
    BROKEN_PIPE,
    BY_CODE,
    FAILED,
    INTERRUPTED,
    WRONG,
    end_process,
    is_interrupted,
    own_process,
    print_stacks_on_signal,
)
from runners.listeners.standard_error import Lines, end_json_stream, flush
from runners.model.text import choose_colors, paint
from runners.operations.printing import VERSION, suggest_explain


def main() -> None:
    if os.environ.get("DATABRICKS_RUNTIME_VERSION"):  # as `is_on_databricks`, which a foreign package may hide
        # The process belongs to a notebook or a job, for which any exit is a failure.
        code = execute(sys.argv[1:])
        if code:
            sys.exit(code)
        return
    own_process()
    print_stacks_on_signal()
    end_process(execute(sys.argv[1:]))


def execute(words: Sequence[str]) -> int:
    """Run a command and return its exit code. A stack trace never reaches the terminal."""
    end_json_stream()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    log = logging.getLogger("wherry")
    if not log.handlers:
        log.addHandler(Lines())
    if log.level == logging.NOTSET:  # whoever chose a level for this process keeps it
        log.setLevel(logging.INFO)
    for handler in log.handlers:
        handler.setFormatter(None)
    logging.getLogger().addFilter(_is_no_interrupt)
    with choose_colors(words):
        return _execute(words, {})


def _execute(words: Sequence[str], secrets: dict[str, str]) -> int:
    try:
        code = wherry.main(args=list(words), prog_name="wherry", standalone_mode=False, obj=secrets)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        _print_usage(error)
        _print_document(words, "USAGE", error.format_message())
        return WRONG
    except (click.Abort, KeyboardInterrupt):
        return _print_interrupted(words)
    except SystemExit as ended:  # click's answer to a closed pipe, and the end of a shell's completion
        return BROKEN_PIPE if ended.code == 1 else 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 -- the edge of the program: no stack trace reaches the terminal
        flush()
        if is_interrupted(error):
            return _print_interrupted(words)
        return _print_error(error, words, secrets)
    finally:
        flush()


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Whether to log the record. PySpark logs the stack of an interrupt that comes during a call."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


def _print_usage(error: click.ClickException) -> None:
    text = io.StringIO()
    error.show(text)
    click.echo(text.getvalue().replace("Error:", paint("Error:", "red"), 1), err=True, nl=False)


def _print_interrupted(words: Sequence[str]) -> int:
    click.echo("interrupted", err=True)
    _print_document(words, "INTERRUPTED", "interrupted")
    return INTERRUPTED


def _print_document(words: Sequence[str], code: str, message: str, hint: str = "") -> None:
    """Print the error as JSON on standard output, if a program asked for JSON."""
    if "--json" in words:
        document = {"version": VERSION, "error": {"code": code, "message": message, "hint": hint}}
        click.echo(json.dumps(document, indent=2).replace("\x7f", "\\u007f"))


def _print_error(error: Exception, words: Sequence[str], secrets: Mapping[str, str]) -> int:
    """Print the error and the advice on standard error. The trace of an unknown error goes to a file."""
    from runners.command_line.doctor import find_foreign_packages

    for foreign in find_foreign_packages():
        click.echo(f"{foreign.found}.\n{foreign.advice}", err=True)
        _print_document(words, "PACKAGES", foreign.found, foreign.advice)
        return FAILED
    from origins.errors import WherryError
    from origins.secret import cut_text
    from runners.listeners.log_lines import complain
    from runners.model import error_kinds, errors, masking

    full, error = error_kinds.is_disk_full(error), errors.wrap_file_error(error) or error
    if full:
        places = {"this folder": os.getcwd(), "temporary files": tempfile.gettempdir()}
        if isinstance(error, WherryError):
            error.hint = errors.add_full_disk(error.hint, places)
        else:
            error = errors.Inaccessible(
                cut_text(" ".join(str(error).split()), 300), hint=errors.add_full_disk("", places)
            )
    if isinstance(error, WherryError):
        complain("\n".join([str(error), *suggest_explain(error.code)]), code=error.code)
        _print_document(words, error.code, error.message, error.hint)
        return BY_CODE.get(error.code, FAILED)
    handle, name = tempfile.mkstemp(prefix="wherry-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as log:
        log.write(masking.without(secrets, "".join(traceback.format_exception(error))))
    text = cut_text(" ".join(masking.without(secrets, f"{type(error).__name__}: {error}").split()), 300)
    message, hint = f"Wherry met an unknown error: {text}", f"The trace is in {name}; please report it."
    complain(f"{message}\n{hint}", code="UNEXPECTED")
    _print_document(words, "UNEXPECTED", message, hint)
    return FAILED
