"""Schedules of the protocol, chosen by seeds.

Up to Python 3.11 `isinstance` asks a protocol for its members each time, a twelfth of a schedule; later Pythons keep them.
"""

import functools
import sys
import typing

if sys.version_info < (3, 12):
    for _name in ("_get_protocol_attrs", "_is_callable_members_only"):
        setattr(typing, _name, functools.cache(getattr(typing, _name)))
