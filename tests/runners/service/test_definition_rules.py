"""The rules for definitions from the network. Everything that is not allowed is refused, with its line."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from origins.errors import WherryError
from runners.definitions.definition import DefinitionError
from runners.model.errors import Refusal
from runners.service.definition_rules import DefinitionRules
from runners.service.operation import Invalid

GOOD = """\
name: orders
origin:
  files:
    path: landing/*.json
    format: json
    schema: "id long, amount decimal(10,2), at timestamp"
stages:
  - require: {positive: amount > 0, known: "status in ('new', 'paid')"}
  - with_columns: {day: "date(at)", label: "concat(upper(name), ' (', cast(id as string), ')')"}
  - filter: "case when amount is null then false else not (amount < 1) end"
  - deduplicate: {keys: [id]}
destinations:
  - delta: {path: tables/orders, mode: merge, keys: [id]}
schedule: {cron: "*/5 6-18 * * mon-fri", time_zone: Europe/Berlin}
dlq: {window: 100, threshold: 5}
"""


@pytest.fixture
def rules(tmp_path: Path) -> DefinitionRules:
    """The rules of a server that allows two folders, a bucket and a parameter."""
    folder = tmp_path / "served"
    for name in ("landing", "tables", ".wherry", "secret"):
        (folder / name).mkdir(parents=True)
    roots = [str(folder / "landing"), str(folder / "tables"), "s3://lake/orders", "abfss://box@acct.example.net/a"]
    return DefinitionRules(folder=folder, roots=roots, parameters=["DAY"])


def refuse(rules: DefinitionRules, text: str) -> str:
    """Return with which message a definition is refused."""
    with pytest.raises(WherryError) as caught:
        rules.check(text, "orders")
    return str(caught.value)


def test_a_usual_definition_is_allowed(rules: DefinitionRules) -> None:
    """It has expressions, a schema, a schedule and limits."""
    rules.check(GOOD, "orders")


def test_a_pattern_a_separator_and_a_period_are_no_sql(rules: DefinitionRules) -> None:
    """`/*` is no comment in a pattern, `;` ends no statement in an option of CSV, and `default` is a key of periods."""
    text = GOOD.replace("format: json", 'format: csv\n    exclude: [old/*.json]\n    options: {sep: ";"}')
    rules.check(text.replace("threshold: 5", "threshold: 5, retain: {default: 30d}"), "orders")


def test_a_root_and_a_place_are_below_the_served_folder(rules: DefinitionRules) -> None:
    """The working directory of the server is another one."""
    replace(rules, roots=["landing", "tables"]).check(GOOD, "orders")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("hooks: [{on: failure, command: notify}]\n", 17),
        ("hooks: [{on: failure, python: 'alerts:page'}]\n", 17),
        ("spark: {conf: {spark.jars: /tmp/x.jar}}\n", 17),
        ("spark: {packages: ['a:b:1']}\n", 17),
        ("state: .wherry/server\n", 17),
        ("state: {schema: main.wherry}\n", 17),
        ("run: {ownership: 'off'}\n", 17),
    ],
)
def test_an_option_that_reaches_beyond_the_pipeline_is_refused(rules: DefinitionRules, text: str, line: int) -> None:
    """Hooks, Python, settings and JARs of Spark, and another place of the state are among them."""
    assert f"line {line - 1} " in refuse(rules, GOOD + text)


@pytest.mark.parametrize(
    "stage",
    [
        "python: 'mine:function'",
        "'mine:Stage': {}",
        "sql: SELECT * FROM rows",
        "expect: {suite: suite.json}",
        "lookup: {path: landing/x, on: [id]}",
        "mask: {columns: {a: hash}, salt: pepper}",
        "claim: {path: tables/claims}",
        "filter: {file: landing/a.sql}",
        "filter: \"java_method('java.lang.Runtime', 'getRuntime') is null\"",
        "filter: \"reflect ('java.lang.System', 'getProperty', 'x') = 'x'\"",
        "filter: \"`java_method`('a', 'b') = 'x'\"",
        "filter: system.builtin.java_method('a', 'b')",
        'filter: "id in (select id from parquet.`/etc`)"',
        'filter: "id in (\\n  SeLeCt id)"',
        'filter: "exists(table secret)"',
        'filter: "id in (values (1))"',
        "filter: \"read_files('/etc/passwd') = 'a'\"",
        "filter: \"name rlike '(a+)+$'\"",
        "filter: \"a = 'x' -- and b\"",
        'filter: "a /* b */ = 1"',
        "filter: \"a = 'it\\\\' or java_method(1) = ''\"",
        "filter: 'a = \"b\"'",
        'filter: "a = \\u0001"',
        "with_columns: {'a` as b, java_method(1) as `c': id}",
        "with_columns: {a: transform(b, x -> java_method(x))}",
        'cast: {a: "int) from (select"}',
        "select: ['java_method(1)']",
        "require: {rule: {message: 'a'}, 'b;c': id > 0}",
        "when: reflect(1)",
    ],
)
def test_code_and_queries_are_refused_in_stages(rules: DefinitionRules, stage: str) -> None:
    """A function that is not known, a query, a comment, and a name that needs quotes are refused with the line."""
    assert "line 8 " in refuse(rules, GOOD.replace("stages:\n", f"stages:\n  - {stage}\n"))


@pytest.mark.parametrize(
    "place",
    [
        "/etc/passwd",
        "landing/../secret/*.json",
        "landing/..",
        "landing/%2e%2e/secret",
        "landing/./x",
        "landing/.hidden/x",
        "landing/*/../../secret/*",
        "landing/[.][.]/secret",
        "landing/{a,..}/x",
        "landing//x",
        "landing\\\\x",
        "~/x",
        "secret/*.json",
        "*/x.json",
        ".wherry/server/tokens.json",
        "file:///etc/passwd",
        "file:/etc/passwd",
        "s3://lake/other/x",
        "s3://lake/orders2/x",
        "s3://lake/orders/../other",
        "s3://lake/orders/%2e%2e/other",
        "s3://other/orders/x",
        "s3a://lake/orders/x",
        "s3://key:secret@lake/orders/x",
        "s3://me@lake/orders/x",
        "s3://lake:443/orders/x",
        "s3://lake/orders/x?versionId=1",
        "s3://lake/orders/x#a",
        "jdbc:postgresql://host/db",
        "landing/a\\0b",
        "",
        "/",
    ],
)
def test_a_place_that_is_not_below_a_root_is_refused(rules: DefinitionRules, place: str) -> None:
    """So is a place that only seems to be there: with dots, encoded dots, patterns that climb, or a user in the URL."""
    assert "line 4 " in refuse(rules, GOOD.replace("path: landing/*.json", f'path: "{place}"'))


@pytest.mark.parametrize("place", ["s3://lake/orders/in/*.json", "abfss://box@acct.example.net/a/b", "landing/a=1/"])
def test_a_place_below_a_root_is_allowed(rules: DefinitionRules, place: str) -> None:
    """A root may be a URL, whose user is a part of the root."""
    rules.check(GOOD.replace("landing/*.json", place), "orders")


def test_a_link_out_of_the_root_is_refused(rules: DefinitionRules) -> None:
    """A link to a folder on the way, a file that a pattern finds, and a link below a folder are all refused."""
    landing, secret = rules.folder / "landing", rules.folder / "secret"
    (landing / "out").symlink_to(secret)
    assert "line 4 " in refuse(rules, GOOD.replace("landing/*.json", "landing/out/a.json"))
    assert "line 4 " in refuse(rules, GOOD)
    (landing / "out").unlink()
    (landing / "deep").mkdir()
    (landing / "deep" / "a.json").symlink_to(secret / "a.json")
    assert "line 4 " in refuse(rules, GOOD.replace("landing/*.json", "landing"))
    (landing / "deep" / "a.json").unlink()
    (landing / "deep" / "a.json").symlink_to(landing / "b.json")
    rules.check(GOOD, "orders")


def test_a_link_is_found_below_every_place(rules: DefinitionRules) -> None:
    """A table, and the folder that an allowed link leads to, are searched too."""
    tables, landing = rules.folder / "tables", rules.folder / "landing"
    (tables / "orders").mkdir()
    (tables / "orders" / "part").symlink_to(rules.folder / "secret")
    assert "line 13 " in refuse(rules, GOOD)
    (tables / "orders").rename(tables / "items")
    rules.check(GOOD, "orders")
    (landing / "near").symlink_to(tables)
    assert "line 4 " in refuse(rules, GOOD)


def test_links_in_a_circle_are_refused(rules: DefinitionRules) -> None:
    """They lead nowhere."""
    (rules.folder / "landing" / "a").symlink_to("b")
    (rules.folder / "landing" / "b").symlink_to("a")
    assert "line 4 " in refuse(rules, GOOD)


def test_a_link_that_is_a_root_leads_where_the_owner_meant(tmp_path: Path) -> None:
    """The places below it are allowed by their true names and by that of the link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    rules = DefinitionRules(folder=tmp_path, roots=[str(tmp_path / "link")])
    for name in ("real", "link"):
        rules.check(GOOD.replace("landing/", f"{name}/").replace("tables/", f"{name}/"), "orders")


def test_states_and_tokens_are_never_below_a_root(tmp_path: Path) -> None:
    """The owner may name the served folder as a root, and a pattern of its folders is refused."""
    (tmp_path / ".wherry").mkdir()
    rules = DefinitionRules(folder=tmp_path, roots=[str(tmp_path)])
    rules.check(GOOD, "orders")
    (tmp_path / "states").symlink_to(".wherry")
    for place in ("*/server/tokens.json", "*.json", "states/server/*.json", "."):
        assert "line 4 " in refuse(rules, GOOD.replace("landing/*.json", place))


@pytest.mark.parametrize(
    "text", ["${secret:KEY}", "${HOME}", "${HOME:-x}", "$${DAY}", "${DAY", "${DAY:-${HOME}}", "${DAY}${secret:a/b}"]
)
def test_a_reference_that_is_not_allowed_is_refused(rules: DefinitionRules, text: str) -> None:
    """A definition learns nothing from the environment and from the secrets of the server."""
    said = refuse(rules, GOOD.replace("landing/*.json", f'"landing/{text}.json"'))
    assert "line 4 " in said
    assert "DAY" in said


@pytest.mark.parametrize(
    "text",
    [
        'origin: {files: {path: "landing/${DAY:-../../etc}/a", format: json}}',
        'origin: {files: {path: "${DAY:-x}/landing", format: json}}',
        'origin: {files: {path: "${DAY:-landing}/a", format: json}}',
        "stages: [filter: \"${DAY:-abs}('a')\"]",
        "stages: [filter: \"${DAY:-java_method('a')}\"]",
    ],
)
def test_a_parameter_forms_no_place_and_no_code(rules: DefinitionRules, text: str) -> None:
    """Its default is checked, and so is what would come of any other value."""
    assert "line 2 " in refuse(rules, f"name: orders\n{text}\ndestinations: [discard: {{}}]\n")


def test_a_link_that_a_value_names_is_refused(rules: DefinitionRules, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values that count are those of the caller, else of the server, else of its environment."""
    (rules.folder / "landing" / "out").symlink_to(rules.folder / "secret")
    text = GOOD.replace("landing/*.json", "landing/${DAY:-today}/*.json")
    rules.check(text, "orders")
    with pytest.raises(DefinitionError, match="line 4 "):
        rules.check(text, "orders", {"DAY": "out"})
    monkeypatch.setenv("DAY", "out")
    assert "line 4 " in refuse(rules, text)
    rules.check(text, "orders", {"DAY": "monday"})


@pytest.mark.parametrize("value", ["landing", "abs", "orders"])
def test_a_value_of_the_server_counts_only_until_a_caller_gives_another(rules: DefinitionRules, value: str) -> None:
    """It forms no place, no function and no name."""
    known = replace(rules, variables={"DAY": value})
    for text in (
        GOOD.replace("landing/*", "${DAY}/*"),
        GOOD.replace("upper(", "${DAY}("),
        GOOD.replace("name: orders", "name: ${DAY}"),
    ):
        refuse(known, text)


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("origins: [{generate: {rows: 1}, lanes: NUMBER}]", 17),
        ("run: {runners: NUMBER}", 17),
        ("run: {max_in_flight: NUMBER}", 17),
    ],
)
def test_a_number_of_things_in_memory_is_at_most_1_000(rules: DefinitionRules, option: str, line: int) -> None:
    """It is refused before anything of that size is made."""
    rules.check(f"{GOOD}{option.replace('NUMBER', '1000')}\n", "orders")
    for number in ("1001", "100000000000", "0xFFFFFFFF", "1e11", "[100000000000]"):
        assert f"line {line - 1} " in refuse(rules, f"{GOOD}{option.replace('NUMBER', number)}\n")


def test_a_value_has_at_most_4_000_characters(rules: DefinitionRules) -> None:
    """It is refused before it is searched."""
    rules.check(GOOD.replace("amount > 0", "a" * 4_000), "orders")
    assert "line 8 " in refuse(rules, GOOD.replace("amount > 0", "a" * 4_001))


def test_a_long_value_is_searched_once(rules: DefinitionRules) -> None:
    """Two dozen of the longest values take less than five seconds."""
    before = time.process_time()
    rules.check(GOOD + "protect: [" + ",".join([f"'{'a' * 4_000}'"] * 24) + "]\n", "orders")
    assert time.process_time() - before < 5


def test_a_parameter_may_be_a_value(rules: DefinitionRules) -> None:
    """It may be the name of a folder, a number or a column."""
    rules.check(GOOD.replace("landing/*.json", '"landing/${DAY:-today}/*.json"'), "orders")


@pytest.mark.parametrize(
    "value",
    ["", "..", "a/b", "a b", "a'", "a--b", "-a", "a-", "s3:", "a..b", "select", "a-SELECT", "é", "a\n", "x" * 101],
)
def test_a_value_that_could_be_more_is_refused(rules: DefinitionRules, value: str) -> None:
    """It has no path, no quote, no comment and no word of a query."""
    with pytest.raises(Invalid, match=r"^parameters: DAY takes"):
        rules.check_parameters({"DAY": value}, "a: ${DAY:-x}")


def test_only_a_parameter_of_the_definition_is_taken(rules: DefinitionRules) -> None:
    """The owner has to allow it, too."""
    rules.check_parameters({"DAY": "2026-01-31"}, "a: ${DAY:-x}")
    with pytest.raises(Invalid, match=r"no \$\{DAY\}"):
        rules.check_parameters({"DAY": "1"}, "a: $DAY")
    with pytest.raises(Invalid, match="'HOME' is no parameter"):
        rules.check_parameters({"HOME": "1"}, "a: ${HOME:-x}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: items\norigin: {generate: {rows: 1}}\ndestinations: [discard: {}]\n", "expected the name orders"),
        ("name: orders\nname: orders\n", "twice"),
        ("a: &a [x]\nb: &b [" + "*a, " * 500 + "]\nc: &c [" + "*b, " * 500 + "]\n", "more than 100,000 values"),
        ("a: &a [*a]\n", "inside of its own anchor"),
        ("a: !!python/object:os.system x\n", "expected no tags"),
        ("[" * 1_000, "at most 50 nested levels"),
        ("name: [orders]\n", "expected the name orders"),
        ("- name: orders\n", "expected the name orders"),
        ("name: orders\n---\nname: other\n", "one YAML document"),
        ("name: orders\nstages: {python: 'a:b'}\n", "may not have this"),
        ("name: orders\norigin: {'mine:Origin': {}}\n", "may not have this"),
        ("name: orders\norigin: {kafka: {servers: a, topic: b}}\n", "may not have this"),
        ("name: orders\norigin: {files: {path: landing, format: json, after: delete}}\n", "may not have this"),
        ("name: orders\norigin: {files: {path: {file: landing/x}, format: json}}\n", "may not have this"),
        ("name: orders\ndestinations: [python: 'a:b']\n", "may not have this"),
        ("name: orders\ndestinations: [delta: {table: main.a.b}]\n", "may not have this"),
        ("name: orders\ndlq: {delta: {path: tables/x}}\n", "may not have this"),
    ],
)
def test_a_text_that_is_no_sound_definition_is_refused(rules: DefinitionRules, text: str, said: str) -> None:
    """It is refused before anything is made from it."""
    with pytest.raises(DefinitionError) as caught:
        rules.check(text, "orders")
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["", "Orders", "a/b", "..", "a.b", "-a", "a\n", "server", "schedule", "é", "x" * 101])
def test_a_name_that_is_no_plain_word_is_refused(rules: DefinitionRules, name: str) -> None:
    """The name is that of a file and of a folder."""
    with pytest.raises(Invalid, match=r"^pipeline: expected"):
        rules.check(GOOD, name)


def test_without_a_root_every_definition_is_refused(tmp_path: Path) -> None:
    """The answer says how the owner turns it on."""
    with pytest.raises(Refusal, match="takes no definitions") as caught:
        DefinitionRules(folder=tmp_path).check(GOOD, "orders")
    assert "--definition-root" in caught.value.hint


@pytest.mark.parametrize("root", ["s3://key:secret@lake/x", "s3://lake/x?a=b", "s3://", "file:///data"])
def test_a_root_that_is_no_plain_url_is_refused(tmp_path: Path, root: str) -> None:
    """A password would be shown in messages."""
    with pytest.raises(Refusal, match="is no root"):
        DefinitionRules(folder=tmp_path, roots=[root])
