"""The line before the writer: nothing is lost or done twice, single writes wait for one large turn at most."""

import queue
import random
from typing import Any

import pytest

from fhir_service.interface.outcomes import UNAVAILABLE, FhirError
from fhir_service.writing import line
from fhir_service.writing.line import LARGE, TURN, WaitingEntries, Work, WriterFunction, WriterQueue


class _Entry:
    """An entry of a size."""

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def ask(self, needs: Any) -> None: ...

    def act(self, desk: Any) -> Any: ...


def request(entries: int = 1, whole: bool = False) -> WaitingEntries:
    return WaitingEntries([_Entry()] * entries, whole)


def change(resources: bool = False) -> WriterFunction:
    return WriterFunction(lambda _: None, resources)


def waiting(*works: Work) -> WriterQueue:
    made = WriterQueue()
    for work in works:
        made.put(work)
    return made


def turns(found: WriterQueue) -> list[list[Work]]:
    """All turns until nothing waits."""
    done = []
    while len(found):
        done.append(found.turn())
        found.took(done[-1], 0.001)
    return done


def test_single_writes_that_wait_are_written_together_and_before_the_next_large_one() -> None:
    large, more, singles = request(500), request(500), [request() for _ in range(5)]
    found = waiting(large)
    assert found.turn() == [large]
    for work in (more, *singles):
        found.put(work)
    found.took([large], TURN)
    assert found.turn() == singles
    found.took(singles, 0.001)
    assert found.turn() == [more]


def test_single_writes_that_go_on_coming_let_each_large_one_have_its_turn() -> None:
    larges = [request(500) for _ in range(3)]
    found = waiting(*larges)
    order = []
    for _ in range(6):
        found.put(request())
        works = found.turn()
        order.append(len(works[0].entries) if isinstance(works[0], WaitingEntries) else 0)
        found.took(works, TURN)
    assert order == [500, 1, 500, 1, 500, 1]


class _Seen(queue.SimpleQueue[Work | None]):
    """A queue that looks empty once: what is put on it came while a thread that waits was woken."""

    looked = False

    def qsize(self) -> int:
        seen, self.looked = super().qsize() if self.looked else 0, True
        return seen


def test_requests_that_arrive_while_the_writer_wakes_are_in_its_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "SimpleQueue", _Seen)
    larges = [request(300), request(300), request(300)]
    assert waiting(*larges).turn() == larges


def end(found: WriterQueue, works: list[Work], milliseconds: float) -> None:
    """A turn in which each entry was stored, in so much time each."""
    entries = 0
    for work in works:
        assert isinstance(work, WaitingEntries)
        work.future.set_result([None] * len(work.entries))
        entries += len(work.entries)
    found.took(works, milliseconds / 1000 * entries)


def beside_single_writes(*works: Work) -> WriterQueue:
    """Return a line of waiting requests after a recent single write."""
    found = waiting(single := request())
    assert found.turn() == [single]
    for work in works:
        found.put(work)
    return found


@pytest.mark.parametrize(("milliseconds", "together"), [(0.02, 2), (0.1, 2), (0.15, 1), (5, 1)])
def test_a_large_turn_ends_by_the_time_that_entries_take(milliseconds: float, together: int) -> None:
    found = beside_single_writes(*(request(500) for _ in range(9)))
    end(found, found.turn(), milliseconds)
    assert len(found.turn()) == together


@pytest.mark.parametrize(("milliseconds", "together"), [(0.1, 5), (0.15, 3), (0.4, 2), (0.6, 1), (5, 1)])
def test_a_large_turn_may_take_longer_while_no_single_writes_come(milliseconds: float, together: int) -> None:
    found = waiting(*(request(500) for _ in range(30)))
    end(found, found.turn(), milliseconds)
    assert len(found.turn()) == together
    found.put(single := request())
    assert found.turn() == [single]
    assert len(found.turn()) == max(1, int(TURN / milliseconds * 1000 / 500))


def test_a_sign_in_is_no_single_write_for_which_large_turns_are_short() -> None:
    found = waiting(sign_in := change())
    assert found.turn() == [sign_in]
    larges = [request(400) for _ in range(3)]
    for work in larges:
        found.put(work)
    assert found.turn() == larges


def test_turns_grow_slowly_where_entries_are_cheap() -> None:
    """One cheap turn does not let the next one take all that waits."""
    found = beside_single_writes(*(request(500) for _ in range(40)))
    sizes = []
    for _ in range(5):
        sizes.append(len(works := found.turn()))
        end(found, works, 0.02)
    assert sizes == [1, 2, 4, 8, 10]


def test_withdrawn_refused_and_failed_requests_do_not_change_the_pace() -> None:
    refusal = FhirError(UNAVAILABLE)
    found = beside_single_writes(*(request(500) for _ in range(9)))
    end(found, found.turn(), 0.15)
    withdrawn, refused, failed, each = request(500), request(500, whole=True), request(500), request(500)
    withdrawn.future.cancel()
    refused.future.set_result([None] * 100 + [refusal])
    failed.future.set_exception(refusal)
    each.future.set_result([refusal] * 500)
    for work in (withdrawn, refused, failed, each):
        found.took([work], 0.001)
    assert len(found.turn()) == 1


def test_a_transaction_and_a_function_have_a_turn_of_their_own() -> None:
    works: list[Work] = [request(), change(), request(), request(), request(2, whole=True), request()]
    assert turns(waiting(*works)) == [[works[0]], [works[1]], works[2:4], [works[4]], [works[5]]]


def test_all_functions_that_wait_have_their_turn_before_the_next_large_one() -> None:
    larges, changes = [request(500), request(500)], [change() for _ in range(4)]
    found = waiting(larges[0])
    found.turn()
    more: list[Work] = [larges[1], *changes]
    for work in more:
        found.put(work)
    assert turns(found) == [*([one] for one in changes), [larges[1]]]


def test_a_client_that_writes_repeatedly_is_waited_for_while_no_other_request_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line, "COMPANY", 0.001)
    two = [request(), request()]
    found = waiting(*two)
    found.took(found.turn(), 0.001)
    found.put(again := request())
    assert found.turn() == [again]
    with pytest.raises(queue.Empty):
        found.turn(patience=0.001)


@pytest.mark.parametrize("seed", range(50))
def test_each_request_has_one_turn_in_order_and_small_ones_wait_for_at_most_one_large_turn(seed: int) -> None:
    dice, found = random.Random(seed), WriterQueue()
    put: list[Work] = []
    done: list[Work] = []
    passed: dict[int, int] = {}

    def arrive(number: int) -> None:
        for _ in range(number):
            kinds: list[Work] = [
                request(),
                request(dice.randint(2, 700)),
                request(dice.randint(1, 700), whole=True),
                change(),
                change(True),
            ]
            put.append(work := dice.choice(kinds))
            passed[id(work)] = 0
            found.put(work)

    arrive(5)
    while len(found):
        works = found.turn()
        assert works
        assert len({work.large for work in works}) == 1
        assert len(works) == 1 or not any(work.alone for work in works)
        done += works
        finished = set(map(id, done))
        for work in put:
            if id(work) not in finished and not work.large:
                passed[id(work)] += works[0].large
        # A small one that came while the first of them was under way may see that one end, and one more.
        assert all(passed[id(work)] <= 1 for work in put if not work.large)
        arrive(dice.choice([0, 0, 1, 4]) if len(put) < 200 else 0)
        found.took(works, dice.random() / 10)
    assert sorted(map(id, done)) == sorted(map(id, put))
    for large in (False, True):
        assert [id(w) for w in done if w.large is large] == [id(w) for w in put if w.large is large]
    found.close()
    assert found.turn() == []


def test_a_request_of_few_large_bodies_is_large() -> None:
    assert not request(LARGE - 1).large
    assert request(LARGE).large
    assert WaitingEntries([_Entry(600 << 10)]).large
