"""The log on standard error: whoever does not read it holds nothing up."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from fhir_service.web.log_lines import LogLines

SAYS = "WARNING fhir_service.web.log_lines: 50 lines were left out, as nobody read them"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def say(lines: LogLines, *texts: str) -> None:
    for text in texts:
        lines.handle(logging.makeLogRecord({"msg": text}))


def read_until(reading: int, last: str) -> list[str]:
    text = b""
    while not text.endswith(f"{last}\n".encode()):
        text += os.read(reading, 1 << 16)
    return text.decode().splitlines()


def test_lines_are_written_in_order_and_the_last_ones_at_the_end(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = LogLines(writing)
    say(lines, "one", "two \udc80")
    lines.close()
    assert read_until(reading, "two \\udc80") == ["one", "two \\udc80"]


def test_no_line_is_lost_where_the_descriptor_does_not_wait(pipe: tuple[int, int]) -> None:
    """SCALE-01: another process that has it may have set it so."""
    reading, writing = pipe
    os.set_blocking(writing, False)
    lines = LogLines(writing)
    texts = [f"{number:0100}" for number in range(2000)]
    say(lines, *texts)
    assert read_until(reading, texts[-1]) == texts
    lines.close()


def test_a_log_reader_that_stops_delays_nothing_and_later_gets_the_count_of_lost_lines(pipe: tuple[int, int]) -> None:
    """SCALE-01: a full pipe stops no request."""
    reading, writing = pipe
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b"." * 4095 + b"\n"):
            pass
    os.set_blocking(writing, True)
    lines = LogLines(writing, most_waiting=100)
    say(lines, "first")
    while lines.waiting:  # the thread has it, and waits for the reader
        pass
    say(lines, *map(str, range(150)))
    read = [line for line in read_until(reading, SAYS) if not line.startswith("...")]
    assert read == ["first", *map(str, range(100)), SAYS]
    lines.close()


def test_a_reader_that_has_gone_is_no_fault() -> None:
    ends = os.pipe()
    os.close(ends[0])
    lines = LogLines(ends[1])
    say(lines, "unheard")
    lines.close()
    os.close(ends[1])
