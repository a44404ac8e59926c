"""What a statement of a service writes, read from its text alone."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from migrator.source.adapter.placeholders import Numbered, Spoken, numbered
from migrator.source.adapter.quiet import quietly
from migrator.source.adapter.tree import TreeReader
from migrator.source.adapter.write import Opaque, Written, words_of
from migrator.source.engines.table import engine_of

_COMMENT = re.compile(r"/\*|\*/|--[^\n]*|#[^\n]*")
_WRITES = frozenset(
    "INSERT UPDATE DELETE REPLACE MERGE TRUNCATE WITH COPY LOAD CALL DO EXECUTE EXEC".split()  # noqa: SIM905
)
RUNS_CODE = frozenset({"CALL", "DO", "EXECUTE", "EXEC"})
"""What runs code that the database keeps."""
_AROUND = frozenset({"EXPLAIN", "ANALYZE", "DESCRIBE", "DESC", "SET", "BEGIN"})
"""What another statement may follow that runs: EXPLAIN ANALYZE, MariaDB's SET STATEMENT … FOR."""
_VERBS = frozenset({"insert", "update", "delete", "replace", "merge", "truncate"})
_SERVER_COMMENT = re.compile(r"/\*M?!")
"""MySQL runs what stands in such a comment."""


def first_word(text: str, dialect: str) -> str:
    return _word_at(text, _head(text, dialect))


def _word_at(text: str, start: int) -> str:
    found = re.compile(r"[A-Za-z]+").match(text, start)
    return found[0].upper() if found else ""


def _head(text: str, dialect: str) -> int:
    """Where the first word begins, behind white space, parentheses and comments (which may be nested)."""
    at, depth = 0, 0
    deepest = len(text) if engine_of(dialect).statements.nests_comments else 1
    while at < len(text):
        found = _COMMENT.match(text, at)
        if found and (depth == 0 or found[0] in ("/*", "*/")):
            depth = min(deepest, max(0, depth + (found[0] == "/*") - (found[0] == "*/")))
            at = found.end()
        elif depth or text[at].isspace() or text[at] in "(;\ufeff":
            at += 1
        else:
            break
    return at


def may_write(text: str, dialect: str) -> bool:
    """Whether the text is worth to be examined: a SELECT by itself is not."""
    word = first_word(text, dialect)
    if word in _WRITES or ";" in text.rstrip().rstrip(";") or _SERVER_COMMENT.search(text):
        return True
    return word in _AROUND and not _VERBS.isdisjoint(words_of(text))


def written(text: str, spoken: Spoken) -> Written:
    """What the statement writes; None where it writes nothing that a table's mark would be of."""
    try:
        return _written(text, spoken)
    except RecursionError:
        # Not remembered: how deep a statement may be depends on how deep its caller stands.
        return Opaque("it is too deeply nested to be understood", words_of(text))


@lru_cache(maxsize=2048)
@quietly()
def _written(text: str, spoken: Spoken) -> Written:
    start = _head(text, spoken.dialect)
    word = _word_at(text, start)
    if word in RUNS_CODE:
        return Opaque(f"{word} runs code of the database, which may write anything")
    known, ignores = _plain(numbered(text[start:], spoken), spoken)
    if word in _AROUND or (spoken.engine.statements.runs_comments and _SERVER_COMMENT.search(text)):
        return _hidden(word, words_of(text))
    try:
        found = sqlglot.parse(known.text, read=spoken.read_as)
    except SqlglotError:
        return Opaque("it could not be understood", words_of(known.text))
    trees = [tree for tree in found if tree is not None and not isinstance(tree, exp.Semicolon)]
    if len(trees) != 1:
        writes = any(_writes_inside(tree) for tree in trees)
        return Opaque("it is several statements in one", words_of(known.text)) if writes else None
    return _of_tree(TreeReader(trees[0], known, spoken), word, ignores=ignores)


def _plain(known: Numbered, spoken: Spoken) -> tuple[Numbered, bool]:
    """The statement without the words that sqlglot does not read in it, and whether IGNORE was one of them."""
    text, ignores = known.text, False
    rules = spoken.engine.statements
    if rules.modifiers is not None and (found := rules.modifiers.match(text)):
        ignores = "IGNORE" in found[2].upper()
        text = found[1] + text[found.end() :]
    if text[:7].upper() == "REPLACE":
        text = "INSERT" + text[7:]
    if rules.overriding is not None:
        text = rules.overriding.sub("", text, count=1)
    return replace(known, text=text), ignores


def _hidden(word: str, words: frozenset[str]) -> Written:
    """Of a statement that stands in another one, or in a comment that the server runs."""
    harmless = word in ("EXPLAIN", "DESCRIBE", "DESC") and "analyze" not in words
    if harmless or words.isdisjoint(_VERBS) or (word == "SET" and "statement" not in words):
        return None
    return Opaque("it is a statement in another one", words)


def _writes_inside(tree: Any) -> bool:
    kinds = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.TruncateTable, exp.Command, exp.Copy)
    return tree.find(*kinds) is not None


def _of_tree(reader: TreeReader, word: str, *, ignores: bool) -> Written:
    tree, words = reader.tree, words_of(reader.known.text)
    if any(_writes_inside(one.this) for one in tree.find_all(exp.CTE)):
        return Opaque("a WITH of it writes", words)
    if isinstance(tree, exp.Insert):
        return reader.insert(replaces=word == "REPLACE", ignores=ignores)
    if isinstance(tree, exp.Update):
        return reader.update()
    if isinstance(tree, exp.Delete):
        return reader.delete()
    if isinstance(tree, exp.Copy) and not tree.args.get("kind"):
        return None  # COPY … TO
    if _writes_inside(tree):
        return Opaque(f"its rows cannot be known before it ran ({word})", words)
    return None
