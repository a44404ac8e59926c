"""The recording in the README is of these commands, and of what they print today."""

from __future__ import annotations

import html
import re
from pathlib import Path

from tools.pages.recording import RECORDING, recorded

TEXT = re.compile(r"<text [^>]*clip-path=[^>]*>(.*?)</text>")


def words_of(svg: str) -> list[str]:
    """What is shown, however it is broken into lines, without figures, which differ from run to run."""
    shown = " ".join(html.unescape(text) for text in TEXT.findall(svg))
    return re.sub(r"\d[\d.,]*", "N", shown).split()


def test_the_recording_is_up_to_date(tmp_path: Path) -> None:
    assert words_of(recorded(tmp_path)) == words_of(RECORDING.read_text(encoding="utf-8"))
