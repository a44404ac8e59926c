# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The native executor of item programs (program.py): rows as drivers give them, or as libpq keeps them, in; items as JSON
with their bytes out.

One operation a function. A value that an operation does not take leaves its row to items_for(), which makes it or says why
not: nothing here refuses anything. Text grows through Text.reserve() alone. A Program never changes, so threads may share it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.datetime cimport (
    PyDate_CheckExact, PyDateTime_CheckExact, PyDateTime_DATE_GET_HOUR, PyDateTime_DATE_GET_MICROSECOND,
    PyDateTime_DATE_GET_MINUTE, PyDateTime_DATE_GET_SECOND, PyDateTime_GET_DAY, PyDateTime_GET_MONTH,
    PyDateTime_GET_YEAR, import_datetime,
)
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy, memset


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1
    bint PyLong_CheckExact(object)

import_datetime()


class _Left(Exception):
    """What an operation raises for a value that it does not take."""


# ── text that grows ──


cdef class Text:
    cdef char *at
    cdef Py_ssize_t n, room

    def __dealloc__(self):
        PyMem_Free(self.at)

    cdef char *reserve(self, Py_ssize_t more) except NULL:
        """Where `more` bytes have room behind the text."""
        cdef char *at
        if self.room - self.n < more:
            at = <char *>PyMem_Realloc(self.at, (self.n + more) * 2 + 256)
            if at == NULL:
                raise MemoryError
            self.at, self.room = at, (self.n + more) * 2 + 256
        return self.at + self.n

    cdef int put(self, const char *source, Py_ssize_t n) except -1:
        if n > 0:
            memcpy(self.reserve(n), source, n)
            self.n += n
        return 0

    cdef int put_zeros(self, Py_ssize_t n) except -1:
        if n > 0:
            memset(self.reserve(n), b"0", n)
            self.n += n
        return 0

    cdef int put_escaped(self, const char *source, Py_ssize_t n) except -1:
        """As json.encoder.encode_basestring and orjson write it."""
        cdef Py_ssize_t i, begin = 0
        cdef unsigned char c
        cdef char *to
        for i in range(n):
            c = <unsigned char>source[i]
            if c >= 0x20 and c != c'"' and c != c"\\":
                continue
            self.put(source + begin, i - begin)
            begin = i + 1
            to = self.reserve(6)
            to[0] = c"\\"
            to[1] = SHORT[c] if c < 0x20 else c
            if to[1]:
                self.n += 2
                continue
            memcpy(to + 1, b"u00", 3)
            to[4] = HEX[c >> 4]
            to[5] = HEX[c & 15]
            self.n += 6
        return self.put(source + begin, n - begin)

    cdef int put_base64(self, const unsigned char *source, Py_ssize_t n) except -1:
        cdef char *to = self.reserve((n // 3 + 1) * 4)
        cdef char *begin = to
        cdef unsigned long bits
        cdef Py_ssize_t i
        for i in range(0, n, 3):
            bits = source[i] << 16
            if i + 1 < n:
                bits |= source[i + 1] << 8
            if i + 2 < n:
                bits |= source[i + 2]
            to[0] = BASE64[bits >> 18 & 63]
            to[1] = BASE64[bits >> 12 & 63]
            to[2] = BASE64[bits >> 6 & 63] if i + 1 < n else c"="
            to[3] = BASE64[bits & 63] if i + 2 < n else c"="
            to += 4
        self.n += to - begin
        return 0


cdef const char *HEX = b"0123456789abcdef"
cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef char[32] SHORT
memset(SHORT, 0, 32)
SHORT[8], SHORT[9], SHORT[10], SHORT[12], SHORT[13] = c"b", c"t", c"n", c"f", c"r"


# ── values: one column of one row ──

# TEXT may need escapes in JSON, PLAIN does not; JSON is the whole value in DynamoDB's form.
cdef enum Form: ABSENT, TEXT, PLAIN, NUMBER, BINARY, YES, NO, JSON

cdef struct Value:
    Form form
    bint own              # the executor read it without a function
    const char *text      # its text in a template; NULL where it has none
    Py_ssize_t n
    Py_ssize_t bytes      # as DynamoDB counts them
    const char *json
    Py_ssize_t json_n
    char[48] room


cdef bint is_text(Value *value, Form form, Py_ssize_t n) noexcept:
    value.form, value.text, value.n, value.bytes = form, value.room, n, n
    return True


cdef bint is_digit(char c) noexcept:
    return c"0" <= c <= c"9"


cdef bint all_digits(const char *at, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        if not is_digit(at[i]):
            return False
    return n > 0


cdef enum: DIGITS = 38


cdef bint number(Value *value, const char *at, Py_ssize_t n, Py_ssize_t scale) noexcept:
    """Digits with at most `scale` decimals (-1: any); False for what is written in another way."""
    cdef bint minus = n > 0 and at[0] == c"-"
    cdef const char *digits = at + minus
    cdef const char *end = at + n
    cdef const char *point
    cdef Py_ssize_t whole, i, seen = 0, first = -1, last = -1
    if n > DIGITS or n - minus < 1:
        return False
    point = <const char *>memchr(digits, c".", end - digits)
    whole = (point if point != NULL else end) - digits
    if not all_digits(digits, whole) or (digits[0] == c"0" and whole > 1):
        return False
    if point != NULL:
        if not all_digits(point + 1, end - point - 1) or (0 <= scale < end - point - 1):
            return False
        while (end - 1)[0] == c"0":
            end -= 1
        if (end - 1)[0] == c".":
            end -= 1
    if end - digits == 1 and digits[0] == c"0":
        value.room[0] = c"0"
        return is_text(value, NUMBER, 1)
    memcpy(value.room, at, end - at)
    is_text(value, NUMBER, end - at)
    # Source: AWS Developer Guide, "DynamoDB item sizes and formats": a byte for two significant digits, and one more.
    for i in range(end - digits):
        if digits[i] == c".":
            continue
        if digits[i] != c"0":
            first, last = seen if first < 0 else first, seen
        seen += 1
    value.bytes = (last - first + 2) // 2 + 1 + minus
    return True


cdef bint integer(Value *value, object raw) except -1:
    cdef int overflow = 0
    cdef long long whole = PyLong_AsLongLongAndOverflow(raw, &overflow)
    cdef char[24] text
    cdef int at = 24
    cdef unsigned long long left = <unsigned long long>whole
    if overflow:
        return False
    if whole < 0:
        left = 0 - left
    while True:
        at -= 1
        text[at] = <char>(c"0" + left % 10)
        left = left // 10
        if not left:
            break
    if whole < 0:
        at -= 1
        text[at] = c"-"
    return number(value, text + at, 24 - at, 0)


cdef int part(const char *at, int n) noexcept:
    cdef int made = 0, i
    for i in range(n):
        if not is_digit(at[i]):
            return -1
        made = made * 10 + (at[i] - c"0")
    return made


cdef bint is_date(const char *at) noexcept:
    cdef int year = part(at, 4), month = part(at + 5, 2), day = part(at + 8, 2)
    if at[4] != c"-" or at[7] != c"-" or year < 1 or not 1 <= month <= 12 or day < 1:
        return False
    if month == 2:
        return day <= 28 + ((year % 4 == 0 and year % 100 != 0) or year % 400 == 0)
    return day <= 30 + (month in (1, 3, 5, 7, 8, 10, 12))


cdef bint is_time(const char *at) noexcept:
    return (
        at[2] == c":" and at[5] == c":"
        and 0 <= part(at, 2) < 24 and 0 <= part(at + 3, 2) < 60 and 0 <= part(at + 6, 2) < 60
    )


cdef bint fraction(const char *at, Py_ssize_t n, char *six) noexcept:
    """`.` and up to six digits, or nothing, as six digits."""
    memcpy(six, b"000000", 6)
    if n == 0:
        return True
    if at[0] != c"." or n > 7 or not all_digits(at + 1, n - 1):
        return False
    memcpy(six, at + 1, n - 1)
    return True


cdef bint date(Value *value, const char *at, Py_ssize_t n) noexcept:
    if n != 10 or not is_date(at):
        return False
    memcpy(value.room, at, 10)
    return is_text(value, PLAIN, 10)


cdef bint time_of_day(Value *value, const char *at, Py_ssize_t n) noexcept:
    if n < 8 or not is_time(at) or not fraction(at + 8, n - 8, value.room + 9):
        return False
    memcpy(value.room, at, 8)
    value.room[8] = c"."
    return is_text(value, PLAIN, 15 if memcmp(value.room + 9, b"000000", 6) else 8)


cdef bint timestamp(Value *value, const char *at, Py_ssize_t n, bint zoned) noexcept:
    if zoned and n > 3 and memcmp(at + n - 3, b"+00", 3) == 0:
        n -= 3
    if n < 19 or at[10] not in (c" ", c"T") or not is_date(at) or not is_time(at + 11):
        return False
    if not fraction(at + 19, n - 19, value.room + 20):
        return False
    memcpy(value.room, at, 19)
    value.room[10], value.room[19], value.room[26] = c"T", c".", c"Z"
    return is_text(value, PLAIN, 27 if zoned else 26)


cdef void write(char *to, int number, int n) noexcept:
    while n:
        n -= 1
        to[n] = <char>(c"0" + number % 10)
        number = number // 10


cdef void write_date(char *to, object raw) noexcept:
    write(to, PyDateTime_GET_YEAR(raw), 4)
    write(to + 5, PyDateTime_GET_MONTH(raw), 2)
    write(to + 8, PyDateTime_GET_DAY(raw), 2)
    to[4] = to[7] = c"-"


cdef bint moment(Value *value, object raw) except -1:
    cdef char *to = value.room
    if raw.tzinfo is not None:
        return False
    write_date(to, raw)
    write(to + 11, PyDateTime_DATE_GET_HOUR(raw), 2)
    write(to + 14, PyDateTime_DATE_GET_MINUTE(raw), 2)
    write(to + 17, PyDateTime_DATE_GET_SECOND(raw), 2)
    write(to + 20, PyDateTime_DATE_GET_MICROSECOND(raw), 6)
    to[10], to[19] = c"T", c"."
    to[13] = to[16] = c":"
    return is_text(value, PLAIN, 26)


cdef bint uuid(Value *value, const char *at, Py_ssize_t n) noexcept:
    cdef int i
    if n != 36:
        return False
    for i in range(36):
        if i in (8, 13, 18, 23):
            if at[i] != c"-":
                return False
        elif not (is_digit(at[i]) or c"a" <= at[i] <= c"f"):
            return False
    memcpy(value.room, at, 36)
    return is_text(value, PLAIN, 36)


# ── a program ──

cdef enum Kind: INTEGER, DECIMAL, STRING, UUID, BOOLEAN, DATE, TIME, TIMESTAMP, ZONED, BYTES, OTHER, LIST

KINDS = "integer", "number", "text", "uuid", "boolean", "date", "time", "timestamp", "zoned", "binary", "other", "list"

cdef enum Code: LITERAL, SOURCE, COLUMN, TEMPLATE, KEY, KEY_CALL, CALL, EXPIRY, ENTRY, EACH

CODES = "literal", "source", "column", "template", "key", "key_call", "call", "expiry", "entry", "each"


cdef class Column:
    cdef Kind kind
    cdef Py_ssize_t scale
    cdef object by_decoder, decode

    def __init__(self, str kind, Py_ssize_t scale, by_decoder, decode):
        self.kind, self.scale, self.by_decoder, self.decode = KINDS.index(kind), scale, by_decoder, decode


cdef class Op:
    """`name`: as JSON, or all of a literal. `parts`: of a text. `fixed`: a key that is alike in all rows."""

    cdef Code code
    cdef bytes name
    cdef Py_ssize_t bytes, place, limit, count
    cdef bint is_base
    cdef object function
    cdef Program child
    cdef tuple parts
    cdef str fixed

    def __init__(self, Program program, str code, bytes name, Py_ssize_t n, tuple more):
        self.code, self.name, self.bytes = CODES.index(code), name, n
        if self.code == COLUMN:
            (self.place,) = more
        elif self.code == TEMPLATE:
            (self.parts,) = more
        elif self.code == KEY:
            self.parts, self.limit, self.is_base = more
        elif self.code == KEY_CALL:
            self.function, self.limit, self.is_base = more
        elif self.code in (CALL, EXPIRY):
            (self.function,) = more
        elif self.code == ENTRY:
            self.function, self.count = more
        elif self.code == EACH:
            self.place, self.child, self.limit, self.count = more
        if self.parts is not None:
            if all([isinstance(one, bytes) for one in self.parts]):
                self.fixed = b"".join(self.parts).decode()
            self.parts = tuple([Part(program, one) for one in self.parts])
        if not 0 <= self.place < max(program.width, 1):
            raise ValueError(f"place {self.place} of a row of {program.width}")


cdef class Part:
    cdef Py_ssize_t place, width
    cdef bytes text

    def __init__(self, Program program, given):
        self.place = -1
        if isinstance(given, bytes):
            self.text = given
            return
        self.place, self.width = given
        if not 0 <= self.place < program.width:
            raise ValueError(f"place {self.place} of a row of {program.width}")


cdef class Program:
    """Program(columns, (before, key place, key places, encode_key), items, row type, leaving, most bytes)."""

    cdef tuple columns, items, key_places
    cdef readonly Py_ssize_t width
    cdef Py_ssize_t key_place, most_bytes
    cdef bytes before
    cdef object encode_key, row_type, leaving
    cdef bint any_decoded

    def __init__(self, tuple columns, tuple key, tuple items, type row_type, tuple leaving, Py_ssize_t most_bytes):
        self.columns = tuple([Column(*one) for one in columns])
        self.width = len(columns)
        self.any_decoded = any([one[3] is not None for one in columns])
        self.before, self.key_place, self.key_places, self.encode_key = key
        if not issubclass(row_type, tuple):
            raise TypeError("items are made of a type of tuples")
        if not all([0 <= place < self.width for place in self.key_places]) or not -1 <= self.key_place < self.width:
            raise ValueError("a place of the key is none of the row")
        self.row_type, self.leaving, self.most_bytes = row_type, (*leaving, _Left), most_bytes
        self.items = tuple([
            (type_, when, tuple([Op(self, *one) for one in operations])) for type_, when, operations in items
        ])
        for _, _, operations in self.items:
            for i, op in enumerate(operations):
                if (<Op>op).code == ENTRY and not 0 <= (<Op>op).count < len(operations) - i:
                    raise ValueError("an entry ends before its keys")

    def encode(self, rows, ticket, bytes end, Py_ssize_t end_bytes, list items, left):
        """Appends the rows' items; `left` takes a row that is left."""
        Run(self, items, ticket, end, end_bytes).make(rows, left)

    def puts(self, rows, now, bytes end, Py_ssize_t end_bytes, PutBuffer puts, PutBuffer expired, left):
        """The same as puts of a batch; apart from them those that have expired `now`."""
        run = Run(self, None, None, end, end_bytes)
        run.puts, run.expired, run.now, run.tuple.keys = puts, expired, now, Text()
        run.make(rows, left)


# ── puts of a page, one behind the other: what BatchWriteItem takes is a slice of their text ──


cdef enum:
    PUT_BYTES = 22      # of {"PutRequest":{"Item":
    PUT_END_BYTES = 2   # of }} behind an item, without the comma


cdef class PutBuffer:
    """`sizes`: of the items, in bytes as DynamoDB counts them."""

    cdef Text text
    cdef readonly list sizes
    cdef list ends, keys

    def __init__(self):
        self.text, self.sizes, self.ends, self.keys = Text(), [], [], []

    def __len__(self):
        return len(self.sizes)

    @property
    def is_distinct(self):
        """Whether no key is there twice."""
        return len(set(self.keys)) == len(self.keys)

    def add(self, tuple key, bytes json, Py_ssize_t size):
        """What items_for() made."""
        cdef Text keys = Text()
        for part in key:
            put_key(keys, part)
        self.put(PyBytes_AS_STRING(json), PyBytes_GET_SIZE(json), size, keys)

    def batch(self, Py_ssize_t first, Py_ssize_t last):
        """The JSON of the puts from the first one up to the last one, with commas between them."""
        if not 0 <= first < last <= len(self.ends):
            raise IndexError(first, last)
        cdef Py_ssize_t begin = self.ends[first - 1] + 1 if first else 0, end = self.ends[last - 1]
        return PyBytes_FromStringAndSize(self.text.at + begin, end - begin)

    def inserts(self, Py_ssize_t first, Py_ssize_t last, head_of):
        """The JSON of the statements that insert the same items, with commas between them. `head_of`: from an item's names
        to the JSON in front of its values; where it has None, so has this."""
        if not 0 <= first < last <= len(self.ends):
            raise IndexError(first, last)
        cdef Text out = Text(), names = Text(), values = Text()
        cdef bytes head
        cdef Py_ssize_t begin, end = self.ends[first - 1] if first else -1
        for number in range(first, last):
            begin, end = end + 1 + PUT_BYTES, self.ends[number]
            names.n = values.n = 0
            split_members(self.text.at + begin, end - PUT_END_BYTES - begin, names, values)
            head = head_of(PyBytes_FromStringAndSize(names.at, names.n - 1))
            if head is None:
                return None
            out.put(PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
            out.put(values.at, values.n - 1)
            out.put(b"]},", 3)
        return PyBytes_FromStringAndSize(out.at, out.n - 1)

    cdef int put(self, const char *json, Py_ssize_t n, Py_ssize_t size, Text keys) except -1:
        self.text.put(b'{"PutRequest":{"Item":', PUT_BYTES)
        self.text.put(json, n)
        self.text.put(b"}},", 3)
        self.ends.append(self.text.n - 1)
        self.sizes.append(size)
        self.keys.append(PyBytes_FromStringAndSize(keys.at, keys.n))
        return 0

    cdef int cut(self, Py_ssize_t number) except -1:
        """Takes back all but so many."""
        self.text.n = self.ends[number - 1] + 1 if number else 0
        del self.sizes[number:], self.ends[number:], self.keys[number:]
        return 0


cdef int put_key(Text keys, part) except -1:
    cdef bytes text = (part if isinstance(part, str) else repr(part)).encode()
    keys.put(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text) + 1)
    return 0


# ── an item's JSON as a statement has it: names, and values in their order ──


def names_and_values(bytes json):
    """Both as JSON lists without brackets. `json`: an object without spaces between its parts."""
    cdef Text names = Text(), values = Text()
    split_members(PyBytes_AS_STRING(json), PyBytes_GET_SIZE(json), names, values)
    return PyBytes_FromStringAndSize(names.at, names.n - 1), PyBytes_FromStringAndSize(values.at, values.n - 1)


def objects(bytes text):
    """The JSON of each of some objects with commas between them."""
    cdef const char *at = PyBytes_AS_STRING(text)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(text), i = 0, end
    cdef list found = []
    while i < n:
        end = value_end(at, i, n)
        found.append(text[i:end])
        i = end + 1
    if n and i != n + 1:
        raise ValueError("no objects of JSON")
    return found


cdef int split_members(const char *at, Py_ssize_t n, Text names, Text values) except -1:
    """Both with a comma behind each of them."""
    cdef Py_ssize_t i = 1, begin
    while i < n and at[i] == c'"':
        begin, i = i, string_end(at, i, n)
        names.put(at + begin, i - begin)
        names.put(b",", 1)
        begin, i = i + 1, value_end(at, i + 1, n)
        values.put(at + begin, i - begin)
        values.put(b",", 1)
        i += 1
    if i != n or not names.n:
        raise ValueError("no object of JSON with members")
    return 0


cdef Py_ssize_t value_end(const char *at, Py_ssize_t i, Py_ssize_t n) noexcept:
    """Behind the object, list or text that begins here; `n` where it does not end."""
    cdef Py_ssize_t depth = 0
    while i < n:
        if at[i] == c'"':
            i = string_end(at, i, n)
        else:
            depth += (at[i] in (c"{", c"[")) - (at[i] in (c"}", c"]"))
            i += 1
        if depth == 0:
            break
    return i


cdef Py_ssize_t string_end(const char *at, Py_ssize_t i, Py_ssize_t n) noexcept:
    """Behind the quotation mark that ends the text that begins here; `n` where none does."""
    cdef const char *mark
    cdef Py_ssize_t before
    cdef Py_ssize_t begin = i
    while True:
        mark = <const char *>memchr(at + i + 1, c'"', n - i - 1) if i + 1 < n else NULL
        if mark == NULL:
            return n
        i = before = mark - at
        while before - 1 > begin and at[before - 1] == c"\\":
            before -= 1
        if (i - before) % 2 == 0:
            return i + 1


# ── digests: 64 bits of an item, the same for any order of its names and of a set's members ──

ctypedef unsigned long long Word

cdef enum:
    DEEPEST = 40    # DynamoDB takes 32 levels
    MEMBERS = 512   # of an item that is read here; of any other one in Python
    DIGITS_HERE = 18


cdef inline Word turned(Word x, int n) noexcept:
    return (x << n) | (x >> (64 - n))


cdef inline void mix(Word *v) noexcept:
    v[0] += v[1]; v[1] = turned(v[1], 13) ^ v[0]; v[0] = turned(v[0], 32)
    v[2] += v[3]; v[3] = turned(v[3], 16) ^ v[2]
    v[0] += v[3]; v[3] = turned(v[3], 21) ^ v[0]
    v[2] += v[1]; v[1] = turned(v[1], 17) ^ v[2]; v[2] = turned(v[2], 32)


cdef struct Member:
    Py_ssize_t begin, value, end


cdef class Tally:
    """Counts of a page's items of one type whose source begins with `source`, both as JSON. `sums`: of each of `names`, as
    JSON, and of a number of decimals, the sum of the numbers without their points; `others`: numbers in another form."""

    cdef bytes source
    cdef tuple names
    cdef readonly Py_ssize_t items
    cdef readonly dict sums
    cdef readonly list others

    def __init__(self, bytes source, tuple names):
        self.source, self.names, self.sums, self.others = source, names, {}, []

    cdef int add(self, const char *at, Member *members, int n) except -1:
        cdef Py_ssize_t i, begin
        self.items += 1
        for name in self.names:
            i = find(at, members, n, name)
            if i >= 0 and begins(at, &members[i], b'{"N":"'):
                begin = members[i].value + 6
                self.count(name, at + begin, members[i].end - begin - 2)
        return 0

    cdef int count(self, name, const char *at, Py_ssize_t n) except -1:
        cdef Py_ssize_t i, scale = -1
        cdef bint minus = at[0] == c"-"
        cdef long long whole = 0
        for i in range(minus, n):
            if is_digit(at[i]) and n <= DIGITS_HERE:
                whole = whole * 10 + at[i] - c"0"
            elif at[i] == c"." and scale < 0:
                scale = i
            else:
                self.others.append((name, PyBytes_FromStringAndSize(at, n)))
                return 0
        place = name, 0 if scale < 0 else n - 1 - scale
        self.sums[place] = self.sums.get(place, 0) + (-whole if minus else whole)
        return 0


cdef int find(const char *at, Member *members, int n, bytes name) noexcept:
    """Number of the member with this name, as JSON; -1: none."""
    cdef int i
    for i in range(n):
        if is_named(at, &members[i], name):
            return i
    return -1


cdef inline bint begins(const char *at, Member *one, bytes text) noexcept:
    cdef Py_ssize_t n = PyBytes_GET_SIZE(text)
    return one.end - one.value >= n and memcmp(at + one.value, PyBytes_AS_STRING(text), n) == 0


cdef inline bint is_named(const char *at, Member *one, bytes name) noexcept:
    cdef Py_ssize_t n = PyBytes_GET_SIZE(name)
    return one.value - 1 - one.begin == n and memcmp(at + one.begin, PyBytes_AS_STRING(name), n) == 0


cdef class Digester:
    """Digests by SipHash-1-3 under a key of 16 bytes. The two names, as JSON, are of attributes that do not count.

    Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF".
    """

    cdef Word[2] key
    cdef bytes ticket, revision

    def __init__(self, bytes key, bytes ticket, bytes revision):
        if len(key) != sizeof(self.key):
            raise ValueError("a key has 16 bytes")
        memcpy(self.key, PyBytes_AS_STRING(key), sizeof(self.key))
        self.ticket, self.revision = ticket, revision

    def item(self, bytes json):
        """Of an item as an object of JSON without spaces between its parts."""
        cdef Member[MEMBERS] members
        cdef int n
        return <long long>self.members(PyBytes_AS_STRING(json), PyBytes_GET_SIZE(json), 0, members, &n)

    def puts(self, PutBuffer puts, Py_ssize_t first, Py_ssize_t last):
        """Of the items from the first one up to the last one, eight bytes each."""
        if not 0 <= first <= last <= len(puts.ends):
            raise IndexError(first, last)
        cdef Member[MEMBERS] members
        cdef int n
        cdef Text out = Text()
        cdef Py_ssize_t begin, end = puts.ends[first - 1] if first else -1
        for number in range(first, last):
            begin, end = end + 1 + PUT_BYTES, puts.ends[number]
            put_word(out, self.members(puts.text.at + begin, end - PUT_END_BYTES - begin, 0, members, &n))
        return PyBytes_FromStringAndSize(out.at, out.n)

    def page(self, bytes text, bytes type_name, bytes source_name, dict tallies, list left):
        """Of stored items with commas between them; and how many they are. `tallies`: by the JSON of a type. `left`: takes
        items of no tally and those with an escape, which JSON writes in more than one way.
        """
        cdef const char *at = PyBytes_AS_STRING(text)
        cdef Py_ssize_t n = PyBytes_GET_SIZE(text), i = 0, end, count = 0
        cdef Text out = Text()
        while i < n:
            end = value_end(at, i, n)
            if not self.stored(at + i, end - i, type_name, source_name, tallies, out):
                left.append(text[i:end])
            i = end + 1
            count += 1
        if n and i != n + 1:
            raise ValueError("no objects of JSON")
        return count, PyBytes_FromStringAndSize(out.at, out.n)

    cdef bint stored(
        self, const char *at, Py_ssize_t n, bytes type_name, bytes source_name, dict tallies, Text out
    ) except -1:
        cdef Member[MEMBERS] members
        cdef int count, type_, source
        cdef Tally tally
        if memchr(at, c"\\", n) != NULL:
            return False
        cdef Word digest = self.members(at, n, 0, members, &count)
        if count > MEMBERS:
            return False
        type_, source = find(at, members, count, type_name), find(at, members, count, source_name)
        if type_ < 0 or source < 0:
            return False
        tally = tallies.get(PyBytes_FromStringAndSize(at + members[type_].value, members[type_].end - members[type_].value))
        if tally is None or not begins(at, &members[source], tally.source):
            return False
        tally.add(at, members, count)
        put_word(out, digest)
        return True

    cdef Word members(self, const char *at, Py_ssize_t n, int depth, Member *found, int *count) except? 0:
        """Of an object's members, added up; those of the outermost one are `found`."""
        cdef Py_ssize_t i = 1
        cdef int here = 0
        cdef Word total = 0
        cdef Member one
        if n < 2 or at[0] != c"{" or at[n - 1] != c"}":
            raise ValueError("no object of JSON")
        if n == 2:
            i = n
        while i < n and at[i] == c'"':
            one.begin = i
            one.value = string_end(at, i, n) + 1
            i = one.end = value_end(at, one.value, n)
            total += self.member(at, &one, depth)
            if depth == 0 and here < MEMBERS:
                found[here] = one
            here += 1
            i += 1
        if i != n:
            raise ValueError("no object of JSON")
        count[0] = here
        return total

    cdef Word member(self, const char *at, Member *one, int depth) except? 0:
        cdef Word[2] pair
        if depth == 0 and (is_named(at, one, self.ticket) or is_named(at, one, self.revision)):
            return 0
        if is_flat(at + one.value, one.end - one.value):
            return self.hash(at + one.begin, one.end - one.begin)
        pair[0] = self.hash(at + one.begin, one.value - one.begin)
        pair[1] = self.value(at + one.value, one.end - one.value, depth + 1)
        return self.hash(<const char *>pair, sizeof(pair))

    cdef Word value(self, const char *at, Py_ssize_t n, int depth) except? 0:
        """Of a map, list or set; of any other value of its text."""
        cdef Word[2] pair
        cdef Py_ssize_t i, end
        cdef int count
        if depth > DEEPEST or is_flat(at, n):
            return self.hash(at, n)
        pair[0], pair[1] = at[2], 0
        if at[2] == c"M" and at[3] == c'"':
            pair[1] = self.members(at + 5, n - 6, depth, NULL, &count)
            return self.hash(<const char *>pair, sizeof(pair))
        i = 6 if at[3] == c'"' else 7
        while i < n - 2:
            end = value_end(at, i, n)
            if at[3] == c'"':
                pair[1] += self.value(at + i, end - i, depth + 1)
                pair[1] = self.hash(<const char *>pair, sizeof(pair))
            else:
                pair[1] += self.hash(at + i, end - i)
            i = end + 1
        return self.hash(<const char *>pair, sizeof(pair))

    cdef Word hash(self, const char *at, Py_ssize_t n) noexcept:
        cdef Word first = self.key[0], second = self.key[1], word
        cdef Word[4] v
        cdef Py_ssize_t i = 0
        v[0], v[1] = first ^ 0x736f6d6570736575ULL, second ^ 0x646f72616e646f6dULL
        v[2], v[3] = first ^ 0x6c7967656e657261ULL, second ^ 0x7465646279746573ULL
        while i + 8 <= n:
            memcpy(&word, at + i, 8)
            v[3] ^= word
            mix(v)
            v[0] ^= word
            i += 8
        word = 0
        memcpy(&word, at + i, n - i)
        word |= <Word>n << 56
        v[3] ^= word
        mix(v)
        v[0] ^= word
        v[2] ^= 0xff
        mix(v)
        mix(v)
        mix(v)
        return v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline bint is_flat(const char *at, Py_ssize_t n) noexcept:
    """Whether a value is no map, list or set."""
    return n < 8 or not (at[2] in (c"M", c"L") and at[3] == c'"' or at[3] == c"S")


cdef int put_word(Text out, Word word) except -1:
    return out.put(<const char *>&word, sizeof(word))


# ── rows of MySQL's text protocol ──
#
# Source: MySQL's Source Code Documentation, "Text Resultset Row", "Length-Encoded Integer", "MySQL Packets".


cdef enum:
    HEAD_BYTES = 4
    NULL_VALUE = 251
    PART_BYTES = 0xFFFFFF


class PacketError(ValueError):
    """A row that is longer than its packet."""


def take_rows(
    bytes data not None,
    Py_ssize_t position,
    int number,
    tuple encodings not None,
    tuple converts not None,
    list rows not None,
):
    """Add the rows of the whole packets from `position` on; return where they end, and the number of the next packet.

    It ends before a packet that is not whole, is a part of a longer one, or begins with more than 251: an end, an error,
    or a row whose first value is long. `encodings`: of what is not UTF-8; None for bytes. `converts`: what makes the
    values, None for none. Raises: PacketError; what converts raise.
    """
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t there = PyBytes_GET_SIZE(data), columns = PyTuple_GET_SIZE(encodings), size, i, end, place
    if position < 0 or PyTuple_GET_SIZE(converts) != columns:
        raise ValueError("no columns")
    while there - position > HEAD_BYTES:
        size = at[position] | at[position + 1] << 8 | at[position + 2] << 16
        i = position + HEAD_BYTES
        end = i + size
        if not 0 < size < PART_BYTES or end > there or at[position + 3] != number or at[i] > NULL_VALUE:
            break
        row = []
        for place in range(columns):
            encoding, convert = <object>PyTuple_GET_ITEM(encodings, place), <object>PyTuple_GET_ITEM(converts, place)
            row.append(wire_value(at, &i, end, encoding, convert))
        rows.append(tuple(row))
        position, number = end, (number + 1) & 255
    return position, number


cdef object wire_value(const unsigned char *at, Py_ssize_t *i, Py_ssize_t end, encoding, convert):
    cdef Py_ssize_t width, byte
    cdef size_t n
    cdef const char *begin
    if i[0] >= end:
        raise PacketError("a row that ends before its last column")
    n = at[i[0]]
    i[0] += 1
    if n == NULL_VALUE:
        return None
    if n > NULL_VALUE:
        width = {252: 2, 253: 3, 254: 8}.get(n, 9)
        n = 0
        if width > 8 or end - i[0] < width:
            raise PacketError("a value without its length")
        for byte in range(width - 1, -1, -1):
            n = n << 8 | at[i[0] + byte]
        i[0] += width
    if n > <size_t>(end - i[0]):
        raise PacketError("a value that is longer than its row")
    begin = <const char *>at + i[0]
    i[0] += n
    if encoding is None:
        value = PyBytes_FromStringAndSize(begin, n)
    else:
        try:
            value = PyUnicode_DecodeUTF8(begin, n, NULL)
        except UnicodeDecodeError:
            value = PyBytes_FromStringAndSize(begin, n).decode(encoding)
    return value if convert is None else convert(value)


# ── rows of an answer of libpq ──

ctypedef char *(*GetValue)(void *, int, int) noexcept
ctypedef int (*GetNumber)(void *, int, int) noexcept


cdef class Result:
    """Result(answer, functions, loads, rows): the rows of an answer, whose values are read where libpq keeps them.

    `answer`: psycopg's PGresult, with all columns as text. `functions`: the addresses of PQgetvalue, PQgetlength and
    PQgetisnull. `loads`: by column what makes a value of its bytes; None where it is their text. `rows`: gives the rows
    from one number to another as tuples.
    """

    cdef object answer
    cdef void *at
    cdef GetValue get_value
    cdef GetNumber get_length, get_is_null
    cdef readonly Py_ssize_t n, width
    cdef tuple loads
    cdef object rows

    def __init__(self, answer, tuple functions, tuple loads, rows):
        self.answer, self.loads, self.rows = answer, loads, rows
        self.n, self.width = answer.ntuples, answer.nfields
        value, length, is_null = functions
        self.at = <void *><size_t>answer.pgresult_ptr
        self.get_value = <GetValue><size_t>value
        self.get_length, self.get_is_null = <GetNumber><size_t>length, <GetNumber><size_t>is_null
        if self.get_value == NULL or self.get_length == NULL or self.get_is_null == NULL:
            raise ValueError("a function of libpq is missing")
        if len(loads) != self.width:
            raise ValueError(f"{len(loads)} functions for {self.width} columns")

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(self.rows(0, self.n))

    def __getitem__(self, number):
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(self.n))]
        if not 0 <= number < self.n:
            raise IndexError(number)
        return self.rows(number, number + 1)[0]

    def values(self, tuple places):
        """Of each row what is at the places; of one place without a tuple around it."""
        if not all([0 <= place < self.width for place in places]):
            raise IndexError(places)
        self.need()
        if len(places) == 1:
            return [self.value(number, places[0]) for number in range(self.n)]
        return [tuple([self.value(number, place) for place in places]) for number in range(self.n)]

    cdef int need(self) except -1:
        """Raises: ValueError where psycopg has cleared the answer."""
        if self.answer.pgresult_ptr is None or self.at != <void *><size_t>self.answer.pgresult_ptr:
            raise ValueError("the answer is cleared")
        return 0

    cdef object value(self, Py_ssize_t number, Py_ssize_t i):
        cdef const char *at
        cdef Py_ssize_t n
        if self.get_is_null(self.at, number, i):
            return None
        at, n = self.get_value(self.at, number, i), self.get_length(self.at, number, i)
        load = self.loads[i]
        return PyUnicode_DecodeUTF8(at, n, NULL) if load is None else load(PyBytes_FromStringAndSize(at, n))


cdef bint is_ascii(const char *at, Py_ssize_t n) noexcept:
    cdef unsigned char found = 0
    cdef Py_ssize_t i
    for i in range(n):
        found |= <unsigned char>at[i]
    return found < 0x80


# ── one tuple at work: a row, or a child of one ──


cdef class Tuple:
    cdef Program program
    cdef Value *values
    cdef tuple decoded
    cdef object raw       # the row; of an answer's row what was made of it
    cdef list kept
    cdef Text out, scratch, source, keys   # `keys`: of puts
    cdef Py_ssize_t bytes
    cdef tuple key
    cdef object expiry

    def __cinit__(self, Program program, Text out, Text scratch):
        self.program, self.out, self.scratch, self.source, self.kept = program, out, scratch, Text(), []
        self.values = <Value *>PyMem_Calloc(program.width + 1, sizeof(Value))
        if self.values == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.values)

    cdef int open(self, object row) except -1:
        """Reads every place, whether an item needs it or not: a row with a value that its column cannot have is refused."""
        cdef Program program = self.program
        cdef Py_ssize_t i
        cdef tuple raw = row if type(row) is tuple else tuple(row)
        self.raw, self.decoded = raw, None
        if self.kept:
            self.kept = []
        if PyTuple_GET_SIZE(raw) != program.width:
            raise _Left
        for i in range(program.width):
            self.read(<Column>PyTuple_GET_ITEM(program.columns, i), &self.values[i], <object>PyTuple_GET_ITEM(raw, i))
        self.decode()
        return 0

    cdef int open_at(self, Result rows, Py_ssize_t number) except -1:
        """The same of a row of an answer. A text is read where it is; a value for a function is made."""
        cdef Program program = self.program
        cdef Column column
        cdef Py_ssize_t i
        cdef list raw = [None] * program.width
        self.raw, self.decoded = raw, None
        if self.kept:
            self.kept = []
        for i in range(program.width):
            column = <Column>PyTuple_GET_ITEM(program.columns, i)
            if <object>PyTuple_GET_ITEM(rows.loads, i) is None and column.decode is None:
                self.read_at(column, &self.values[i], rows, number, i)
            else:
                raw[i] = rows.value(number, i)
                self.read(column, &self.values[i], raw[i])
        self.decode()
        return 0

    cdef int decode(self) except -1:
        if self.program.any_decoded:
            self.decoded = tuple([
                None if (<Column>column).decode is None else (<Column>column).decode(value)
                for column, value in zip(self.program.columns, self.raw)
            ])
        return 0

    cdef int read_at(self, Column column, Value *value, Result rows, Py_ssize_t number, Py_ssize_t i) except -1:
        cdef const char *at
        cdef Py_ssize_t n
        value.form, value.text, value.own = ABSENT, NULL, True
        if column.kind == LIST or rows.get_is_null(rows.at, number, i):
            return 0
        at, n = rows.get_value(rows.at, number, i), rows.get_length(rows.at, number, i)
        if not is_ascii(at, n):
            PyUnicode_DecodeUTF8(at, n, NULL)
        if column.kind == OTHER or not self.read_text(column, value, at, n):
            self.by_decoder(column, value, PyUnicode_DecodeUTF8(at, n, NULL))
        return 0

    cdef int read(self, Column column, Value *value, object raw) except -1:
        value.form, value.text, value.own = ABSENT, NULL, True
        if raw is None or column.kind == LIST:
            return 0
        if column.kind == OTHER or not self.read_here(column, value, raw):
            self.by_decoder(column, value, raw)
        return 0

    cdef int by_decoder(self, Column column, Value *value, object raw) except -1:
        value.own = False
        if column.by_decoder is None:
            raise _Left
        made = column.by_decoder(raw)
        self.kept.append(made)
        json, value.bytes, text = made
        value.form, value.json, value.json_n = JSON, PyBytes_AS_STRING(json), PyBytes_GET_SIZE(json)
        if text is not None:
            value.text = PyUnicode_AsUTF8AndSize(text, &value.n)
        return 0

    cdef bint read_here(self, Column column, Value *value, object raw) except -1:
        """Whether the value could be read without a function."""
        cdef Kind kind = column.kind
        cdef const char *at
        cdef Py_ssize_t n
        if type(raw) is str:
            at = PyUnicode_AsUTF8AndSize(raw, &n)
            return self.read_text(column, value, at, n)
        if kind == INTEGER:
            return PyLong_CheckExact(raw) and integer(value, raw)
        if kind == DECIMAL:
            if PyLong_CheckExact(raw):
                return integer(value, raw)
            if type(raw) is bool:
                return False
            text = str(raw)
            self.kept.append(text)
            at = PyUnicode_AsUTF8AndSize(text, &n)
            return number(value, at, n, column.scale)
        if kind == BOOLEAN and type(raw) is bool:
            value.form, value.bytes = YES if raw else NO, 1
            return True
        if kind == BYTES and type(raw) is bytes:
            value.form, value.json, value.json_n = BINARY, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)
            value.bytes = value.json_n
            return True
        if kind == DATE and PyDate_CheckExact(raw):
            write_date(value.room, raw)
            return is_text(value, PLAIN, 10)
        return kind == TIMESTAMP and PyDateTime_CheckExact(raw) and moment(value, raw)

    cdef bint read_text(self, Column column, Value *value, const char *at, Py_ssize_t n) noexcept:
        cdef Kind kind = column.kind
        # A number that is a text is the server's own; of another reading it is for the column's decoder.
        if kind in (INTEGER, DECIMAL) and column.by_decoder is not None:
            return False
        if kind == STRING:
            value.form, value.text, value.n, value.bytes = TEXT, at, n, n
            return True
        if kind == INTEGER:
            return memchr(at, c".", n) == NULL and number(value, at, n, 0)
        if kind == DECIMAL:
            return number(value, at, n, column.scale)
        if kind == UUID:
            return uuid(value, at, n)
        if kind == DATE:
            return date(value, at, n)
        if kind == TIME:
            return time_of_day(value, at, n)
        return kind in (TIMESTAMP, ZONED) and timestamp(value, at, n, kind == ZONED)

    # ── operations: each appends an attribute, adds its bytes, and says whether there is one ──

    cdef bint run(self, Op op) except -1:
        if op.code == LITERAL:
            return self.put_name(op, 0)
        if op.code == COLUMN:
            return self.column(op, &self.values[op.place])
        if op.code == TEMPLATE:
            return self.text_of(op) and self.put_text(op, self.scratch)
        if op.code == KEY:
            return self.key_text(op)
        if op.code == SOURCE:
            return self.put_text(op, self.source)
        if op.code == EACH:
            return self.each(op)
        return self.call(op)

    cdef bint put_name(self, Op op, Py_ssize_t value_bytes) except -1:
        self.bytes += op.bytes + value_bytes
        self.out.put(PyBytes_AS_STRING(op.name), PyBytes_GET_SIZE(op.name))
        return True

    cdef bint column(self, Op op, Value *value) except -1:
        cdef Text out = self.out
        if value.form == ABSENT:
            return False
        self.put_name(op, value.bytes)
        if value.form == JSON:
            out.put(value.json, value.json_n)
        elif value.form == YES:
            out.put(b'{"BOOL":true}', 13)
        elif value.form == NO:
            out.put(b'{"BOOL":false}', 14)
        else:
            out.put(b'{"N":"' if value.form == NUMBER else b'{"B":"' if value.form == BINARY else b'{"S":"', 6)
            if value.form == TEXT:
                out.put_escaped(value.text, value.n)
            elif value.form == BINARY:
                out.put_base64(<const unsigned char *>value.json, value.json_n)
            else:
                out.put(value.text, value.n)
            out.put(b'"}', 2)
        return True

    cdef bint text_of(self, Op op) except -1:
        """The text of the parts in `scratch`; False where one of them is NULL."""
        cdef Text text = self.scratch
        cdef Part part
        cdef Value *value
        text.n = 0
        for part in op.parts:
            if part.place >= 0 and self.values[part.place].form == ABSENT:
                return False
        for part in op.parts:
            if part.place < 0:
                text.put(PyBytes_AS_STRING(part.text), PyBytes_GET_SIZE(part.text))
                continue
            value = &self.values[part.place]
            if value.text == NULL or (part.width and (value.n > part.width or value.text[0] == c"-")):
                raise _Left
            if part.width:
                text.put_zeros(part.width - value.n)
            text.put(value.text, value.n)
        return True

    cdef bint put_text(self, Op op, Text text) except -1:
        self.put_name(op, text.n)
        self.out.put(b'{"S":"', 6)
        self.out.put_escaped(text.at, text.n)
        self.out.put(b'"}', 2)
        return True

    cdef bint key_text(self, Op op) except -1:
        if not self.text_of(op):
            if op.is_base:
                raise _Left
            return False
        if not 1 <= self.scratch.n <= op.limit:
            raise _Left
        if op.is_base:
            if self.keys is None:
                self.key += (op.fixed or PyUnicode_DecodeUTF8(self.scratch.at, self.scratch.n, NULL),)
            else:
                self.keys.put(self.scratch.at, self.scratch.n)
                self.keys.put(b"", 1)
        return self.put_text(op, self.scratch)

    cdef bint call(self, Op op) except -1:
        """What a function of the decoded row gives: (the value, its JSON, its bytes), or None. A limit holds for a key."""
        made = op.function(self.decoded)
        if made is None:
            if op.is_base:
                raise _Left
            return False
        value, json, size = made
        if op.limit and not 1 <= size <= op.limit:
            raise _Left
        if op.is_base:
            self.key += (value,)
            if self.keys is not None:
                put_key(self.keys, value)
        if op.code == EXPIRY:
            self.expiry = value
        self.put_name(op, size)
        self.out.put(PyBytes_AS_STRING(json), PyBytes_GET_SIZE(json))
        return True


    cdef bint each(self, Op op) except -1:
        children = self.raw[op.place]
        cdef Py_ssize_t n = len(children), i
        cdef Tuple child = Tuple(op.child, self.out, self.scratch)
        if 0 <= op.limit < n:
            raise _Left
        self.put_name(op, 3)
        self.out.put(b'{"L":[', 6)
        for i in range(n if op.count < 0 else min(n, op.count)):
            if i:
                self.out.put(b",", 1)
            child.open(children[i])
            child.map()
        self.bytes += child.bytes
        self.out.put(b"]}", 2)
        return True

    cdef int map(self) except -1:
        """A child: three bytes, one for each attribute that it has, and one for its place in the list."""
        cdef Py_ssize_t begin
        self.out.put(b'{"M":', 5)
        begin = self.out.n
        for op in self.program.items[0][2]:
            self.bytes += self.run(op)
        if self.out.n == begin:
            self.out.put(b"{", 1)
        self.out.at[begin] = c"{"
        self.out.put(b"}}", 2)
        self.bytes += 4
        return 0

    cdef int set_source(self) except -1:
        """What `_src` holds: the entity's name and the row's key, as it was read."""
        cdef Program program = self.program
        cdef Text text = self.source
        cdef Value *key
        cdef bytes encoded
        text.n = 0
        text.put(PyBytes_AS_STRING(program.before), PyBytes_GET_SIZE(program.before))
        if program.key_place < 0:
            encoded = program.encode_key([self.raw[place] for place in program.key_places]).encode()
            return text.put(PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))
        key = &self.values[program.key_place]
        if not key.own or key.form == ABSENT:
            raise _Left
        text.put(b"[", 1)
        text.put(key.text, key.n)
        return text.put(b"]", 1)


# ── items ──

NEW = tuple.__new__


cdef class Run:
    """Items of many rows. `end`: the JSON that ends each. `puts`: where they are wanted."""

    cdef Program program
    cdef list items
    cdef PutBuffer puts, expired
    cdef object ticket, now, source
    cdef bytes end
    cdef Py_ssize_t end_bytes
    cdef Tuple tuple

    def __cinit__(self, Program program, list items, ticket, bytes end, Py_ssize_t end_bytes):
        self.program, self.items, self.ticket, self.end, self.end_bytes = program, items, ticket, end, end_bytes
        self.tuple = Tuple(program, Text(), Text())

    cdef int make(self, rows, left) except -1:
        cdef Py_ssize_t i, before, expired
        cdef Result result = rows if isinstance(rows, Result) else None
        if result is not None:
            result.need()
            if result.width != self.program.width:
                raise ValueError(f"{result.width} columns for a program of {self.program.width}")
        for i in range(len(rows)):
            before = len(self.items) if self.puts is None else len(self.puts)
            expired = 0 if self.puts is None else len(self.expired)
            try:
                if result is None:
                    self.tuple.open(rows[i])
                else:
                    self.tuple.open_at(result, i)
                self.row()
            except self.program.leaving:
                if self.puts is None:
                    del self.items[before:]
                else:
                    self.puts.cut(before)
                    self.expired.cut(expired)
                left(rows[i])
        return 0

    cdef int row(self) except -1:
        self.tuple.set_source()
        if self.puts is None:
            self.source = PyUnicode_DecodeUTF8(self.tuple.source.at, self.tuple.source.n, NULL)
        for type_, when, operations in self.program.items:
            if when is None or when(self.tuple.decoded):
                self.item(type_, operations)
            else:
                self.skip(operations)
        return 0

    cdef int skip(self, tuple operations) except -1:
        """Reads the lists of an item that is not there: a value that no child can have refuses the row all the same."""
        cdef Op op
        for op in operations:
            if op.code == EACH:
                self.tuple.each(op)
        return 0

    cdef int item(self, type_, tuple operations) except -1:
        cdef Tuple row = self.tuple
        cdef Py_ssize_t i = 0
        cdef Op op
        row.out.n = row.bytes = 0
        row.key, row.expiry = (), None
        if row.keys is not None:
            row.keys.n = 0
        while i < PyTuple_GET_SIZE(operations):
            op = <Op>PyTuple_GET_ITEM(operations, i)
            if op.code == ENTRY:
                self.entry(op, operations, i + 1)
                i += op.count
            else:
                row.run(op)
            i += 1
        row.bytes += self.end_bytes
        if row.bytes > self.program.most_bytes:
            raise _Left
        row.out.put(PyBytes_AS_STRING(self.end), PyBytes_GET_SIZE(self.end))
        row.out.at[0] = c"{"
        if self.puts is None:
            self.items.append(self.encoded(type_))
        elif row.expiry is None or row.expiry > self.now:
            self.puts.put(row.out.at, row.out.n, row.bytes, row.keys)
        else:
            self.expired.put(row.out.at, row.out.n, row.bytes, row.keys)
        return 0

    cdef int entry(self, Op op, tuple operations, Py_ssize_t first) except -1:
        """All key attributes of an index, or none where one is NULL or a condition does not hold."""
        cdef Py_ssize_t begin = self.tuple.out.n, size = self.tuple.bytes, i
        if op.function is not None and not op.function(self.tuple.decoded):
            return 0
        for i in range(first, first + op.count):
            if not self.tuple.run(<Op>operations[i]):
                self.tuple.out.n, self.tuple.bytes = begin, size
                break
        return 0

    cdef object encoded(self, type_):
        cdef Tuple row = self.tuple
        data = PyBytes_FromStringAndSize(row.out.at, row.out.n)
        return NEW(
            self.program.row_type, (row.key, data, row.bytes, row.expiry, type_, self.source, self.ticket)
        )
