"""Answers of HTTP as a socket gives them, in pieces of any size."""

from __future__ import annotations

import random
import weakref

import pytest

from migrator.dynamodb import answers
from migrator.dynamodb.answers import BrokenFrameError, Frame

OK = b"HTTP/1.1 200 OK\r\n"
BODY = b'{"a":"\r\n\r\n0\r\n\r\nHTTP/1.1 500 \xc3\xa9"}'
SIZED = OK + b"Content-Length: %d\r\nx-amzn-RequestId: A\r\n\r\n" % len(BODY) + BODY
CHUNKS = b"5;ext=1\r\n" + BODY[:5] + b"\r\n%X\r\n" % (len(BODY) - 5) + BODY[5:] + b"\r\n0\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS


class Pieces:
    """A socket that has received so many bytes at a time, and was then closed by the other side."""

    def __init__(self, received: bytes, sizes: list[int]) -> None:
        self.received, self.sizes = received, sizes

    def recv(self, at_most: int) -> bytes:
        size = min(self.sizes.pop() if self.sizes else at_most, at_most)
        taken, self.received = self.received[:size], self.received[size:]
        return taken


def whole(received: bytes) -> tuple[int, bytes, bool]:
    answer = answers.received(Pieces(received, []))
    return answer.status, answer.body, answer.ends


@pytest.mark.parametrize(
    ("received", "ends"),
    [
        (SIZED, False),
        (CHUNKED + b"\r\n", False),
        (CHUNKED + b"x-amz-trailer: a\r\nother: b\r\n\r\n", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED, False),
        (b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" * 2 + SIZED, False),
        (SIZED.replace(b"Content-Length", b"content-LENGTH"), False),
        (SIZED.replace(b"x-amzn", b"a: " + b"a" * 60_000 + b"\r\nx-amzn"), False),
        (SIZED.replace(b"200 OK", b"200"), False),
        (SIZED.replace(b"x-amzn", b"Connection: keep-alive, Close\r\nx-amzn"), True),
        (SIZED.replace(b"1.1", b"1.0", 1), True),
        (OK + b"\r\n" + BODY, True),
    ],
)
def test_answer_is_the_same_in_any_pieces(received: bytes, ends: bool) -> None:
    assert whole(received) == (200, BODY, ends)
    chance = random.Random(7)
    cuts = [1, 2, 3, 7, 19, 20_000]
    for _ in range(50):
        sizes = [chance.choice(cuts) for _ in range(200)]
        answer = answers.received(Pieces(received, sizes))
        assert (answer.status, answer.body, answer.ends) == (200, BODY, ends)


def test_header_names_are_lower_case() -> None:
    assert answers.received(Pieces(SIZED, [])).headers["x-amzn-requestid"] == "A"


def test_an_answer_without_a_body_ends_with_its_head() -> None:
    assert whole(b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n") == (204, b"", False)
    assert whole(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") == (400, b"", False)


@pytest.mark.parametrize("received", [SIZED, CHUNKED + b"\r\n"])
def test_connection_with_more_than_the_answer_ends(received: bytes) -> None:
    assert whole(received + SIZED) == (200, BODY, True)


@pytest.mark.parametrize("received", [SIZED, CHUNKED + b"\r\n"])
def test_an_answer_that_is_cut_off_anywhere_is_none(received: bytes) -> None:
    for length in range(len(received)):
        with pytest.raises(BrokenFrameError):
            whole(received[:length])


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: 5\r\nContent-Length: 5",
        b"Content-Length: 5, 5",
        b"Content-Length: -5",
        b"Content-Length: +5",
        b"Content-Length: 0x5",
        b"Content-Length: \xb2",
        b"Content-Length: " + b"5" * 5000,
        b"Content-Length:",
        b"Content-Length : 5",
        b"Content-Length: 5\r\n folded",
        b"Content-Length: 5\r\nno colon",
        b"Content-Length: 5\nx: y",
        b"Content-Length: 5\r\nx: \0",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"x: " + b"a" * 200_000,
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(head: bytes) -> None:
    with pytest.raises(BrokenFrameError):
        whole(OK + head + b"\r\n\r\n" + b"5\r\nabcde\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "line", [b"", b"HTTP/2 200 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1  200 OK", b"200 OK", b"SSH-2.0-OpenSSH"]
)
def test_a_status_line_of_another_protocol_is_refused(line: bytes) -> None:
    with pytest.raises(BrokenFrameError):
        whole(line + b"\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    "chunks",
    [
        b"-5\r\nab",
        b"5\r\nabcdef\r\n0\r\n\r\n",
        b"5\r\nabcdeXX0\r\n\r\n",
        b"g\r\n",
        b"5 \r\nabcde\r\n0\r\n\r\n",
        b"\r\n0\r\n\r\n",
        b"_1\r\n",
    ],
)
def test_a_chunk_of_no_size_or_another_is_refused(chunks: bytes) -> None:
    with pytest.raises(BrokenFrameError):
        whole(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
    with pytest.raises(BrokenFrameError):
        whole(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"\r\n")


def test_an_answer_is_gone_with_its_frame() -> None:
    """Without a collection of garbage: a scan's answers have megabytes."""
    frame = Frame()
    answer = frame.add(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    left, frame = weakref.ref(frame), None  # type: ignore[assignment]
    assert answer is not None
    assert left() is None
