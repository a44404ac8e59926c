"""Patterns answered by a service's own functions, and threads for blocking ones in an event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, update_wrapper
from typing import Any, TypeVar

from migrator.mapping.model.evidence import Side
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.patterns.answers import records_of
from migrator.mapping.patterns.params import checked_params
from migrator.runtime.errors import SettingsError, did_you_mean
from migrator.settings.job import ShadowSettings
from migrator.stages.patterns.question import Question
from migrator.stages.reads.backends import OwnCall, missing_function
from migrator.stages.reads.reads import PatternCall, Reads

# ── An access pattern that a service answers by two functions of its own, one for each side ──

Function = Callable[..., Any]
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class RoutedPattern:
    """Replaces a service's function: the current phase's side answers a call.

    Shadows call both functions again in other threads, so they must change nothing.
    `reads`: returns the router at the first call, so that a module can be imported before anything is open.
    """

    def __init__(
        self, function: Function, question: Question, reads: Callable[[], Reads], shadow: ShadowSettings
    ) -> None:
        self._question = question
        self._reads = reads
        self._shadow = shadow
        self._signature = _signature(function, question.pattern)
        self._asynchronous = inspect.iscoroutinefunction(function)
        self._functions: dict[Side, Function] = {"sql": function}
        update_wrapper(self, function)
        if self._asynchronous and hasattr(inspect, "markcoroutinefunction"):  # from Python 3.12 on
            # So that frameworks see that it has to be awaited.
            inspect.markcoroutinefunction(self)

    def table(self, function: Function) -> RoutedPattern:
        """Set the function that answers from DynamoDB, and return self. Raises: SettingsError if its
        parameters differ."""
        pattern = self._question.pattern
        if "table" in self._functions:
            raise SettingsError(f"{pattern.name}: there is a function for the table already; take one away")
        if inspect.iscoroutinefunction(function) is not self._asynchronous:
            raise SettingsError(
                f"{pattern.name}: one function is async and the other is not; make both the same"
            )
        _signature(function, pattern)
        self._functions["table"] = function
        return self

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the side's function; returns a coroutine if the functions are async.

        Raises: SettingsError for parameters that are unknown, missing or mistyped; the function's errors.
        """
        if self._asynchronous:
            return self._awaited(args, named)
        reads, call, side, ask = self._routed(args, named)
        return reads.answer(call, side, ask)

    async def _awaited(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Routed once awaited: only then is there a loop, and the pattern may have moved by then."""
        reads, call, side, ask = self._routed(args, named)
        return await reads.answer_async(call, side, ask)

    def _routed(
        self, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[Reads, PatternCall, Side, Function]:
        arguments = self._bound(args, named)
        reads = self._reads()
        call = self._call(arguments)
        side = reads.side_of(call)
        return reads, call, side, partial(self._function(side), **arguments)

    def _function(self, side: Side) -> Function:
        function = self._functions.get(side)
        if function is None:
            raise SettingsError(missing_function(self._question.pattern.name, side))
        return function

    def _bound(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        pattern = self._question.pattern
        for name in named:
            names = {param.name for param in pattern.params}
            if name not in names:
                raise SettingsError(f"{pattern.name} has no parameter '{name}'{did_you_mean(name, names)}")
        try:
            return dict(self._signature.bind(*args, **named).arguments)
        except TypeError as error:
            raise SettingsError(f"{pattern.name}: {error}") from None

    def _call(self, arguments: Mapping[str, Any]) -> PatternCall:
        pattern = self._question.pattern
        values = checked_params(pattern, arguments)
        loop = asyncio.get_running_loop() if self._asynchronous else None
        # A list is the caller's, and may be another one when the shadow runs.
        kept = {name: list(value) if isinstance(value, list) else value for name, value in arguments.items()}

        own = OwnCall(self._question, self._functions, kept, loop, self._shadow.deadline_s)
        return PatternCall(
            pattern, values, own.shadowed, lambda answer: records_of(pattern, answer, self._shadow.max_rows)
        )


def _signature(function: Function, pattern: Pattern) -> inspect.Signature:
    params = {param.name: param for param in pattern.params}
    what = f"{pattern.name}: the function {getattr(function, '__name__', 'given')}"
    if not callable(function):
        raise SettingsError(f"{pattern.name}: give a function; this {type(function).__name__} is none")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise SettingsError(
            f"{what} has no visible parameters; write one with the pattern's parameters: {_listed(params)}"
        ) from None
    takes = [parameter.name for parameter in signature.parameters.values() if parameter.kind in _NAMED]
    for parameter in signature.parameters.values():
        if parameter.kind not in _NAMED:
            raise SettingsError(
                f"{what} {_unnamed(parameter)}; name the pattern's parameters: {_listed(params)}"
            )
    unknown = [name for name in takes if name not in params]
    if unknown:
        why = "a shadow calls it again in another thread, so it opens what it needs itself"
        raise SettingsError(
            f"{what} takes '{unknown[0]}', which is not a parameter of the pattern"
            f"{did_you_mean(unknown[0], params)}; {why}"
        )
    missing = [name for name in params if name not in takes]
    if missing:
        raise SettingsError(f"{what} does not take '{missing[0]}', a parameter of the pattern; add it")
    return signature


def _unnamed(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        return f"takes '{parameter.name}' by its place alone (before the /)"
    return "takes *args or **kwargs"


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "none"


# ── Threads that an event loop hands its waiting to ──

Result = TypeVar("Result")


class Threads:
    """Our own threads: the loop's belong to the service, which would miss one that waits for a database."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._process = 0
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], Result]) -> Result:
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads(), context.run, work)

    def close(self) -> None:
        if self._executor is not None and self._process == os.getpid():
            self._executor.shutdown(wait=False)

    def _threads(self) -> ThreadPoolExecutor:
        # The threads of a parent are not there after a fork.
        if self._executor is None or self._process != os.getpid():
            self._executor = ThreadPoolExecutor(self.at_once, thread_name_prefix="read")
            self._process = os.getpid()
        return self._executor
