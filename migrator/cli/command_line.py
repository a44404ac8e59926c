"""Declarations of commands (`Leaf`, `Branch`): options of the log, spelling advice, shared options."""

from __future__ import annotations

import gc
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from migrator.cli import names
from migrator.mapping.model.durations import ADVICE, seconds_of

ENGINES: dict[str, Callable[..., Any]] = {}
"""By its option: opens the engine for a run's pages (`migrator.commands.processes.PageEngine`)."""
DEFINITIONS: dict[str, Callable[..., list[str]]] = {}
"""By the word of `--as`: a function that makes the lines of one part of a table's definition."""
PROBES: dict[str, Callable[..., int]] = {}
"""By the probed product: the command of `migrator doctor --probe`."""

_COMMAND = re.compile(r"`migrator ([^`\n]+)`")
_CLAUSE_END = re.compile(r"[.:;](?: |$)")
_SAME = "the same command"
_PRIVATE = frozenset({"keys", "params", "source", "source_url"})
"""Options with values that may name a person or contain a password: messages never repeat them."""
_NOT_REPEATED = frozenset({"dry_run", "as_json"})
"""Options left out of commands in messages, which differ from the current one."""


SOURCE_HELP = (
    "URL of the source, such as postgresql://user@host/shop, mysql://user@host/shop or sqlite:///shop.db."
)
"""Help of the option --source."""


LOG = "migrator.log"
"""Key of the log's options so far, in a context's `meta`."""


def log_from(*, verbose: bool | None = None, log_format: str = "", log_file: Path | None = None) -> None:
    """Set up the log. By default it is text with warnings for people, and JSON with events in a file."""
    from migrator.runtime import logs  # here, so that --version does not wait for it

    is_json = log_format == "json" or (not log_format and log_file is not None)
    usual = "info" if is_json else "warning"
    level = usual if verbose is None else "debug" if verbose else "error"
    logs.configure(json=is_json, level=level, file=log_file)


_SET_APART: list[bool] = []
"""Whether this process has frozen the objects of its imports: counting frozen ones takes as long as a collection."""
GARBAGE_SOUGHT = (20_000, 50)
"""After so many objects, and in older ones every so many times. With Python's own 700 and 10, a check of 400 tables
spends a third of its time on collecting objects that stay."""

Work = Callable[..., int]
"""A command's work: takes its arguments and options by name, and returns the exit code."""


class Leaf(click.Command):
    """A command with the log's options, which refuses a single-valued option passed twice.

    Its callback returns the work, which it imports: so help, completion and wrong use wait neither for SQL
    nor for AWS.
    `example`: one use, after the command's name.
    `for_words`: from the given values, the option that extra words belong to.
    """

    def __init__(
        self,
        *args: Any,
        example: str = "",
        for_words: Callable[[dict[str, Any]], str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        self.for_words = for_words
        self.allow_extra_args = for_words is not None
        self.params += _log_options()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_example(formatter, ctx.command_path, self.example)
        super().format_epilog(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        command_line = ctx.find_object(CommandLine)
        if command_line is not None:
            command_line.context = ctx
        if not ctx.resilient_parsing:
            self._refuse_twice(ctx, args)
        words = super().parse_args(ctx, args)
        if words and self.for_words and not ctx.resilient_parsing:
            option = self.for_words(ctx.params)
            told = " ".join(f"{option} {shlex.quote(word)}" for word in words)
            raise click.UsageError(f"unexpected: {' '.join(words)}; write {told}", ctx)
        return words

    def invoke(self, ctx: click.Context) -> int:
        return ctx.invoke(self.work(), **ctx.params)

    def work(self) -> Work:
        assert self.callback is not None
        # Objects of imports stay; collecting garbage among them would take a tenth of the start.
        gc.disable()
        try:
            work: Work = self.callback()
            # They contain no garbage later either: a collection would traverse them every few pages. Only
            # once: objects left by earlier commands of the process are garbage.
            if not _SET_APART:
                gc.freeze()
                gc.set_threshold(*GARBAGE_SOUGHT)
                _SET_APART.append(True)
        finally:
            gc.enable()
        return work

    def _refuse_twice(self, ctx: click.Context, args: Sequence[str]) -> None:
        _, _, in_order = self.make_parser(ctx).parse_args(args=list(args))
        for param, times in Counter(in_order).items():
            if not isinstance(param, click.Option) or param.multiple:
                continue
            if times > 1 and (param.secondary_opts or not param.is_flag):
                what = f"'{param.opts[0]}' is given {times} times, and it takes one value"
                raise click.UsageError(f"{what}; keep one of them", ctx)


class Branch(click.Group):
    """A group that suggests similar names for an unknown one.

    `sections`: names of its commands under the headings of its help; others come last.
    """

    command_class = Leaf

    def __init__(
        self, *args: Any, sections: Mapping[str, Sequence[str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections or {}
        self.params += _log_options()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        left = [
            name for name in self.list_commands(ctx) if not any(name in one for one in self.sections.values())
        ]
        for heading, listed in [*self.sections.items(), ("Other" if self.sections else "Commands", left)]:
            if listed:
                with formatter.section(heading):
                    formatter.write_dl([(name, _summary(self.get_command(ctx, name))) for name in listed])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        first = next(iter(self.commands.values()))
        if isinstance(first, Leaf):
            write_example(formatter, f"{ctx.command_path} {first.name}", first.example)
        super().format_epilog(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name)):
            from migrator.runtime.errors import did_you_mean  # here, so that nothing waits for it

            near = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"No such command '{name}'{near}", ctx)
        return super().resolve_command(ctx, args)


def write_example(formatter: click.HelpFormatter, path: str, words: str) -> None:
    with formatter.section("Example"):
        formatter.write(f"  {path} {words}".rstrip() + "\n")


def _summary(command: click.Command | None) -> str:
    words = " ".join((command.help or "").split()) if command else ""
    return _CLAUSE_END.split(words)[0]


def _log_options() -> list[click.Parameter]:
    """Log options of each command and group. Before a command's name they apply after it as well."""

    def log_so(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value not in (None, "") and not ctx.resilient_parsing:
            asked = ctx.meta.setdefault(LOG, {})
            asked[str(param.name)] = value
            log_from(**asked)

    def option(*names: str, **settings: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=log_so, **settings)

    return [
        option(
            "-v/-q",
            "--verbose/--quiet",
            default=None,
            help="Log progress (-v), or only errors (-q); default: warnings.",
        ),
        option(
            "--log-format",
            type=click.Choice(["json", "text"]),
            help="Format of log lines (default: text; json with --log-file).",
        ),
        option(
            "--log-file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Append log lines to this file (default: standard error).",
        ),
    ]


@dataclass
class CommandLine:
    words: Sequence[str]
    context: click.Context | None = None

    @property
    def wants_json(self) -> bool:
        as_json = None if self.context is None else self.context.params.get("as_json")
        return "--json" in self.words if as_json is None else bool(as_json)

    def whole(self, text: str) -> str:
        """Add the job file to the text's `migrator …` commands; the same command also gets its options."""
        if self.context is None or "job" not in self.context.params or "`migrator " not in text:
            return text
        is_json = text.startswith("{")

        def completed(command: re.Match[str]) -> str:
            line = self._completed(command[1].split())
            return f"`migrator {json.dumps(line, ensure_ascii=False)[1:-1] if is_json else line}`"

        return _COMMAND.sub(completed, text)

    def again(self, text: str) -> str:
        """The full text of an error, with the command for "the same command"."""
        completed = self.whole(text)
        if self.context is None or "job" not in self.context.params or _SAME not in completed:
            return completed
        same = self._completed(self._names(), but=frozenset())
        return f"{completed}: `migrator {same}`"

    def _names(self) -> list[str]:
        assert self.context is not None
        return self.context.command_path.split()[1:]

    def _completed(self, words: list[str], but: Container[str] = _NOT_REPEATED) -> str:
        assert self.context is not None
        command: click.Command | None = self.context.find_root().command
        rest = list(words)
        while isinstance(command, click.Group) and rest:
            command = command.get_command(self.context, rest.pop(0))
        if command is None or isinstance(command, click.Group):
            return " ".join(words)
        names, own = words[: len(words) - len(rest)], list(_positional(command, rest))
        if own[:1] == ["JOB"]:
            rest[rest.index("JOB")] = shlex.quote(str(self.context.params["job"]))
        elif not own:
            rest = [*self._arguments(command), *rest]
        if names == self._names() and len(own) < 2:
            rest += self._options(rest, but)
        return " ".join([*names, *rest])

    def _arguments(self, command: click.Command) -> Iterator[str]:
        assert self.context is not None
        for param in command.params:
            value = self.context.params.get(str(param.name))
            if isinstance(param, click.Argument) and (param.required or value is not None):
                yield str(param.name).upper() if value is None else shlex.quote(str(value))

    def _options(self, besides: Sequence[str], but: Container[str]) -> Iterator[str]:
        assert self.context is not None
        for param in self.context.command.params:
            name = str(param.name)
            value = self.context.params.get(name)
            is_given = self.context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            if not isinstance(param, click.Option) or not is_given or name in but:
                continue
            if {*param.opts, *param.secondary_opts} & set(besides) or value is None:
                continue
            for item in value if param.multiple else [value]:
                yield (param.opts if item or not param.secondary_opts else param.secondary_opts)[-1]
                if not param.is_flag:
                    yield "…" if name in _PRIVATE else shlex.quote(str(item))


def _with_value(command: click.Command) -> set[str]:
    taking = (param for param in command.params if isinstance(param, click.Option) and not param.is_flag)
    return {name for param in taking for name in param.opts}


def _positional(command: click.Command, words: Sequence[str]) -> Iterator[str]:
    with_value = _with_value(command)
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            yield word
        is_value = not is_value and word in with_value


def whole(text: str) -> str:
    context = click.get_current_context(silent=True)
    command_line = None if context is None else context.find_object(CommandLine)
    return text if command_line is None else command_line.whole(text)


def print_json(data: Any) -> None:
    click.echo(json.dumps(data, ensure_ascii=False, sort_keys=True))


# ── Options and arguments that several commands have ──


def flag(name: str, help_text: str, dest: str | None = None) -> Callable[[Any], Any]:
    """An option without a value. `dest`: the value's name, if not the option's."""
    return click.option(name, *([dest] if dest else []), is_flag=True, help=help_text)


def option(spec: str, help_text: str, dest: str | None = None, **settings: Any) -> Callable[[Any], Any]:
    """An option with a value. `spec`: its name, and the value's in help: `--region NAME`. `dest`: as flag()."""
    name, _, metavar = spec.partition(" ")
    names = (name, dest) if dest else (name,)
    return click.option(*names, metavar=metavar or None, help=help_text, **settings)


JobPath = click.Path(path_type=Path, dir_okay=True)
job_argument = click.argument("job", type=JobPath, metavar="JOB", shell_complete=names.jobs)
json_option = flag("--json", "Print the result as JSON.", "as_json")
keys_option = flag("--show-keys", "Print keys whole, also the parts that may name a person.", "whole_keys")
force_option = flag(
    "--force",
    "Run even if every pattern is complete, or if the answers of a pattern that DynamoDB serves would change.",
)
entity_option = option(
    "--entity", "Only this entity; may be repeated.", "entities", multiple=True, shell_complete=names.entities
)
metrics_option = option(
    "--metrics-port",
    "Serve /metrics (Prometheus), /healthz, /readyz and /phases on this port of tuning.metrics_host.",
    type=click.IntRange(1, 65535),
)
part_option = click.option("--part", hidden=True)
spark_option = option(
    "--spark MASTER",
    "Process pages on Spark's executors: local[4], spark://host:7077, or submit under spark-submit; needs the extra"
    " spark, Java 17 and a journal on a server.",
)


def seconds(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Seconds of a duration such as 90s, 5m, 2h, 1d, or of a number."""
    if text is None:
        return None
    try:
        return seconds_of(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' is not a duration; {error}") from None


def duration(name: str, help_text: str, dest: str, **settings: Any) -> Callable[[Any], Any]:
    return option(f"{name} DURATION", help_text, dest, callback=seconds, **settings)


def some_seconds(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    duration_s = seconds(ctx, param, text)
    if duration_s == 0:
        raise click.BadParameter(f"'{text}' is not a positive duration; {ADVICE}")
    return duration_s


class _Money(click.ParamType):  # type: ignore[type-arg]  # generic only in the newest click
    name = "USD"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            amount = Decimal(str(value))
        except InvalidOperation:
            amount = Decimal("NaN")
        if not (amount.is_finite() and amount >= 0):
            self.fail("write an amount in US dollars, such as 12.50", param, ctx)
        return amount


MONEY = _Money()


rows_settle_option = duration(
    "--settle",
    "How much later all shards must be read, twice, before a row without items is deleted; and how long after it was found"
    " a difference of rows and items is checked again.",
    "settle_s",
    default="15s",
    show_default=True,
)
