"""Templates of CloudFormation as they stand in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """What `!Ref` and its like stand for is a text."""


def _text_of_tag(loader: yaml.Loader, suffix: str, node: yaml.Node) -> str:
    return str(node.value)


_Loader.add_multi_constructor("!", _text_of_tag)


def template_of(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    return read
