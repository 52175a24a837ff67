"""Handlers: which function runs which type, what it takes, and how it is called."""

from __future__ import annotations

import asyncio
import inspect
import threading
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .context import Context
from .encoding import convert

Function = Callable[..., Any]
"""An async function, or a plain one, which then runs in a thread of its own."""

_CONTEXT_NAMES = ("ctx", "context")


@dataclass(frozen=True)
class Handler:
    """A function that runs jobs."""

    function: Function
    payload_name: str | None
    """The parameter that takes the payload, if it has one."""
    payload_type: Any
    """What the payload is converted to."""
    context_name: str | None
    """The parameter that takes the `Context`, if it has one."""

    @staticmethod
    def of(function: Function) -> Handler:
        """Looks at a function's parameters: one for the payload, one annotated `Context` or named `ctx`, or fewer.

        Raises:
            TypeError: if it has others that must be given.
        """
        hints = _hints(function)
        payload_name = context_name = None
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if hints.get(name) is Context or (name in _CONTEXT_NAMES and name not in hints):
                context_name = name
            elif payload_name is None:
                payload_name = name
            elif parameter.default is parameter.empty:
                raise TypeError(f"{function!r}: a handler takes a payload and a Context, not {name!r}")
        return Handler(function, payload_name, hints.get(payload_name or "", Any), context_name)

    @property
    def is_async(self) -> bool:
        """Whether it runs in the event loop."""
        call = getattr(self.function, "__call__", None)  # noqa: B004 - of objects that can be called
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call)

    def call(self, context: Context) -> Awaitable[Any]:
        """Starts the function.

        Raises:
            PayloadError: if the payload does not fit.
        """
        arguments: dict[str, Any] = {}
        if self.payload_name is not None:
            arguments[self.payload_name] = convert(context.payload, self.payload_type)
        if self.context_name is not None:
            arguments[self.context_name] = context
        if self.is_async:
            return typing.cast(Awaitable[Any], self.function(**arguments))
        return _to_its_end(in_thread(lambda: self.function(**arguments), f"tidewheel-{context.id}"))


def _hints(function: Function) -> dict[str, Any]:
    inner: Any = getattr(function, "func", function)  # of a functools.partial
    if not inspect.isroutine(inner):
        inner = inner.__call__
    try:
        return typing.get_type_hints(inner, include_extras=True)
    except NameError as error:
        raise TypeError(f"{function!r}: {error}; annotations name types of the module, not of a function") from error


async def _to_its_end(function: asyncio.Future[Any]) -> Any:
    """What a plain function came to. Of one around an async one, such as a decorator makes, that is still to be run."""
    result = await function
    return await result if inspect.iscoroutine(result) else result


def in_thread(function: Callable[[], Any], name: str) -> asyncio.Future[Any]:
    """Runs a function in a thread of its own.

    The thread is a daemon: one that never ends must not keep a drained worker's process alive, which a pool's would.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def tell(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = function()
        except StopIteration as stop:  # a future cannot carry it
            error = RuntimeError(f"the handler raised {stop!r}")
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(tell, result, error)
        except RuntimeError:
            pass  # the loop is closed: the worker is gone, and the lease will tell

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
