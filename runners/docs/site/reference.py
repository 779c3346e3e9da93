"""Writes the reference: a page for each kind and command, and for definitions, metrics, events and reports.

Everything comes from where it is defined: dataclasses and the sentences below their fields, and the commands of click.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from destinations.dlq import Dlq
from runners.command_line.commands import wherry
from runners.command_line.help_sections import SHARED
from runners.definitions.kinds import (
    CALLED,
    CONTRACTS,
    DescribedOption,
    Kind,
    Role,
    describe_kind,
    describe_type,
    get_our_kinds,
    list_options,
    read_docs,
    read_summary,
)
from runners.listeners import metrics
from runners.model import events, schedule_events
from runners.model.run_report import DestinationReport, Report, RunError
from runners.model.spec import (
    BatchOptions,
    Hook,
    PipelineSpec,
    RetryOptions,
    RunOptions,
    ScheduleOptions,
    SchemaState,
    SparkOptions,
)

Pages = dict[str, str]
"""The text of each page, by its place below the folder of the reference."""

FOLDERS: Mapping[Role, str] = {"origin": "origins", "stage": "stages", "destination": "destinations"}
DEFINITION: Mapping[str, type] = {
    "": PipelineSpec,
    "run": RunOptions,
    "run.batch": BatchOptions,
    "run.retry": RetryOptions,
    "dlq": Dlq,
    "schedule": ScheduleOptions,
    "hooks": Hook,
    "spark": SparkOptions,
    "state": SchemaState,
}
"""What stands in a definition beside the kinds, by the word under which it stands."""
_AROUND: Mapping[Role, str] = {
    "origin": "name: orders\norigin:\n{example}\ndestinations:\n  - delta: {{path: tables/orders}}\n",
    "stage": "name: orders\norigin:\n  files: {{path: landing/*.json, format: json}}\nstages:\n{example}\n"
    "destinations:\n  - delta: {{path: tables/orders}}\n",
    "destination": "name: orders\norigin:\n  files: {{path: landing/*.json, format: json}}\ndestinations:\n{example}\n",
}


def write_reference(folder: Path) -> None:
    for name, text in make_pages().items():
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


def make_pages() -> Pages:
    kinds = [describe_kind(role, kind) for role in CONTRACTS for kind in get_our_kinds().get_kinds(role)]
    commands = dict(_walk_commands(wherry, ()))
    pages = {
        "definition.md": _make_definition_page(),
        "metrics.md": _make_metrics_page(),
        "events.md": _make_events_page(),
        "report.md": _make_report_page(),
        "commands/index.md": _make_commands_index(commands),
    }
    for role, folder in FOLDERS.items():
        ours = {kind.name: kind.summary for kind in kinds if kind.role == role}
        intro = f"Each kind of {role} has a page with its options. `wherry kinds` lists them too."
        menu = _make_toctree({name: name for name in ours})
        pages[f"{folder}/index.md"] = "\n".join([f"# {folder.capitalize()}\n\n{intro}\n", _make_links(ours), menu])
    pages |= {f"{FOLDERS[kind.role]}/{kind.name}.md": _make_kind_page(kind) for kind in kinds}
    return pages | {
        f"commands/{'-'.join(words)}.md": _make_command_page(words, each) for words, each in commands.items()
    }


def make_example(kind: Kind) -> str:
    """A whole definition that uses a kind, from the example in the docstring of its class."""
    dash = "  " if kind.role == "origin" else "  - "
    lines = textwrap.indent(read_example(get_our_kinds().resolve(kind.role, kind.name)), "    " if dash[2:] else dash)
    return _AROUND[kind.role].format(example=dash + lines.removeprefix("    " if dash[2:] else dash))


def read_example(component: type) -> str:
    """What stands below `Example:` in the docstring."""
    _, _, below = (inspect.getdoc(component) or "").partition("\nExample:\n")
    return textwrap.dedent(below).strip()


def _make_links(names: Mapping[str, str]) -> str:
    return "\n".join(f"[`{name}`]({name}.md)\n: {text}\n" for name, text in names.items())


def _make_toctree(titles: Mapping[str, str]) -> str:
    """What the menu shows below a page: the title of each page, by its name."""
    return "```{toctree}\n:hidden:\n\n" + "\n".join(f"{title} <{name}>" for name, title in titles.items()) + "\n```\n"


def _make_kind_page(kind: Kind) -> str:
    component = get_our_kinds().resolve(kind.role, kind.name)
    text = (inspect.getdoc(component) or "").partition("\nExample:\n")[0].strip()
    example = make_example(kind)
    common = [option for option in kind.options if option.required or re.search(rf"\b{option.name}:", example)]
    main = next((option for option in kind.options if option.main), None)
    common = common or ([main] if main else [])
    promises = [f"{name.capitalize()}\n: {text}\n" for name, text in kind.promises.items()]
    return "\n".join(
        [
            f"# `{kind.name}`, a kind of {kind.role}\n\n{text}\n",
            *promises,
            f"## Example\n\n```yaml\n{example}```\n",
            *_make_options("Common options", common, main),
            *_make_options("Advanced options", [option for option in kind.options if option not in common], main),
            *_make_options(f"Options beside `{kind.name}`", kind.beside, None),
            f"## More\n\n- [How {FOLDERS[kind.role]} work](../../{FOLDERS[kind.role]}/README.md)",
            "- [What a code of an error or of a refused row means](../../runners/CODES.md)\n",
        ]
    )


def _make_options(title: str, options: Sequence[DescribedOption], main: DescribedOption | None) -> Iterator[str]:
    if not options:
        return
    yield f"## {title}\n"
    if main in options:
        yield f"`{main.name}` is the main option: its value may stand right behind the kind.\n" if main else ""
    for option in options:
        default = "required" if option.required else f"default: {_show(option.default)}"
        yield f"`{option.name}`\n: *{_show_type(option.type)}, {default}*\n\n  {option.text}\n"


def _show_type(text: str) -> str:
    return re.sub(r"'(\w+)'", r"`\1`", text)


def _show(default: Any) -> str:
    if default in (None, "", (), [], {}):
        return "none"
    return f"`{default if isinstance(default, str) else json.dumps(default, default=str)}`"


def _walk_commands(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if not command.hidden:
            yield (*words, name), command
            if isinstance(command, click.Group):
                yield from _walk_commands(command, (*words, name))


def _make_commands_index(commands: Mapping[tuple[str, ...], click.Command]) -> str:
    rows = [
        f"[`wherry {' '.join(words)}`]({'-'.join(words)}.md)\n: {_mark_options(_read_help(each)[0])}\n"
        for words, each in commands.items()
    ]
    intro = "\n\n".join(_read_help(wherry))
    common = (
        "\n\n".join(["## Common options", "Type them after the command or before it.", *_list_options(SHARED)]) + "\n"
    )
    return "\n".join(
        [
            f"# Commands\n\n{intro}\n",
            *rows,
            common,
            _make_toctree({"-".join(words): " ".join(words) for words in commands}),
        ]
    )


def _make_command_page(words: tuple[str, ...], command: click.Command) -> str:
    above = click.Context(wherry, info_name="wherry", **wherry.context_settings)
    context = click.Context(command, parent=above, info_name=" ".join(words))
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"# `wherry {' '.join(words)}`"]
    common = ", ".join(f"`{each.opts[0]}`" for each in getattr(command, "shared", ()))
    for paragraph in _read_help(command):
        example = paragraph.removeprefix("For example:").strip()
        parts.append(f"```console\n$ {example}\n```" if example != paragraph else _mark_options(paragraph))
    parts += ["## Usage", f"```text\n{usage}\n```"]
    if isinstance(command, click.Group):
        inside = [
            f"- [`{name}`]({'-'.join((*words, name))}.md): {_read_help(inner)[0]}"
            for name, inner in command.commands.items()
        ]
        parts += ["## Commands", "\n".join(inside)]
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if options:
        parts += ["## Options", *_list_options(options)]
    if common:
        parts.append(f"[Common options](index.md#common-options): {common}")
    return "\n\n".join(parts) + "\n"


def _list_options(options: Sequence[click.Option]) -> Iterator[str]:
    records = (option.get_help_record(click.Context(wherry)) or ("", "") for option in options)
    return (f"`{names}`\n: {_mark_options(text)}" for names, text in records)


def _mark_options(text: str) -> str:
    """A text of the command line as Markdown: options and parameters in code."""
    return re.sub(r"(?<![\w`-])(--[a-z][\w-]*|\$\{[\w:]+\})(?!`)", r"`\1`", text)


def _read_help(command: click.Command) -> list[str]:
    text = inspect.cleandoc(command.help or "").partition("\f")[0]
    return [" ".join(paragraph.replace("\b", "").split()) for paragraph in text.split("\n\n")]


def _make_definition_page() -> str:
    intro = "A definition is a YAML file. These are its words, beside the kinds of origins, stages and destinations."
    parts = [f"# The definition of a pipeline\n\n{intro}\n"]
    for word, component in DEFINITION.items():
        title = f"## `{word}`" if word else "## The top level"
        parts.append(f"{title}\n\n{inspect.getdoc(component)}\n")
        docs = read_docs(component)
        for name, option in list_options(component).items():
            value = "see below" if dataclasses.is_dataclass(option.default) else _show(option.default)
            default = "required" if option.required else f"default: {value}"
            kind = _show_type(describe_type(option.annotation).replace("nothing", "a mapping"))
            parts.append(f"`{CALLED.get(name, name)}`\n: *{kind}, {default}*\n\n  {docs[name]}\n")
    return "\n".join(parts)


def _make_metrics_page() -> str:
    intro = "`wherry schedule --metrics-port PORT` serves these figures for Prometheus at `/metrics`."
    labels = _read_labels()
    rows = [
        f"`{name}`\n: *{kind}{', by ' + ', '.join(labels[name]) if labels[name] else ''}*\n\n  {text}\n"
        for name, (kind, text) in metrics.METRICS.items()
    ]
    return "\n".join([f"# Metrics\n\n{intro}\n", *rows])


def _read_labels() -> Mapping[str, list[str]]:
    """The labels of each metric, as the source sets them."""
    labels: dict[str, list[str]] = {name: [] for name in metrics.METRICS}
    for node in ast.walk(ast.parse(inspect.getsource(metrics))):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            labels.get(str(node.args[0].value), []).extend(keyword.arg for keyword in node.keywords if keyword.arg)
    return {name: list(dict.fromkeys(found)) for name, found in labels.items()}


def _make_events_page() -> str:
    intro = (
        "A listener gets each event of a run in Python: `pipeline.run(listeners=[function])`. "
        "Every event comes after Wherry recorded what it says."
    )
    of_runs = _list_events(events.Event, events)
    of_schedules = _list_events(schedule_events.ScheduleEvent, schedule_events)
    parts = [f"# Events\n\n{intro}\n", "## Events of a run\n", *map(_describe_fields, of_runs)]
    return "\n".join([*parts, "## Events of a scheduler\n", *map(_describe_fields, of_schedules)])


def _list_events(union: Any, module: Any) -> list[type]:
    return [getattr(module, name) for name in str(union).split(" | ")]


def _describe_fields(component: type, title: str = "") -> str:
    docs = read_docs(component)
    rows = [f"`{field.name}`\n: {docs[field.name]}\n" for field in dataclasses.fields(component)]
    return "\n".join([f"### `{title or component.__name__}`\n\n{read_summary(component)}\n", *rows])


def _make_report_page() -> str:
    docs = {**read_docs(Report), "delivered": inspect.getdoc(Report.delivered) or ""}
    keys = Report(pipeline="orders", run="1", status="succeeded").json()
    rows = [f"`{key}`\n: {docs[key]}\n" for key in keys]
    intro = (
        f"`wherry run FILE --json` prints this object. In Python, `pipeline.run()` returns it. {inspect.getdoc(Report)}"
    )
    inside = [_describe_fields(DestinationReport, "destinations.NAME"), _describe_fields(RunError, "error")]
    return "\n".join([f"# The report of a run\n\n{intro}\n", "## Keys\n", *rows, "## Objects inside\n", *inside])
