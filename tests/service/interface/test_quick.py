"""Bodies read by structs: only what the models take, and the same values; and batches of plain creates."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fhir_service.interactions import batch, plain
from fhir_service.interface.fast.structs import StructReader, struct_of
from fhir_service.interface.json_text import Malformed, parse_json
from fhir_service.interface.outcomes import FhirError
from fhir_service.interface.registry import RESOURCES
from fhir_service.interface.resources.response_model import QuestionnaireResponse
from fhir_service.interface.scopes import Caller
from fhir_service.interface.shape import shape
from fhir_service.interface.site import Site

SITE = Site()


def refer(target: str, **more: str) -> dict[str, Any]:
    return {"reference": target} | more


def coded(code: str) -> dict[str, Any]:
    return {"valueCoding": {"system": "http://loinc.org", "code": code, "display": "Größe"}}


TASK: dict[str, Any] = {
    "resourceType": "Task",
    "identifier": [{"system": "urn:x", "value": "T 1"}],
    "extension": [{"url": SITE.task_group, "valueReference": refer("Group/g1", type="Group")}],
    "status": "requested",
    "intent": "unknown",
    "description": 'Call "her" back',
    "for": refer("Patient/p1", display="Ann"),
    "authoredOn": "2026-01-01T10:00:00.5+01:00",
    "requester": refer("Practitioner/d1"),
    "restriction": {"period": {"end": "2026-02-01"}},
    "note": [{"text": "One\ntwo", "time": "2026-01-01T10:00:00Z", "authorReference": refer("Practitioner/d1")}],
    "input": [{"type": {"text": "label"}, "valueString": "urgent"}],
}
PAYMENT: dict[str, Any] = {
    "resourceType": "PaymentNotice",
    "identifier": [{"system": "urn:x", "value": "P1"}],
    "extension": [
        {"url": SITE.copayment, "extension": [{"url": "claim", "valueReference": refer("Claim/c1", type="Claim")}]}
    ],
    "status": "active",
    "request": refer("Patient/p1"),
    "created": "2026-01-01",
    "payment": {},
    "recipient": {"display": "Unused"},
    "amount": {"value": 12.5, "currency": "USD"},
}
RESPONSE: dict[str, Any] = {
    "resourceType": "QuestionnaireResponse",
    "identifier": {"system": "urn:x", "value": "R1"},
    "extension": [{"url": SITE.note_id, "valueId": "n1"}],
    "questionnaire": f"{SITE.base_url}/Questionnaire/q1",
    "status": "completed",
    "subject": refer("Patient/p1"),
    "author": refer("Patient/p1"),
    "authored": "2026-01-01T10:00:00Z",
    "item": [
        {"linkId": "1", "text": "?", "answer": [coded("LA1") | {"item": [{"linkId": "2", "answer": [coded("LA2")]}]}]},
        {"linkId": "3", "item": [{"linkId": "4", "answer": [{"valueString": "yes"}, {"valueDecimal": 0}]}]},
    ],
}
BODIES: dict[str, dict[str, Any]] = {body["resourceType"]: body for body in (TASK, PAYMENT, RESPONSE)}
READERS = {name: StructReader(struct_of(RESOURCES[name].model)) for name in BODIES}
ODD = (
    *("null", '""', "[]", "{}", "0", "-0", "-0.0", "5.00", "1E+3", '"5.00"', "true", '"\\u0007"', '"\\u0022"', '"\\b"'),
    *('"\x7f"', '"\x85"', '"\xa0"', '"\\ud800"', '"a\\nb"', '"2026-02-30"', '"2026-02-28"', '"Patient/p1\\n"', '"é"'),
    *(
        '{"a":1}',
        '{"reference":"Patient/p2"}',
        '[{"url":"claim"}]',
        '["x"]',
        '[{"linkId":"9","item":[{"linkId":"8"}]}]',
    ),
)


def values(struct: Any) -> Any:
    """A struct, and what it holds, as the model dumps it."""
    if isinstance(struct, list):
        return [values(part) for part in struct]
    fields = getattr(struct, "__struct_fields__", None)
    return {name: values(getattr(struct, name)) for name in fields} if fields is not None else struct


def dumped(model: BaseModel) -> Any:
    return json.loads(json.dumps(model.model_dump(exclude={"resourceType"}), default=repr))


def without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nothing(part) for name, part in value.items() if part is not None}
    return [without_nothing(part) for part in value] if isinstance(value, list) else value


def agrees(name: str, text: str) -> bool:
    """True if the struct accepted the text. Asserts that the model then has the same values."""
    found = READERS[name].read(text.encode("utf-8", "surrogatepass"))
    if found is None:
        return False
    model, problems = shape(RESOURCES[name].model, parse_json(text), name)
    assert model is not None
    assert not problems
    read = json.loads(json.dumps(values(found), default=repr))
    assert without_nothing(read) == without_nothing(dumped(model))
    return True


@pytest.mark.parametrize("name", BODIES)
def test_a_plain_body_is_read_by_its_struct(name: str) -> None:
    """COMMON-35: with all elements that an import sends."""
    assert agrees(name, json.dumps(BODIES[name]))
    assert agrees(name, json.dumps(BODIES[name], ensure_ascii=False, indent=1))


@st.composite
def nearly_plain(draw: Any, name: str) -> str:
    """A body in which some values are replaced, some keys repeated or added."""
    text = json.dumps(BODIES[name], ensure_ascii=draw(st.booleans()))
    for _ in range(draw(st.integers(1, 2))):
        tokens = [at for at, letter in enumerate(text) if letter in ":,[{"]
        at = draw(st.sampled_from(tokens)) + 1
        odd = draw(st.sampled_from(ODD))
        text = draw(
            st.sampled_from(
                [
                    text[:at] + odd + "," + text[at:],
                    text[:at] + odd + _after_value(text[at:]),
                    text[:at] + f'"status":{odd},' + text[at:],
                    text[:at] + f'"display":{odd},' + text[at:],
                    text[:at] + f'"valueDecimal":{odd},' + text[at:],
                ]
            )
        )
    return text


def _after_value(text: str) -> str:
    """Return the text after its first JSON value; the whole text if it does not begin with one."""
    start = len(text) - len(text.lstrip())
    try:
        return text[json.JSONDecoder().raw_decode(text, start)[1] :]
    except ValueError:
        return text


@pytest.mark.parametrize("name", BODIES)
@given(data=st.data())
def test_a_body_that_a_struct_reads_has_the_values_that_the_model_reads(name: str, data: Any) -> None:
    """COMMON-35, COMMON-42, COMMON-46"""
    text = data.draw(nearly_plain(name))
    try:
        parse_json(text)
    except Malformed:
        assert READERS[name].read(text.encode("utf-8", "surrogatepass")) is None
    else:
        agrees(name, text)


@pytest.mark.parametrize(
    "change",
    [
        ('"status": "requested"', '"status": "requested", "status": "completed"'),
        ('"status": "requested"', '"status": "requested", "owner": null'),
        ('"status": "requested"', '"status": "requested", "description": ""'),
        ('"status": "requested"', '"status": "re\\u0000quested"'),
        ('"status": "requested"', '"status": "re\\u0085quested"'),
        ('"status": "requested"', '"status": "re\x7fquested"'),
        ('"status": "requested"', '"status": "re\x85quested"'),
        ('"Patient/p1"', '"Patient/p1\\n"'),
        ('"2026-02-01"', '"2026-02-30"'),
        ('"urgent"}', '"urgent", "more": "x"}'),
    ],
)
def test_a_struct_declines_a_body_that_the_model_must_judge(change: tuple[str, str]) -> None:
    """COMMON-35, COMMON-37, COMMON-42, COMMON-46."""
    text = json.dumps(TASK).replace(*change)
    assert text != json.dumps(TASK)
    assert not agrees("Task", text)


@pytest.mark.parametrize("nothing", ["{}", "{ }", '{}, {"valueString": "yes"}'])
def test_an_answer_without_anything_is_left_to_the_models(nothing: str) -> None:
    """COMMON-42: an answer has no element that must be there."""
    text = json.dumps(BODIES["QuestionnaireResponse"])
    assert agrees("QuestionnaireResponse", text)
    found = re.sub(r'"answer": \[', f'"answer": [{nothing}, ', text, count=1)
    assert found != text
    assert not agrees("QuestionnaireResponse", found)


def test_a_reference_whose_type_contradicts_it_is_left_to_the_model() -> None:
    """COMMON-11."""
    assert agrees("QuestionnaireResponse", json.dumps(RESPONSE | {"author": refer("Practitioner/d1")}))
    odd = RESPONSE | {"author": refer("Practitioner/d1", type="Patient")}
    assert READERS["QuestionnaireResponse"].read(json.dumps(odd).encode()) is None


def test_numbers_keep_their_digits() -> None:
    """PAY-26: 5.00 is not 5, and zero below zero is left to the model."""
    text = json.dumps(PAYMENT)
    for digits in ("5.00", "5", "0.10", "1E+2", "123456789012345678901234567890.12"):
        assert agrees("PaymentNotice", text.replace("12.5", digits))
        read = READERS["PaymentNotice"].read(text.replace("12.5", digits).encode())
        assert str(read.amount.value) == digits  # type: ignore[union-attr]
    for odd in ("-0", '"5.00"', "NaN", "1E+999999999999999999999"):
        assert not agrees("PaymentNotice", text.replace("12.5", odd))


def test_items_within_items_are_read_to_some_depth_and_then_left_to_the_model() -> None:
    """QR-ITEM-01."""
    item: dict[str, Any] = {"linkId": "0", "answer": [{"valueString": "x"}]}
    taken = []
    for depth in range(1, 6):
        taken.append(agrees("QuestionnaireResponse", json.dumps(RESPONSE | {"item": [item]})))
        item = {"linkId": str(depth), "item": [item]}
    assert taken == [True, True, True, False, False]


def test_a_struct_reads_items_down_to_the_deepest_answer() -> None:
    """QR-ITEM-01: rules and storing look for items there."""
    item: dict[str, Any] = {"linkId": "q", "answer": [{"valueString": "x"}]}
    for link_id in ("b", "a"):
        item = {"linkId": link_id, "item": [item]}
    body = json.dumps(RESPONSE | {"item": [item]}).encode()
    read = READERS["QuestionnaireResponse"].read(body)
    assert [entry.linkId for _, entry in read.placed] == ["a", "b", "q"]  # type: ignore[union-attr]


def test_properties_of_the_models_are_those_of_the_structs() -> None:
    """Rules read the same properties of both."""
    read = READERS["QuestionnaireResponse"].read(json.dumps(RESPONSE).encode())
    model = QuestionnaireResponse.model_validate(parse_json(json.dumps(RESPONSE)))
    assert [(at, item.linkId) for at, item in read.placed] == [(at, item.linkId) for at, item in model.placed]  # type: ignore[union-attr]
    payment = READERS["PaymentNotice"].read(json.dumps(PAYMENT).encode())
    assert (payment.claims, payment.cents) == (["Claim/c1"], 1250)  # type: ignore[union-attr]


# --- Batches --------------------------------------------------------------------------------------


def bundle(*entries: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"resourceType": "Bundle", "type": "batch", "entry": list(entries)} | more).encode()


def posted(body: dict[str, Any], **request: Any) -> dict[str, Any]:
    return {"resource": body, "request": {"method": "POST", "url": body["resourceType"]} | request}


def test_a_batch_of_plain_creates_is_read_at_once() -> None:
    """EXTRA-BATCH-01."""
    found = plain.bundle(bundle(posted(TASK, ifNoneExist="identifier=urn:x|T 1"), posted(PAYMENT)), SITE)
    assert found is not None
    assert [(one.request.url, one.request.ifNoneExist) for one in found.entry] == [
        ("Task", "identifier=urn:x|T 1"),
        ("PaymentNotice", None),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        bundle(posted(TASK), posted(TASK, method="PUT", url="Task/t1")),
        bundle(posted(TASK, url="PaymentNotice")),
        bundle(posted(TASK, url="Questionnaire")),
        bundle(posted(TASK | {"extension": [{"url": "http://other", "valueString": "x"}]})),
        bundle(*[posted(TASK) | {"fullUrl": "urn:uuid:1"}] * 2, type="transaction"),
        bundle(posted(TASK), type="collection"),
        bundle({"request": {"method": "GET", "url": "Task"}}),
        bundle(posted(TASK))[:-1],
    ],
)
def test_any_other_batch_is_looked_at_entry_by_entry(raw: bytes) -> None:
    """EXTRA-BATCH-01."""
    assert plain.bundle(raw, SITE) is None


def test_a_single_create_is_read_at_once_where_it_is_plain() -> None:
    """COMMON-35, COMMON-45."""
    read = plain.create(RESOURCES["Task"], json.dumps(TASK).encode(), SITE)
    assert read.description == TASK["description"]  # type: ignore[union-attr]
    for odd in (TASK | {"other": 1}, TASK | {"extension": [{"url": "http://other", "valueString": "x"}]}, PAYMENT):
        assert plain.create(RESOURCES["Task"], json.dumps(odd).encode(), SITE) is None


def test_each_entry_of_a_client_without_the_right_is_answered_403() -> None:
    """EXTRA-BATCH-01, AUTH-03."""
    found = batch.understand_plain(bundle(posted(TASK)), Caller("c", "system/Task.r"), SITE)
    assert found is not None
    assert [one.outcome.status for one in found.requests if isinstance(one, FhirError)] == [403]
