"""The native executor of item programs (_native.pyx), which is there where a compiler was."""

from collections.abc import Callable, Sequence
from typing import Any

class Program:
    def __new__(
        cls,
        columns: tuple[Any, ...],
        key: tuple[bytes, int, tuple[int, ...], Callable[[Any], str]],
        items: tuple[Any, ...],
        row_type: type[tuple[Any, ...]],
        leaving: tuple[type[BaseException], ...],
        most_bytes: int,
        /,
    ) -> Program: ...
    def encode(
        self,
        rows: Sequence[Any],
        ticket: int,
        end: bytes,
        end_bytes: int,
        items: list[Any],
        left: Callable[[Any], None],
        /,
    ) -> None: ...
    def puts(
        self,
        rows: Sequence[Any],
        now: float,
        end: bytes,
        end_bytes: int,
        puts: PutBuffer,
        expired: PutBuffer,
        left: Callable[[Any], None],
        /,
    ) -> None: ...

class Digester:
    def __new__(cls, key: bytes, ticket: bytes, revision: bytes, /) -> Digester: ...
    def item(self, json: bytes, /) -> int: ...
    def puts(self, puts: PutBuffer, first: int, last: int, /) -> bytes: ...
    def page(
        self,
        text: bytes,
        type_name: bytes,
        source_name: bytes,
        tallies: dict[bytes, Tally],
        left: list[bytes],
        /,
    ) -> tuple[int, bytes]: ...

class Tally:
    items: int
    sums: dict[tuple[bytes, int], int]
    others: list[tuple[bytes, bytes]]

    def __new__(cls, source: bytes, names: tuple[bytes, ...], /) -> Tally: ...

def names_and_values(json: bytes, /) -> tuple[bytes, bytes]: ...
def objects(text: bytes, /) -> list[bytes]: ...

class PacketError(ValueError): ...

def take_rows(
    data: bytes,
    position: int,
    number: int,
    encodings: tuple[str | None, ...],
    converts: tuple[Callable[[Any], Any] | None, ...],
    rows: list[tuple[Any, ...]],
    /,
) -> tuple[int, int]: ...

class PutBuffer:
    sizes: list[int]
    is_distinct: bool

    def __len__(self) -> int: ...
    def add(self, key: tuple[Any, ...], json: bytes, size: int, /) -> None: ...
    def batch(self, first: int, last: int, /) -> bytes: ...
    def inserts(self, first: int, last: int, head_of: Callable[[bytes], bytes | None], /) -> bytes | None: ...

class Result(Sequence[tuple[Any, ...]]):
    def __new__(
        cls,
        answer: Any,
        functions: tuple[int, int, int],
        loads: tuple[Callable[[bytes], Any] | None, ...],
        rows: Callable[[int, int], list[tuple[Any, ...]]],
        /,
    ) -> Result: ...
    def values(self, places: tuple[int, ...], /) -> list[Any]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, number: Any, /) -> Any: ...
