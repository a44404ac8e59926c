/* The native executor of item programs (program.py): rows as drivers give them in, items as JSON with their bytes out.
 *
 * One operation a function. A value that an operation does not take leaves its row to items_for(), which makes it or says why
 * not; nothing here refuses anything. All memory that depends on a row is reserved by reserve(). The GIL is held throughout,
 * and a Program never changes, so that threads may share it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <datetime.h>
#include <string.h>

enum { DIGITS = 38, ROOM = 64 };

/* What an operation says. */
typedef enum { DONE, NOTHING, LEAVE, RAISED } Did;

/* ── text that grows ── */

typedef struct { char *at; Py_ssize_t n, room; } Text;

static int reserve(Text *text, Py_ssize_t more) {
    if (text->room - text->n >= more)
        return 1;
    if (more > PY_SSIZE_T_MAX / 4 || text->n > PY_SSIZE_T_MAX / 4) {
        PyErr_NoMemory();
        return 0;
    }
    Py_ssize_t room = (text->n + more) * 2 + 256;
    char *at = PyMem_Realloc(text->at, room);
    if (!at) {
        PyErr_NoMemory();
        return 0;
    }
    text->at = at;
    text->room = room;
    return 1;
}

static int put(Text *text, const char *from, Py_ssize_t n) {
    if (!reserve(text, n))
        return 0;
    memcpy(text->at + text->n, from, n);
    text->n += n;
    return 1;
}

#define PUT(text, constant) put(text, constant, sizeof(constant) - 1)

static int put_zeros(Text *text, Py_ssize_t n) {
    if (n <= 0)
        return 1;
    if (!reserve(text, n))
        return 0;
    memset(text->at + text->n, '0', n);
    text->n += n;
    return 1;
}

/* As json.encoder.encode_basestring and orjson write it. */
static int put_escaped(Text *text, const char *from, Py_ssize_t n) {
    static const char hex[] = "0123456789abcdef";
    Py_ssize_t begin = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)from[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        if (!put(text, from + begin, i - begin) || !reserve(text, 6))
            return 0;
        begin = i + 1;
        char *to = text->at + text->n;
        const char *short_form = c == '"' ? "\"" : c == '\\' ? "\\" : c == '\n' ? "n" : c == '\r' ? "r"
                               : c == '\t' ? "t" : c == '\b' ? "b" : c == '\f' ? "f" : NULL;
        *to++ = '\\';
        if (short_form) {
            *to = *short_form;
            text->n += 2;
        } else {
            memcpy(to, "u00", 3);
            to[3] = hex[c >> 4];
            to[4] = hex[c & 15];
            text->n += 6;
        }
    }
    return put(text, from + begin, n - begin);
}

static int put_base64(Text *text, const char *from, Py_ssize_t n) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (!reserve(text, (n / 3 + 1) * 4))
        return 0;
    char *to = text->at + text->n;
    for (Py_ssize_t i = 0; i < n; i += 3) {
        unsigned long bits = (unsigned long)(unsigned char)from[i] << 16;
        if (i + 1 < n)
            bits |= (unsigned long)(unsigned char)from[i + 1] << 8;
        if (i + 2 < n)
            bits |= (unsigned char)from[i + 2];
        *to++ = letters[bits >> 18 & 63];
        *to++ = letters[bits >> 12 & 63];
        *to++ = i + 1 < n ? letters[bits >> 6 & 63] : '=';
        *to++ = i + 2 < n ? letters[bits & 63] : '=';
    }
    text->n = to - text->at;
    return 1;
}

/* ── values: one column of one row ── */

/* What is known of a value. TEXT may need escapes in JSON, PLAIN does not; JSON is the whole value in DynamoDB's form. */
typedef enum { ABSENT, TEXT, PLAIN, NUMBER, BINARY, YES, NO, JSON } Form;

typedef struct {
    Form form;
    int own;              /* the executor read it itself */
    const char *text;     /* its text in a template; NULL where it has none */
    Py_ssize_t n;
    Py_ssize_t bytes;     /* as DynamoDB counts them */
    const char *json;
    Py_ssize_t json_n;
    PyObject *kept;       /* what `text` and `json` point into */
    char room[ROOM];
} Value;

static void is_text(Value *value, Form form, Py_ssize_t n) {
    value->form = form;
    value->text = value->room;
    value->n = value->bytes = n;
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int all_digits(const char *at, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++)
        if (!is_digit(at[i]))
            return 0;
    return n > 0;
}

/* Digits with at most `scale` decimals (-1: any); false for what is written in another way. */
static int number(Value *value, const char *at, Py_ssize_t n, Py_ssize_t scale) {
    int minus = n > 0 && at[0] == '-';
    if (n > DIGITS || n - minus < 1)
        return 0;
    const char *digits = at + minus, *end = at + n;
    const char *point = memchr(digits, '.', end - digits);
    Py_ssize_t whole = (point ? point : end) - digits;
    if (!all_digits(digits, whole) || (digits[0] == '0' && whole > 1))
        return 0;
    if (point) {
        Py_ssize_t decimals = end - point - 1;
        if (!all_digits(point + 1, decimals) || (scale >= 0 && decimals > scale))
            return 0;
        while (end[-1] == '0')
            end--;
        if (end[-1] == '.')
            end--;
    }
    if (end - digits == 1 && digits[0] == '0') {
        value->room[0] = '0';
        is_text(value, NUMBER, 1);
        return 1;
    }
    memcpy(value->room, at, end - at);
    is_text(value, NUMBER, end - at);
    /* Source: AWS Developer Guide, "DynamoDB item sizes and formats": a byte for two significant digits, and one more. */
    Py_ssize_t first = -1, last = -1, seen = 0;
    for (const char *c = digits; c < end; c++) {
        if (*c == '.')
            continue;
        if (*c != '0') {
            if (first < 0)
                first = seen;
            last = seen;
        }
        seen++;
    }
    value->bytes = (last - first + 2) / 2 + 1 + minus;
    return 1;
}

static int integer(Value *value, PyObject *raw) {
    int overflow = 0;
    long long whole = PyLong_AsLongLongAndOverflow(raw, &overflow);
    if (overflow)
        return 0;
    char text[24], *at = text + sizeof text;
    unsigned long long left = whole < 0 ? 0ULL - (unsigned long long)whole : (unsigned long long)whole;
    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (whole < 0)
        *--at = '-';
    return number(value, at, text + sizeof text - at, 0);
}

static int part(const char *at, int n) {
    int made = 0;
    for (int i = 0; i < n; i++) {
        if (!is_digit(at[i]))
            return -1;
        made = made * 10 + (at[i] - '0');
    }
    return made;
}

static int is_date(const char *at) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = part(at, 4), month = part(at + 5, 2), day = part(at + 8, 2);
    if (at[4] != '-' || at[7] != '-' || year < 1 || month < 1 || month > 12 || day < 1)
        return 0;
    int leap = month == 2 && ((year % 4 == 0 && year % 100 != 0) || year % 400 == 0);
    return day <= days[month - 1] + leap;
}

static int is_time(const char *at) {
    int hour = part(at, 2), minute = part(at + 3, 2), second = part(at + 6, 2);
    return at[2] == ':' && at[5] == ':' && hour >= 0 && hour < 24 && minute >= 0 && minute < 60 && second >= 0 &&
           second < 60;
}

/* `.` and up to six digits, as six digits; false for anything else but nothing. `whole`: there are none but zeros. */
static int fraction(const char *at, Py_ssize_t n, char *six, int *whole) {
    memset(six, '0', 6);
    *whole = 1;
    if (n == 0)
        return 1;
    if (at[0] != '.' || n > 7 || !all_digits(at + 1, n - 1))
        return 0;
    memcpy(six, at + 1, n - 1);
    *whole = memcmp(six, "000000", 6) == 0;
    return 1;
}

static int date(Value *value, const char *at, Py_ssize_t n) {
    if (n != 10 || !is_date(at))
        return 0;
    memcpy(value->room, at, 10);
    is_text(value, PLAIN, 10);
    return 1;
}

static int time_of_day(Value *value, const char *at, Py_ssize_t n) {
    int whole;
    if (n < 8 || !is_time(at) || !fraction(at + 8, n - 8, value->room + 9, &whole))
        return 0;
    memcpy(value->room, at, 8);
    value->room[8] = '.';
    is_text(value, PLAIN, whole ? 8 : 15);
    return 1;
}

static int timestamp(Value *value, const char *at, Py_ssize_t n, int zoned) {
    int whole;
    if (zoned && n > 3 && memcmp(at + n - 3, "+00", 3) == 0)
        n -= 3;
    if (n < 19 || (at[10] != ' ' && at[10] != 'T') || !is_date(at) || !is_time(at + 11) ||
        !fraction(at + 19, n - 19, value->room + 20, &whole))
        return 0;
    memcpy(value->room, at, 19);
    value->room[10] = 'T';
    value->room[19] = '.';
    value->room[26] = 'Z';
    is_text(value, PLAIN, zoned ? 27 : 26);
    return 1;
}

static void two(char *to, int number) {
    to[0] = (char)('0' + number / 10 % 10);
    to[1] = (char)('0' + number % 10);
}

static void write_date(char *to, PyObject *raw) {
    two(to, PyDateTime_GET_YEAR(raw) / 100);
    two(to + 2, PyDateTime_GET_YEAR(raw) % 100);
    to[4] = to[7] = '-';
    two(to + 5, PyDateTime_GET_MONTH(raw));
    two(to + 8, PyDateTime_GET_DAY(raw));
}

static int moment(Value *value, PyObject *raw) {
    if (((PyDateTime_DateTime *)raw)->hastzinfo)
        return 0;
    char *to = value->room;
    int micro = PyDateTime_DATE_GET_MICROSECOND(raw);
    write_date(to, raw);
    to[10] = 'T';
    two(to + 11, PyDateTime_DATE_GET_HOUR(raw));
    to[13] = to[16] = ':';
    two(to + 14, PyDateTime_DATE_GET_MINUTE(raw));
    two(to + 17, PyDateTime_DATE_GET_SECOND(raw));
    to[19] = '.';
    two(to + 20, micro / 10000);
    two(to + 22, micro / 100 % 100);
    two(to + 24, micro % 100);
    is_text(value, PLAIN, 26);
    return 1;
}

static int uuid(Value *value, const char *at, Py_ssize_t n) {
    if (n != 36)
        return 0;
    for (int i = 0; i < 36; i++) {
        int dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? at[i] != '-' : !(is_digit(at[i]) || (at[i] >= 'a' && at[i] <= 'f')))
            return 0;
    }
    memcpy(value->room, at, 36);
    is_text(value, PLAIN, 36);
    return 1;
}

/* ── a program ── */

typedef enum { INTEGER, DECIMAL, STRING, UUID_, BOOLEAN, DATE, TIME, TIMESTAMP, ZONED, BYTES, OTHER, LIST, SKIPPED } Kind;

typedef struct {
    Kind kind;
    Py_ssize_t scale;
    PyObject *slow;       /* what makes (JSON, bytes, text) of a value; NULL: the row is left */
    PyObject *decode;     /* what makes the value that functions of a decoded row need; NULL: none needs it */
} Column;

typedef enum { LITERAL, COLUMN, TEMPLATE, CALL, EACH, KEY, KEY_CALL, ENTRY, SOURCE, EXPIRY } Code;

typedef struct { Py_ssize_t place, width; const char *text; Py_ssize_t n; } Part;

struct Program;

typedef struct {
    Code code;
    const char *name;     /* `,"name":`, or all of a literal */
    Py_ssize_t name_n, bytes, place, limit, count, rank;
    Part *parts;
    PyObject *function;   /* NULL: none */
    struct Program *child;
    int is_base;
} Op;

typedef struct { PyObject *type, *when; Op *ops; Py_ssize_t n; } Item;

typedef struct Program {
    PyObject_HEAD
    PyObject *kept;       /* the tuples that all pointers point into */
    Column *columns;
    Py_ssize_t width;
    Item *items;
    Py_ssize_t n;
    PyObject *row_type, *leaving, *encode_key, *key_places;
    const char *before;   /* of what `_src` holds, before the key */
    Py_ssize_t before_n, key_place, most_bytes;
    int any_decoded;
} Program;

/* One tuple at work: a row, or a child of one. */
typedef struct {
    Program *program;
    Text *out;
    PyObject **raw;
    Value *values;
    PyObject *decoded;    /* NULL until a function needs it */
    Py_ssize_t bytes;
    PyObject *key;        /* of the item at work: its base key so far */
    PyObject *source, *expiry;
    Text *scratch;
} Tuple;

/* What a Python function's fault means: the row is left, or it is no fault of the row. */
static Did failed(const Program *program) {
    if (!PyErr_ExceptionMatches(program->leaving))
        return RAISED;
    PyErr_Clear();
    return LEAVE;
}

static Did by_function(const Program *program, const Column *column, Value *value, PyObject *raw) {
    if (!column->slow)
        return LEAVE;
    PyObject *made = PyObject_CallOneArg(column->slow, raw), *json, *text;
    if (!made)
        return failed(program);
    value->kept = made;
    if (!PyArg_ParseTuple(made, "O!nO", &PyBytes_Type, &json, &value->bytes, &text))
        return RAISED;
    value->form = JSON;
    value->json = PyBytes_AS_STRING(json);
    value->json_n = PyBytes_GET_SIZE(json);
    if (text != Py_None && !(value->text = PyUnicode_AsUTF8AndSize(text, &value->n)))
        return failed(program);
    return DONE;
}

static int by_text(const Column *column, Value *value, const char *at, Py_ssize_t n) {
    switch (column->kind) {
    case INTEGER: return number(value, at, n, 0) && !memchr(at, '.', n);
    case DECIMAL: return number(value, at, n, column->scale);
    case UUID_: return uuid(value, at, n);
    case DATE: return date(value, at, n);
    case TIME: return time_of_day(value, at, n);
    case TIMESTAMP: return timestamp(value, at, n, 0);
    case ZONED: return timestamp(value, at, n, 1);
    default: return 0;
    }
}

/* What `raw` is, where its kind can be read without a function. */
static int read_here(const Program *program, const Column *column, Value *value, PyObject *raw, Did *did) {
    if (PyUnicode_CheckExact(raw)) {
        Py_ssize_t n;
        const char *at;
        /* A number that is a text is raw; of another driver it is for the column's own decoder. */
        if ((column->kind == INTEGER || column->kind == DECIMAL) && column->slow)
            return 0;
        if (!(at = PyUnicode_AsUTF8AndSize(raw, &n))) {
            *did = failed(program);
            return 0;
        }
        if (column->kind != STRING)
            return by_text(column, value, at, n);
        value->form = TEXT;
        value->text = at;
        value->n = value->bytes = n;
        return 1;
    }
    switch (column->kind) {
    case INTEGER: return PyLong_CheckExact(raw) && integer(value, raw);
    case DECIMAL: {
        if (PyLong_CheckExact(raw))
            return integer(value, raw);
        if (!column->slow || PyBool_Check(raw))
            return 0;
        PyObject *text = PyObject_Str(raw);
        Py_ssize_t n;
        const char *at = text ? PyUnicode_AsUTF8AndSize(text, &n) : NULL;
        int read = at && number(value, at, n, column->scale);
        if (!at)
            *did = failed(program);
        Py_XDECREF(text);
        return read;
    }
    case BOOLEAN:
        if (!PyBool_Check(raw))
            return 0;
        value->form = raw == Py_True ? YES : NO;
        value->bytes = 1;
        return 1;
    case BYTES:
        if (!PyBytes_CheckExact(raw))
            return 0;
        value->form = BINARY;
        value->json = PyBytes_AS_STRING(raw);
        value->json_n = value->bytes = PyBytes_GET_SIZE(raw);
        return 1;
    case DATE:
        if (!PyDate_CheckExact(raw))
            return 0;
        write_date(value->room, raw);
        is_text(value, PLAIN, 10);
        return 1;
    case TIMESTAMP: return PyDateTime_CheckExact(raw) && moment(value, raw);
    default: return 0;
    }
}

/* Every place is read, whether an item needs it or not: a row with a value that its column cannot have is refused. */
static Did read_value(const Program *program, const Column *column, Value *value, PyObject *raw) {
    Did did = DONE;
    value->form = ABSENT;
    value->text = NULL;
    value->own = 0;
    if (raw == Py_None || column->kind == LIST || column->kind == SKIPPED)
        return DONE;
    if (column->kind == OTHER)
        return by_function(program, column, value, raw);
    if (read_here(program, column, value, raw, &did)) {
        value->own = 1;
        return DONE;
    }
    return did == DONE ? by_function(program, column, value, raw) : did;
}

/* The values that functions ask for, at their places, None elsewhere. */
static Did decoded(Tuple *tuple) {
    Program *program = tuple->program;
    if (tuple->decoded)
        return DONE;
    PyObject *made = PyTuple_New(program->width);
    if (!made)
        return RAISED;
    for (Py_ssize_t i = 0; i < program->width; i++) {
        PyObject *decode = program->columns[i].decode;
        PyObject *value = decode ? PyObject_CallOneArg(decode, tuple->raw[i]) : Py_NewRef(Py_None);
        if (!value) {
            Py_DECREF(made);
            return failed(program);
        }
        PyTuple_SET_ITEM(made, i, value);
    }
    tuple->decoded = made;
    return DONE;
}

static void close_tuple(Tuple *tuple) {
    for (Py_ssize_t i = 0; i < tuple->program->width; i++)
        Py_CLEAR(tuple->values[i].kept);
    Py_CLEAR(tuple->decoded);
    Py_CLEAR(tuple->key);
    Py_CLEAR(tuple->source);
    Py_CLEAR(tuple->expiry);
}

static Did open_tuple(Tuple *tuple) {
    Program *program = tuple->program;
    for (Py_ssize_t i = 0; i < program->width; i++) {
        Did did = read_value(program, &program->columns[i], &tuple->values[i], tuple->raw[i]);
        if (did != DONE)
            return did;
    }
    return program->any_decoded ? decoded(tuple) : DONE;
}

/* ── operations: each appends an attribute and adds its bytes ── */

static Did value_op(Tuple *tuple, const Op *op, const Value *value) {
    Text *out = tuple->out;
    if (value->form == ABSENT)
        return NOTHING;
    int put_all = put(out, op->name, op->name_n);
    switch (value->form) {
    case TEXT:
        put_all = put_all && PUT(out, "{\"S\":\"") && put_escaped(out, value->text, value->n) && PUT(out, "\"}");
        break;
    case PLAIN:
        put_all = put_all && PUT(out, "{\"S\":\"") && put(out, value->text, value->n) && PUT(out, "\"}");
        break;
    case NUMBER:
        put_all = put_all && PUT(out, "{\"N\":\"") && put(out, value->text, value->n) && PUT(out, "\"}");
        break;
    case BINARY:
        put_all = put_all && PUT(out, "{\"B\":\"") && put_base64(out, value->json, value->json_n) && PUT(out, "\"}");
        break;
    case YES: put_all = put_all && PUT(out, "{\"BOOL\":true}"); break;
    case NO: put_all = put_all && PUT(out, "{\"BOOL\":false}"); break;
    default: put_all = put_all && put(out, value->json, value->json_n);
    }
    tuple->bytes += op->bytes + value->bytes;
    return put_all ? DONE : RAISED;
}

/* The text of the parts into `scratch`; NOTHING where one of them is NULL. */
static Did text_of(Tuple *tuple, const Op *op) {
    Text *text = tuple->scratch;
    text->n = 0;
    for (Py_ssize_t i = 0; i < op->count; i++)
        if (op->parts[i].place >= 0 && tuple->values[op->parts[i].place].form == ABSENT)
            return NOTHING;
    for (Py_ssize_t i = 0; i < op->count; i++) {
        const Part *part = &op->parts[i];
        if (part->place < 0) {
            if (!put(text, part->text, part->n))
                return RAISED;
            continue;
        }
        const Value *value = &tuple->values[part->place];
        if (!value->text || (part->width && (value->n > part->width || value->text[0] == '-')))
            return LEAVE;
        if ((part->width && !put_zeros(text, part->width - value->n)) || !put(text, value->text, value->n))
            return RAISED;
    }
    return DONE;
}

static Did put_text(Tuple *tuple, const Op *op) {
    Text *out = tuple->out, *text = tuple->scratch;
    tuple->bytes += op->bytes + text->n;
    return put(out, op->name, op->name_n) && PUT(out, "{\"S\":\"") && put_escaped(out, text->at, text->n) &&
           PUT(out, "\"}") ? DONE : RAISED;
}

static Did template_op(Tuple *tuple, const Op *op) {
    Did did = text_of(tuple, op);
    return did == DONE ? put_text(tuple, op) : did;
}

/* `key`: what the base key is of so far, with one more value, whose reference is taken. */
static Did add_key(Tuple *tuple, PyObject *value) {
    if (!value)
        return RAISED;
    Py_ssize_t n = tuple->key ? PyTuple_GET_SIZE(tuple->key) : 0;
    PyObject *longer = PyTuple_New(n + 1);
    if (!longer) {
        Py_DECREF(value);
        return RAISED;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        PyTuple_SET_ITEM(longer, i, Py_NewRef(PyTuple_GET_ITEM(tuple->key, i)));
    PyTuple_SET_ITEM(longer, n, value);
    Py_XSETREF(tuple->key, longer);
    return DONE;
}

static Did key_op(Tuple *tuple, const Op *op) {
    Did did = text_of(tuple, op);
    if (did == NOTHING)
        return op->is_base ? LEAVE : NOTHING;
    if (did != DONE)
        return did;
    Text *text = tuple->scratch;
    if (text->n < 1 || text->n > op->limit)
        return LEAVE;
    if (op->is_base && (did = add_key(tuple, PyUnicode_DecodeUTF8(text->at, text->n, NULL))) != DONE)
        return did;
    return put_text(tuple, op);
}

/* What a function of the decoded row gives: (the value, its JSON, its bytes), or None. A limit holds for a key. */
static Did call_op(Tuple *tuple, const Op *op) {
    Did did = decoded(tuple);
    if (did != DONE)
        return did;
    PyObject *made = PyObject_CallOneArg(op->function, tuple->decoded), *value, *json;
    Py_ssize_t bytes;
    if (!made)
        return failed(tuple->program);
    if (made == Py_None)
        did = op->is_base ? LEAVE : NOTHING;
    else if (!PyArg_ParseTuple(made, "OO!n", &value, &PyBytes_Type, &json, &bytes))
        did = RAISED;
    else if (op->limit && (bytes < 1 || bytes > op->limit))
        did = LEAVE;
    else {
        if (op->is_base)
            did = add_key(tuple, Py_NewRef(value));
        if (op->code == EXPIRY)
            Py_XSETREF(tuple->expiry, Py_NewRef(value));
        tuple->bytes += op->bytes + bytes;
        if (did == DONE && !(put(tuple->out, op->name, op->name_n) &&
                             put(tuple->out, PyBytes_AS_STRING(json), PyBytes_GET_SIZE(json))))
            did = RAISED;
    }
    Py_DECREF(made);
    return did;
}

static Did holds(Tuple *tuple, PyObject *function) {
    Did did = decoded(tuple);
    if (did != DONE)
        return did;
    PyObject *made = PyObject_CallOneArg(function, tuple->decoded);
    if (!made)
        return failed(tuple->program);
    int true_ = PyObject_IsTrue(made);
    Py_DECREF(made);
    return true_ < 0 ? failed(tuple->program) : true_ ? DONE : NOTHING;
}

static Did run(Tuple *tuple, const Op *op);

/* A child's map: every attribute that is there counts a byte, and the map three. */
static Did child_map(Tuple *child) {
    Program *program = child->program;
    Did did = open_tuple(child);
    if (did != DONE)
        return did;
    if (!PUT(child->out, "{\"M\":"))
        return RAISED;
    Py_ssize_t begin = child->out->n;
    for (Py_ssize_t i = 0; i < program->items[0].n; i++) {
        did = run(child, &program->items[0].ops[i]);
        if (did > NOTHING)
            return did;
        child->bytes += did == DONE;
    }
    if (child->out->n == begin && !PUT(child->out, "{"))
        return RAISED;
    child->out->at[begin] = '{';
    child->bytes += 3;
    return PUT(child->out, "}}") ? DONE : RAISED;
}

static Did each_child(Tuple *tuple, const Op *op, PyObject *raw, Value *values) {
    Tuple child = {.program = op->child, .out = tuple->out, .values = values, .scratch = tuple->scratch};
    PyObject *sequence = PySequence_Fast(raw, "a child is a row");
    if (!sequence)
        return failed(tuple->program);
    Did did = LEAVE;
    memset(values, 0, sizeof(Value) * (size_t)child.program->width);
    if (PySequence_Fast_GET_SIZE(sequence) == child.program->width) {
        child.raw = PySequence_Fast_ITEMS(sequence);
        did = child_map(&child);
        tuple->bytes += child.bytes + 1;
    }
    close_tuple(&child);
    Py_DECREF(sequence);
    return did;
}

static Did each_op(Tuple *tuple, const Op *op) {
    PyObject *children = PySequence_Fast(tuple->raw[op->place], "a list holds rows");
    if (!children)
        return failed(tuple->program);
    Py_ssize_t n = PySequence_Fast_GET_SIZE(children);
    Did did = op->limit >= 0 && n > op->limit ? LEAVE : DONE;
    Value *values = did == DONE ? PyMem_Calloc((size_t)op->child->width + 1, sizeof(Value)) : NULL;
    if (did == DONE && !(values && put(tuple->out, op->name, op->name_n) && PUT(tuple->out, "{\"L\":[")))
        did = RAISED;
    if (op->count >= 0 && n > op->count)
        n = op->count;
    for (Py_ssize_t i = 0; did == DONE && i < n; i++)
        did = i && !PUT(tuple->out, ",") ? RAISED
              : each_child(tuple, op, PySequence_Fast_GET_ITEM(children, i), values);
    tuple->bytes += op->bytes + 3;
    if (did == DONE && !PUT(tuple->out, "]}"))
        did = RAISED;
    if (did == RAISED && !PyErr_Occurred())
        PyErr_NoMemory();
    PyMem_Free(values);
    Py_DECREF(children);
    return did;
}

static Did source_op(Tuple *tuple, const Op *op) {
    Text *text = tuple->scratch;
    Py_ssize_t n;
    const char *at = PyUnicode_AsUTF8AndSize(tuple->source, &n);
    if (!at)
        return failed(tuple->program);
    text->n = 0;
    return put(text, at, n) ? put_text(tuple, op) : RAISED;
}

static Did run(Tuple *tuple, const Op *op) {
    switch (op->code) {
    case LITERAL:
        tuple->bytes += op->bytes;
        return put(tuple->out, op->name, op->name_n) ? DONE : RAISED;
    case COLUMN: return value_op(tuple, op, &tuple->values[op->place]);
    case TEMPLATE: return template_op(tuple, op);
    case KEY: return key_op(tuple, op);
    case EACH: return each_op(tuple, op);
    case SOURCE: return source_op(tuple, op);
    default: return call_op(tuple, op);
    }
}

/* ── items ── */

typedef struct { Py_ssize_t rank, begin, end; } Segment;

/* The parts of an item, each where its attribute begins and ends; `n` of them. */
typedef struct { Segment *at; Py_ssize_t n, room; } Segments;

static int add_segment(Segments *segments, Py_ssize_t rank, Py_ssize_t begin, Py_ssize_t end) {
    if (segments->n == segments->room) {
        Py_ssize_t room = segments->room * 2 + 32;
        Segment *at = PyMem_Realloc(segments->at, sizeof(Segment) * (size_t)room);
        if (!at) {
            PyErr_NoMemory();
            return 0;
        }
        segments->at = at;
        segments->room = room;
    }
    segments->at[segments->n++] = (Segment){rank, begin, end};
    return 1;
}

/* An index entry: all of its key attributes, or none where one is NULL or a condition does not hold. */
static Did entry_op(Tuple *tuple, const Op *op, Segments *segments) {
    Py_ssize_t begin = tuple->out->n, bytes = tuple->bytes, n = segments->n;
    Did did = op->function ? holds(tuple, op->function) : DONE;
    for (Py_ssize_t i = 1; did == DONE && i <= op->count; i++) {
        Py_ssize_t from = tuple->out->n;
        did = run(tuple, op + i);
        if (did == DONE && !add_segment(segments, op[i].rank, from, tuple->out->n))
            did = RAISED;
    }
    if (did == NOTHING) {
        tuple->out->n = begin;
        tuple->bytes = bytes;
        segments->n = n;
        return DONE;
    }
    return did;
}

static Did attributes(Tuple *tuple, const Item *item, Segments *segments) {
    segments->n = 0;
    for (Py_ssize_t i = 0; i < item->n; i++) {
        const Op *op = &item->ops[i];
        Py_ssize_t begin = tuple->out->n;
        Did did;
        if (op->code == ENTRY) {
            did = entry_op(tuple, op, segments);
            i += op->count;
        } else {
            did = run(tuple, op);
            if (did == DONE && !add_segment(segments, op->rank, begin, tuple->out->n))
                return RAISED;
        }
        if (did > NOTHING)
            return did;
    }
    return DONE;
}

/* What is asked for: whole items, with the JSON that ends each, or their texts in order. */
typedef struct { PyObject *ticket, *items; const char *end; Py_ssize_t end_n, end_bytes; int ordered; } Wanted;

static Did append(PyObject *items, PyObject *made) {
    if (!made)
        return RAISED;
    int failed_ = PyList_Append(items, made);
    Py_DECREF(made);
    return failed_ ? RAISED : DONE;
}

static Did whole_item(Tuple *tuple, const Item *item, const Wanted *wanted) {
    PyTypeObject *type = (PyTypeObject *)tuple->program->row_type;
    if (!put(tuple->out, wanted->end, wanted->end_n))
        return RAISED;
    tuple->out->at[0] = '{';
    PyObject *data = PyBytes_FromStringAndSize(tuple->out->at, tuple->out->n);
    PyObject *size = PyLong_FromSsize_t(tuple->bytes);
    PyObject *made = data && size && tuple->key ? type->tp_alloc(type, 7) : NULL;
    if (!made) {
        Py_XDECREF(data);
        Py_XDECREF(size);
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return RAISED;
    }
    PyTuple_SET_ITEM(made, 0, Py_NewRef(tuple->key));
    PyTuple_SET_ITEM(made, 1, data);
    PyTuple_SET_ITEM(made, 2, size);
    PyTuple_SET_ITEM(made, 3, Py_NewRef(tuple->expiry ? tuple->expiry : Py_None));
    PyTuple_SET_ITEM(made, 4, Py_NewRef(item->type));
    PyTuple_SET_ITEM(made, 5, Py_NewRef(tuple->source));
    PyTuple_SET_ITEM(made, 6, Py_NewRef(wanted->ticket));
    return append(wanted->items, made);
}

/* The text without the braces and the quotation mark around it: `name":{"S":"x"},"other":{"N":"1"`. */
static Did ordered_text(Tuple *tuple, const Wanted *wanted, Segments *segments) {
    Segment *at = segments->at;
    for (Py_ssize_t i = 1; i < segments->n; i++) {
        Segment one = at[i];
        Py_ssize_t to = i;
        for (; to && at[to - 1].rank > one.rank; to--)
            at[to] = at[to - 1];
        at[to] = one;
    }
    PyObject *data = PyBytes_FromStringAndSize(NULL, tuple->out->n);
    if (!data)
        return RAISED;
    char *to = PyBytes_AS_STRING(data);
    for (Py_ssize_t i = 0; i < segments->n; i++) {
        memcpy(to, tuple->out->at + at[i].begin, at[i].end - at[i].begin);
        to += at[i].end - at[i].begin;
    }
    PyObject *expiry = tuple->expiry ? tuple->expiry : Py_None;
    PyObject *cut = PySequence_GetSlice(data, 2, tuple->out->n - 1);
    Py_DECREF(data);
    return cut ? append(wanted->items, Py_BuildValue("NO", cut, expiry)) : RAISED;
}

static Did make_item(Tuple *tuple, const Item *item, const Wanted *wanted, Segments *segments) {
    Did did = item->when ? holds(tuple, item->when) : DONE;
    if (did != DONE)
        return did == NOTHING ? DONE : did;
    tuple->out->n = tuple->bytes = 0;
    Py_CLEAR(tuple->key);
    Py_CLEAR(tuple->expiry);
    if ((did = attributes(tuple, item, segments)) != DONE)
        return did;
    tuple->bytes += wanted->end_bytes;
    if (tuple->bytes > tuple->program->most_bytes)
        return LEAVE;
    return wanted->ordered ? ordered_text(tuple, wanted, segments) : whole_item(tuple, item, wanted);
}

/* Sets what `_src` holds: the entity's name and the row's key, as it was read. */
static Did set_source(Tuple *tuple) {
    Program *program = tuple->program;
    Text *text = tuple->scratch;
    text->n = 0;
    if (!put(text, program->before, program->before_n))
        return RAISED;
    if (program->key_place >= 0) {
        const Value *key = &tuple->values[program->key_place];
        if (!key->own)
            return LEAVE;
        if (!PUT(text, "[") || !put(text, key->text, key->n) || !PUT(text, "]"))
            return RAISED;
    } else {
        Py_ssize_t n = PyTuple_GET_SIZE(program->key_places);
        PyObject *values = PyList_New(n), *key = NULL;
        for (Py_ssize_t i = 0; values && i < n; i++) {
            Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(program->key_places, i));
            PyList_SET_ITEM(values, i, Py_NewRef(tuple->raw[place]));
        }
        if (values)
            key = PyObject_CallOneArg(program->encode_key, values);
        Py_XDECREF(values);
        if (!key)
            return failed(program);
        Py_ssize_t bytes;
        const char *at = PyUnicode_AsUTF8AndSize(key, &bytes);
        int put_it = at && put(text, at, bytes);
        Py_DECREF(key);
        if (!put_it)
            return at ? RAISED : failed(program);
    }
    tuple->source = PyUnicode_DecodeUTF8(text->at, text->n, NULL);
    return tuple->source ? DONE : failed(program);
}

static Did make_row(Tuple *tuple, PyObject *row, const Wanted *wanted, Segments *segments) {
    Program *program = tuple->program;
    PyObject *sequence = PySequence_Fast(row, "a row is a sequence");
    if (!sequence)
        return failed(program);
    Did did = LEAVE;
    if (PySequence_Fast_GET_SIZE(sequence) == program->width) {
        tuple->raw = PySequence_Fast_ITEMS(sequence);
        did = open_tuple(tuple);
        if (did == DONE)
            did = set_source(tuple);
        for (Py_ssize_t i = 0; did == DONE && i < program->n; i++)
            did = make_item(tuple, &program->items[i], wanted, segments);
    }
    close_tuple(tuple);
    Py_DECREF(sequence);
    return did;
}

static PyObject *make(Program *program, PyObject *rows, const Wanted *wanted, PyObject *left) {
    Text out = {0}, scratch = {0};
    Segments segments = {0};
    PyObject *sequence = PySequence_Fast(rows, "rows are a sequence"), *result = NULL;
    Tuple tuple = {.program = program, .out = &out, .scratch = &scratch};
    tuple.values = PyMem_Calloc((size_t)program->width + 1, sizeof(Value));
    if (!tuple.values)
        PyErr_NoMemory();
    int fine = sequence && tuple.values;
    for (Py_ssize_t i = 0; fine && i < PySequence_Fast_GET_SIZE(sequence); i++) {
        PyObject *row = Py_NewRef(PySequence_Fast_GET_ITEM(sequence, i));
        Py_ssize_t before = PyList_GET_SIZE(wanted->items);
        Did did = make_row(&tuple, row, wanted, &segments);
        if (did == LEAVE) {
            PyObject *none = NULL;
            if (!PyList_SetSlice(wanted->items, before, PyList_GET_SIZE(wanted->items), NULL))
                none = PyObject_CallOneArg(left, row);
            fine = none != NULL;
            Py_XDECREF(none);
        } else
            fine = did != RAISED;
        Py_DECREF(row);
    }
    if (fine)
        result = Py_NewRef(Py_None);
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    PyMem_Free(tuple.values);
    PyMem_Free(out.at);
    PyMem_Free(scratch.at);
    PyMem_Free(segments.at);
    Py_XDECREF(sequence);
    return result;
}

static PyObject *encode(Program *program, PyObject *args) {
    PyObject *rows, *left, *end;
    Wanted wanted = {0};
    if (!PyArg_ParseTuple(args, "OO!O!nO!O", &rows, &PyLong_Type, &wanted.ticket, &PyBytes_Type, &end,
                          &wanted.end_bytes, &PyList_Type, &wanted.items, &left))
        return NULL;
    wanted.end = PyBytes_AS_STRING(end);
    wanted.end_n = PyBytes_GET_SIZE(end);
    return make(program, rows, &wanted, left);
}

static PyObject *texts(Program *program, PyObject *args) {
    PyObject *rows, *left;
    Wanted wanted = {.ordered = 1};
    if (!PyArg_ParseTuple(args, "OO!O", &rows, &PyList_Type, &wanted.items, &left))
        return NULL;
    return make(program, rows, &wanted, left);
}

/* ── a program as it is given: tuples of names, places, bytes and functions, checked once ── */

static int number_of(PyObject *names, const char *name) {
    PyObject *wanted = PyUnicode_FromString(name);
    Py_ssize_t found = wanted ? PySequence_Index(names, wanted) : -1;
    Py_XDECREF(wanted);
    return (int)found;
}

static PyObject *kinds, *codes;
static PyTypeObject ProgramType;

static PyObject *function_of(PyObject *given) { return given == Py_None ? NULL : given; }

static int fits(const Program *program, Py_ssize_t place) {
    if (place >= 0 && place < program->width)
        return 1;
    PyErr_Format(PyExc_ValueError, "place %zd of a row of %zd", place, program->width);
    return 0;
}

static int set_parts(Program *program, Op *op, PyObject *parts) {
    op->count = PyTuple_GET_SIZE(parts);
    op->parts = PyMem_Calloc((size_t)op->count + 1, sizeof(Part));
    if (!op->parts) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < op->count; i++) {
        Part *part = &op->parts[i];
        PyObject *given = PyTuple_GET_ITEM(parts, i);
        part->place = -1;
        if (PyBytes_Check(given)) {
            part->text = PyBytes_AS_STRING(given);
            part->n = PyBytes_GET_SIZE(given);
        } else if (!PyArg_ParseTuple(given, "nn", &part->place, &part->width) || !fits(program, part->place))
            return 0;
    }
    return 1;
}

/* (code, name, bytes, rank, …): what follows depends on the code. */
static int set_op(Program *program, Op *op, PyObject *given) {
    const char *code;
    PyObject *more, *parts = NULL, *function = Py_None, *child = NULL;
    if (!PyArg_ParseTuple(given, "sy#nnO!", &code, &op->name, &op->name_n, &op->bytes, &op->rank, &PyTuple_Type, &more))
        return 0;
    int found = number_of(codes, code);
    if (found < 0)
        return 0;
    op->code = (Code)found;
    switch (op->code) {
    case LITERAL:
    case SOURCE: return 1;
    case COLUMN: return PyArg_ParseTuple(more, "n", &op->place) && fits(program, op->place);
    case TEMPLATE: return PyArg_ParseTuple(more, "O!", &PyTuple_Type, &parts) && set_parts(program, op, parts);
    case KEY:
        return PyArg_ParseTuple(more, "O!np", &PyTuple_Type, &parts, &op->limit, &op->is_base) &&
               set_parts(program, op, parts);
    case KEY_CALL: return PyArg_ParseTuple(more, "Onp", &op->function, &op->limit, &op->is_base);
    case CALL:
    case EXPIRY: return PyArg_ParseTuple(more, "O", &op->function);
    case ENTRY:
        if (!PyArg_ParseTuple(more, "On", &function, &op->count))
            return 0;
        op->function = function_of(function);
        return 1;
    case EACH:
        if (!PyArg_ParseTuple(more, "nO!nn", &op->place, &ProgramType, &child, &op->limit, &op->count))
            return 0;
        op->child = (Program *)child;
        if (op->child->n == 1)
            return fits(program, op->place);
    }
    PyErr_SetString(PyExc_ValueError, "a child has one list of operations");
    return 0;
}

static int set_item(Program *program, Item *item, PyObject *given) {
    PyObject *when, *ops;
    if (!PyArg_ParseTuple(given, "OOO!", &item->type, &when, &PyTuple_Type, &ops))
        return 0;
    item->when = function_of(when);
    item->ops = PyMem_Calloc((size_t)PyTuple_GET_SIZE(ops) + 1, sizeof(Op));
    if (!item->ops) {
        PyErr_NoMemory();
        return 0;
    }
    item->n = PyTuple_GET_SIZE(ops);
    for (Py_ssize_t i = 0; i < item->n; i++)
        if (!set_op(program, &item->ops[i], PyTuple_GET_ITEM(ops, i)))
            return 0;
    for (Py_ssize_t i = 0; i < item->n; i++)
        if (item->ops[i].code == ENTRY && (item->ops[i].count < 0 || i + item->ops[i].count >= item->n)) {
            PyErr_SetString(PyExc_ValueError, "an entry ends before its keys");
            return 0;
        }
    return 1;
}

static int set_columns(Program *program, PyObject *columns) {
    program->width = PyTuple_GET_SIZE(columns);
    program->columns = PyMem_Calloc((size_t)program->width + 1, sizeof(Column));
    if (!program->columns) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < program->width; i++) {
        Column *column = &program->columns[i];
        const char *kind;
        PyObject *slow, *decode;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(columns, i), "snOO", &kind, &column->scale, &slow, &decode))
            return 0;
        int found = number_of(kinds, kind);
        if (found < 0)
            return 0;
        column->kind = (Kind)found;
        column->slow = function_of(slow);
        column->decode = function_of(decode);
        program->any_decoded |= column->decode != NULL;
    }
    return 1;
}

static void free_program(Program *program) {
    for (Py_ssize_t i = 0; program->items && i < program->n; i++) {
        for (Py_ssize_t k = 0; program->items[i].ops && k < program->items[i].n; k++)
            PyMem_Free(program->items[i].ops[k].parts);
        PyMem_Free(program->items[i].ops);
    }
    PyMem_Free(program->items);
    PyMem_Free(program->columns);
    Py_XDECREF(program->kept);
    Py_TYPE(program)->tp_free((PyObject *)program);
}

/* Program(columns, (before, key place, key places, encode_key), items, row_type, leaving, most_bytes) */
static PyObject *new_program(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(words)) {
    PyObject *columns, *items;
    Program *program = (Program *)type->tp_alloc(type, 0);
    if (!program)
        return NULL;
    program->kept = Py_NewRef(args);
    if (!PyArg_ParseTuple(args, "O!(y#nO!O)O!OOn", &PyTuple_Type, &columns, &program->before, &program->before_n,
                          &program->key_place, &PyTuple_Type, &program->key_places, &program->encode_key,
                          &PyTuple_Type, &items, &program->row_type, &program->leaving, &program->most_bytes) ||
        !set_columns(program, columns))
        goto refused;
    program->items = PyMem_Calloc((size_t)PyTuple_GET_SIZE(items) + 1, sizeof(Item));
    if (!program->items) {
        PyErr_NoMemory();
        goto refused;
    }
    program->n = PyTuple_GET_SIZE(items);
    for (Py_ssize_t i = 0; i < program->n; i++)
        if (!set_item(program, &program->items[i], PyTuple_GET_ITEM(items, i)))
            goto refused;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(program->key_places); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(program->key_places, i));
        if (PyErr_Occurred() || !fits(program, place))
            goto refused;
    }
    if (program->key_place >= 0 && !fits(program, program->key_place))
        goto refused;
    if (!PyType_Check(program->row_type) || !PyType_IsSubtype((PyTypeObject *)program->row_type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "items are made of a type of tuples");
        goto refused;
    }
    return (PyObject *)program;
refused:
    Py_DECREF(program);
    return NULL;
}

static PyMethodDef methods[] = {
    {"encode", (PyCFunction)encode, METH_VARARGS,
     "encode(rows, ticket, end, end_bytes, items, left): appends the rows' items; `left` takes a row that is left."},
    {"texts", (PyCFunction)texts, METH_VARARGS, "texts(rows, items, left): the same as (text, expiry)."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject ProgramType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "migrator.mapping.items._native.Program",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "An item program that can be run: see migrator/mapping/items/program.py.",
    .tp_new = new_program,
    .tp_dealloc = (destructor)free_program,
    .tp_methods = methods,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", "The native executor of item programs.", -1, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyDateTime_IMPORT;
    if (!PyDateTimeAPI || PyType_Ready(&ProgramType) < 0)
        return NULL;
    kinds = Py_BuildValue("(sssssssssssss)", "integer", "number", "text", "uuid", "boolean", "date", "time", "timestamp",
                          "zoned", "binary", "other", "list", "skipped");
    codes = Py_BuildValue("(ssssssssss)", "literal", "column", "template", "call", "each", "key", "key_call", "entry",
                          "source", "expiry");
    PyObject *made = kinds && codes ? PyModule_Create(&module) : NULL;
    if (made && PyModule_AddObjectRef(made, "Program", (PyObject *)&ProgramType) < 0)
        Py_CLEAR(made);
    return made;
}
