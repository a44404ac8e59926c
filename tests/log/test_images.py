"""Values in the log are written as triggers write them: of every type, and of every byte of a character set of MySQL's."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

import pytest
import sqlalchemy as sa

from migrator.mapping.model.live import MarkedBy
from migrator.source.engines.connect import source_url
from migrator.source.engines.postgresql import capture
from tests.log.shops import BinlogShop, LogShop, SlotShop
from tests.support_capture import captured, capturing

pytestmark = pytest.mark.slow

Images: TypeAlias = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]


def images_of(shop: LogShop, columns: list[str], marked_by: MarkedBy, *statements: str) -> list[Images]:
    with capturing(shop.engine, shop.url) as opened, shop.open_marks() as (capture, marks):
        table, job = captured(opened.table("odd"), ["id", *columns]), shop.project.job.stem
        assert capture.refusals([table], marked_by) == []
        for step in capture.install_steps([table], job, marked_by):
            capture.do(step)
        shop.sql(*statements)
        marks.drain()
        shown: list[Images] = [(mark.before, mark.after) for mark in marks.look(0, 1000)]
        for step in capture.uninstall_steps():
            capture.do(step)
        return shown


def differing(shop: LogShop, columns: list[str], *statements: str) -> tuple[int, list[str]]:
    """How many marks triggers left, and the columns that differ in those of the log; their names, as some are very long."""
    expected = images_of(shop, columns, "triggers", *statements)
    shop.sql("DELETE FROM odd")
    found = images_of(shop, columns, "log", *statements)
    assert len(expected) == len(found)
    return len(expected), [
        f"{place}.{name}: {str((left or {}).get(name))[:40]} {str((right or {}).get(name))[:40]}"
        for place, (pair, other) in enumerate(zip(expected, found, strict=True))
        for left, right in zip(pair, other, strict=True)
        for name in sorted((left or {}).keys() | (right or {}).keys())
        if repr((left or {}).get(name)) != repr((right or {}).get(name))
    ]


# ── PostgreSQL ──

OF_POSTGRESQL = {
    "a": ("bigint", "9007199254740993"),
    "b": ("numeric", "0.10"),
    "c": ("text", "'ä \" \\ 漢'"),
    "d": ("char(5)", "'x'"),
    "e": ("uuid", "'00000000-0000-0000-0000-00000000000a'"),
    "f": ("date", "'2024-02-29'"),
    "g": ("timetz", "'10:11:12.5+02'"),
    "h": ("timestamp", "'2024-02-29 01:02:03.000004'"),
    "i": ("timestamptz", "'2024-02-29 01:02:03+05'"),
    "j": ("bytea", "'\\x00ff'"),
    "k": ("boolean", "true"),
    "l": ("double precision", "0.1"),
    "m": ("real", "'-Infinity'"),
    "n": ("interval", "'1 month 2 days 03:00'"),
    "o": ("inet", "'10.0.0.1/8'"),
    "p": ("mood", "'so la la'"),
    "q": ("short", "'yes'"),
    "r": ("bit(3)", "'101'"),
    "s": ("varchar", "NULL"),
    "t": ("money", "-1234567.50"),
    "u": ("price", "0.05"),
}


@pytest.mark.engines("postgresql")
def test_images_are_those_that_triggers_write(shop: SlotShop) -> None:
    """Of every type, whatever the settings of the service's session are."""
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in OF_POSTGRESQL.items())
    shop.sql(
        "CREATE TYPE mood AS ENUM ('so la la')",
        "CREATE DOMAIN short AS varchar(3)",
        "CREATE DOMAIN price AS money",
        f"CREATE TABLE odd (id integer PRIMARY KEY, {declared})",
        "ALTER TABLE odd REPLICA IDENTITY FULL",
    )
    settings = (
        *("SET DateStyle = 'German'", "SET TimeZone = 'Asia/Tokyo'", "SET IntervalStyle = 'sql_standard'"),
        *("SET bytea_output = 'escape'", "SET extra_float_digits = 0"),
        "SET lc_monetary = 'C.UTF-8'",
    )
    insert = f"INSERT INTO odd VALUES (1, {', '.join(value for _, value in OF_POSTGRESQL.values())})"
    changes = (insert, "UPDATE odd SET id = 2", "DELETE FROM odd")
    assert differing(shop, list(OF_POSTGRESQL), *settings, *changes) == (3, [])


# ── MySQL ──

SESSION = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+09:00'"
TYPES: dict[str, tuple[str, list[str]]] = {
    "tiny": ("tinyint", ["-128", "127", "NULL"]),
    "tiny_u": ("tinyint unsigned", ["255", "0", "128"]),
    "small": ("smallint", ["-32768", "32767", "0"]),
    "small_u": ("smallint unsigned", ["65535", "32768", "1"]),
    "medium": ("mediumint", ["-8388608", "8388607", "-1"]),
    "medium_u": ("mediumint unsigned", ["16777215", "8388608", "0"]),
    "whole": ("int", ["-2147483648", "2147483647", "7"]),
    "whole_u": ("int unsigned", ["4294967295", "2147483648", "0"]),
    "big": ("bigint", ["-9223372036854775808", "9223372036854775807", "9007199254740993"]),
    "big_u": ("bigint unsigned", ["18446744073709551615", "9223372036854775808", "0"]),
    "a_year": ("year", ["1901", "2155", "0"]),
    "yes": ("boolean", ["TRUE", "FALSE", "NULL"]),
    "bit1": ("bit(1)", ["b'1'", "b'0'", "NULL"]),
    "bit13": ("bit(13)", ["b'1000000000001'", "b'0'", "b'11'"]),
    "bit64": ("bit(64)", ["0xFFFFFFFFFFFFFFFF", "0x8000000000000000", "1"]),
    "dec5": ("decimal(5,2)", ["-999.99", "0.10", "-0.01"]),
    "dec10": ("decimal(10,0)", ["-9999999999", "9999999999", "0"]),
    "dec20": ("decimal(20,10)", ["-1234567890.0123456789", "0.0000000001", "-0.5"]),
    "dec65": ("decimal(65,30)", [f"{'9' * 35}.{'8' * 30}", f"-{'1' * 35}.{'2' * 30}", "0"]),
    "dec9": ("decimal(9,9)", ["0.123456789", "-0.999999999", "0"]),
    "dec_u": ("decimal(18,9) unsigned", ["123456789.987654321", "0", "1"]),
    "f": ("float", ["1.1", "-3.40282e38", "1e-30"]),
    "d": ("double", ["0.1", "-1.7976931348623157e308", "5e-324"]),
    "d2": ("double", ["-0e0", "1e22", "123456789012345680"]),
    "day": ("date", ["'9999-12-31'", "'0000-00-00'", "'2024-02-30'"]),
    "day2": ("date", ["'2024-00-00'", "'1000-01-01'", "'2024-12-00'"]),
    "t0": ("time", ["'-838:59:59'", "'838:59:59'", "'00:00:00'"]),
    "t1": ("time(1)", ["'-00:00:00.1'", "'23:59:59.9'", "'-12:34:56.7'"]),
    "t3": ("time(3)", ["'-00:00:00.001'", "'01:02:03.004'", "'-838:59:58.999'"]),
    "t6": ("time(6)", ["'-00:00:01.000001'", "'838:59:58.999999'", "'-00:00:00.5'"]),
    "dt0": ("datetime", ["'9999-12-31 23:59:59'", "'0000-00-00 00:00:00'", "'1000-01-01 00:00:00'"]),
    "dt2": ("datetime(2)", ["'2024-02-29 12:34:56.07'", "'2024-00-00 00:00:00'", "'2024-01-01 00:00:00.99'"]),
    "dt5": ("datetime(5)", ["'2024-02-29 12:34:56.00001'", "NULL", "'2024-01-01 00:00:00.12345'"]),
    "dt6": ("datetime(6)", ["'2024-02-29 12:34:56.000001'", "'1970-01-01 00:00:00'", "'2024-01-01 01:01:01.1'"]),
    "ts0": ("timestamp NULL", ["'2024-02-29 12:34:56'", "'0000-00-00 00:00:00'", "'2038-01-19 12:14:07'"]),
    "ts3": ("timestamp(3) NULL", ["'2024-02-29 12:34:56.789'", "'0000-00-00 00:00:00'", "NULL"]),
    "ts6": ("timestamp(6) NULL", ["'1970-01-01 09:00:01.000001'", "'2024-01-01 00:00:00'", "NULL"]),
    "ch": ("char(5)", ["'x  '", "''", "'漢'"]),
    "ch_long": ("char(255)", ["'🐟'", "repeat('ä', 255)", "''"]),
    "vc": ("varchar(20)", ["'ä \" \\\\ 漢 '", "''", "'a''b'"]),
    "vc_long": ("varchar(1000)", ["repeat('漢', 300)", "''", "'x'"]),
    "tx": ("tinytext", ["'ä'", "''", "'NULL'"]),
    "txt": ("text", ["repeat('ä', 300)", "''", "'\\n'"]),
    "ltxt": ("longtext", ["repeat('🐟', 9000)", "''", "'x'"]),
    "lat": ("varchar(20) character set latin1", ["'é€\\\\'", "'plain'", "''"]),
    "lat_t": ("text character set latin1", ["'Å'", "'x'", "NULL"]),
    "cyr": ("char(9) character set cp1251", ["'Жук'", "'x'", "''"]),
    "jis": ("varchar(9) character set sjis", ["'漢字'", "'\\\\~'", "'ｱ'"]),
    "gb": ("varchar(9) character set gb18030", ["'漢🐟'", "'x'", "''"]),
    "u3": ("varchar(9) character set utf8mb3", ["'漢'", "'x'", "''"]),
    "u2": ("varchar(9) character set ucs2", ["'漢'", "'x'", "''"]),
    "u16": ("varchar(9) character set utf16", ["'漢🐟'", "'x'", "''"]),
    "u16l": ("varchar(9) character set utf16le", ["'漢🐟'", "'x'", "''"]),
    "u32": ("varchar(9) character set utf32", ["'漢🐟'", "'x'", "''"]),
    "swe": ("varchar(9) character set swe7", ["'åäö'", "'x'", "''"]),
    "bin4": ("binary(4)", ["0x00", "0x01020000", "0xFFFFFFFF"]),
    "vbin": ("varbinary(300)", ["0x00FF00", "''", "repeat(0xFF, 299)"]),
    "tblob": ("tinyblob", ["0x00", "''", "0x80"]),
    "lblob": ("longblob", ["repeat(0xFE, 70000)", "''", "0x00"]),
    "en": ("enum('a', 'ä', 'it''s', '')", ["'ä'", "''", "'it''s'"]),
    "en_l": ("enum('é', 'x') character set latin1", ["'é'", "'x'", "NULL"]),
    "en_b": (f"enum({', '.join(repr(f'w{n}') for n in range(300))})", ["'w299'", "'w0'", "'w255'"]),
    "st": ("set('a', 'b', 'ä')", ["'a,ä'", "''", "'b'"]),
    "st_l": ("set('é', 'y') character set latin1", ["'é,y'", "''", "'y'"]),
    "st_big": (f"set({', '.join(repr(f's{n}') for n in range(64))})", ["'s0,s63'", "''", "'s32'"]),
}  # fmt: skip
MORE = """
    doc json, place point, gen_v varchar(30) AS (concat(whole, '!')) VIRTUAL, gen_s int AS (whole - 1) STORED,
    KEY functional ((whole + 1)), KEY many ((CAST(doc->'$.z' AS UNSIGNED ARRAY)))
"""


@pytest.mark.engines("mysql")
def test_images_are_those_that_triggers_write_on_mysql(shop: BinlogShop) -> None:
    """Of every type, whatever the settings of the service's session are."""
    declared = ", ".join(f"{name} {type_}" for name, (type_, _) in TYPES.items())
    shop.sql(SESSION, f"CREATE TABLE odd (id int PRIMARY KEY, {declared}, {MORE})")
    inserts = []
    for n in range(3):
        values = ", ".join(f"{name} = {of[n]}" for name, (_, of) in TYPES.items())
        inserts.append(
            f"INSERT INTO odd SET id = {n}, {values}, doc = '{{\"z\": [1, 2]}}', place = POINT(1, 2)"
        )
    changes = ["UPDATE odd SET id = id + 10", "DELETE FROM odd"]
    columns = [*TYPES, "gen_v", "gen_s"]
    assert differing(shop, columns, SESSION, *inserts, *changes) == (9, [])


BYTES = (
    *(
        "latin1",
        "latin2",
        "latin5",
        "latin7",
        "cp850",
        "cp852",
        "cp866",
        "cp1250",
        "cp1251",
        "cp1256",
        "cp1257",
    ),
    *("koi8r", "koi8u", "greek", "hebrew", "tis620", "macroman", "macce", "keybcs2", "armscii8", "geostd8"),
    *("hp8", "dec8", "ascii"),
)


@pytest.mark.engines("mysql")
@pytest.mark.parametrize("charset", BYTES)
def test_each_byte_of_a_character_set(shop: BinlogShop, charset: str) -> None:
    shop.sql(f"CREATE TABLE odd (id int PRIMARY KEY, text varchar(9) CHARACTER SET {charset})")
    last = 127 if charset == "ascii" else 255
    inserts = [
        f"INSERT IGNORE INTO odd VALUES ({n}, CONVERT(X'{n:02X}' USING {charset}))"
        for n in range(32, last + 1)
    ]
    assert differing(shop, ["text"], SESSION, *inserts) == (last - 31, [])


@pytest.mark.parametrize(
    ("decimals", "text", "value"),
    [
        (2, "-$1,234.50", Decimal("-1234.50")),
        (0, "$12.34", Decimal(1234)),
        (3, "$1.50", Decimal("0.150")),
        (2, "1.234,50 €", "1.234,50 €"),
    ],
)
def test_money_has_the_decimals_of_the_databases_locale(
    postgres_database: str, decimals: int, text: str, value: Any
) -> None:
    """The log has it as the locale C writes it, with two."""
    engine = sa.create_engine(source_url(postgres_database))
    with engine.connect() as connection:
        assert capture.CAPTURING.decode(connection, {})("790", "$0.05") == Decimal("0.05")
        assert capture.CAPTURING.decode(connection, {capture._MONEY: decimals})("790", text) == value
    engine.dispose()
