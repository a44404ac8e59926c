"""The native executor of item programs, if installed: without a compiler the package is built without it."""

from __future__ import annotations

try:
    from migrator.mapping.items import _native
except ImportError:
    _native = None  # type: ignore[assignment]

__all__ = ["EXECUTOR", "IS_NATIVE", "PYTHON_ADVICE", "InPlace", "_native"]

IS_NATIVE = _native is not None
InPlace: tuple[type[_native.Result], ...] = (_native.Result,) if IS_NATIVE else ()
"""For isinstance(): rows that the executor reads in libpq's memory."""
EXECUTOR = "native" if IS_NATIVE else "Python"
"""The executor of item programs here."""
PYTHON_ADVICE = "some ten times slower; a wheel, or gcc when it is installed, brings the native executor"
