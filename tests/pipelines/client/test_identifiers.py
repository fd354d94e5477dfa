"""The identifier that a record has at the target: one for each key and generation, and the way back."""

from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.client.identifiers import identifier_value, record_of
from tests.support.fake_target import FakeTarget, serving
from tests.support.work import Work, payment

KEYS = st.one_of(st.text("a~01 29", min_size=1, max_size=8), st.text(min_size=1))
GENERATIONS = st.integers(1, 999_999_999)


@given(KEYS, GENERATIONS)
@example("a", 2)
@example("a~2", 1)
@example("a~02", 1)
@example("a~1", 1)
@example("~1", 1)
@example("a~9999999999", 1)
@example("a~2\n", 1)
def test_no_two_records_share_an_identifier_since_it_leads_back_to_one(key, generation):
    """LEDGER-01, decision X2"""
    assert record_of(identifier_value(key, generation)) == (key, generation)


def test_the_identifier_ends_with_the_generation_from_the_second_one_on():
    """Decision X2"""
    assert [identifier_value("a", n) for n in (1, 2, 3)] == ["a", "a~2", "a~3"]
    assert [identifier_value("a~2", n) for n in (1, 2)] == ["a~2~1", "a~2~2"]


@given(KEYS)
def test_the_key_and_generation_read_from_any_identifier_give_that_identifier(value):
    key, generation = record_of(value)
    assert (key, generation) == (value, 1) or identifier_value(key, generation) == value


def test_a_key_that_looks_like_a_later_generation_of_another_is_a_record_of_its_own(tmp_path):
    """LEDGER-01, decision X2"""
    with serving(FakeTarget()) as target:
        work = Work(tmp_path, target)
        rows = [payment(1, key="a"), payment(2, key="a~2"), payment(3, key="a~2~1")]
        assert work.run(rows).counts == {"created": 3}
        values = [body["identifier"][0]["value"] for body in target.stored.values()]
        assert values == ["a", "a~2~1", "a~2~1~1"]
        work.close()
