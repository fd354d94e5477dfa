"""The HTTP client against a real server on loopback: tokens, error classes, reads and pages."""

import gc
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from pipelines.client.client import FhirClient
from pipelines.client.pace import RetryPauses
from pipelines.client.profiles import Profile
from pipelines.client.replies import NotDone, NotSent, RequestRefused, TargetUnusable, UnknownOutcome, next_link
from pipelines.client.steps import BARE, step_for
from pipelines.client.tokens import Credentials
from pipelines.client.whole import LARGE, IncompleteSearch, whole_search
from tests.support.fake_answers import Said
from tests.support.fake_target import FakeTarget, serving

PAYMENT = '{"resourceType":"PaymentNotice","request":{"reference":"Patient/p1"},"amount":{"value":1}}'
CONDITION = '"identifier=urn:chartferry:default:PaymentNotice|k1"'


@pytest.fixture
def target():
    with serving(FakeTarget()) as target:
        yield target


@pytest.fixture
def client(target):
    pauses: list[float] = []
    made = FhirClient(
        target.url, Credentials(client_id="c", client_secret="s"), patience=RetryPauses(3, sleep=pauses.append)
    )
    yield made
    made.close()


def test_a_create_gives_the_id_of_the_location_with_one_token_for_many(client, target):
    replies = [client.create("PaymentNotice", PAYMENT) for _ in range(3)]
    assert [reply.status for reply in replies] == [201, 201, 201]
    assert {reply.resource_id for reply in replies} == set(target.stored)
    assert target.tokens == 1


def test_a_token_that_ended_is_renewed_once_in_the_middle(client, target):
    client.create("PaymentNotice", PAYMENT)
    target.faults = ["expired"]
    assert client.create("PaymentNotice", PAYMENT).status == 201
    assert target.tokens == 2


class Counted:
    """A lock that counts the threads that want it, and signals when all do."""

    def __init__(self, expected):
        self._lock, self._counting, self._left = threading.Lock(), threading.Lock(), expected
        self.all_asked = threading.Event()

    def __enter__(self):
        with self._counting:
            self._left -= 1
            if not self._left:
                self.all_asked.set()
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


@pytest.mark.parametrize(
    ("answer", "final"),
    [
        (httpx.Response(401, json={"error": "invalid_client"}), True),
        (httpx.Response(503, headers={"retry-after": "7"}), False),
        (httpx.Response(200, json={"access_token": "t2"}), None),
    ],
)
def test_many_that_need_a_new_token_at_once_make_one_request_for_it(answer, final, monkeypatch):
    """All of them get its result, also a failure."""
    requests = []

    def answering(request):
        requests.append(request)
        lock.all_asked.wait(60)
        return answer

    client = FhirClient("http://127.0.0.1:1", Credentials(client_id="c"), transport=httpx.MockTransport(answering))
    lock = Counted(8)
    monkeypatch.setattr(client._tokens, "_lock", lock)

    def asked(_):
        try:
            return client._tokens.bearer()
        except NotSent as error:
            return error.final, error.retry_after

    with ThreadPoolExecutor(8) as pool:
        told = set(pool.map(asked, range(8)))
    assert told == {"t2" if final is None else (final, None if final else 7.0)}
    assert len(requests) == 1
    client.close()


def test_a_target_that_refuses_a_token_is_not_asked_again_and_the_sentence_says_what_to_look_at(target):
    """Repeated requests with a wrong secret could lock the account."""
    target.token_faults = [Said(401, {"error": "invalid_client", "error_description": "of somebody"})]
    client = FhirClient(target.url, Credentials(client_id="c", client_secret="s"), patience=RetryPauses(3))
    with pytest.raises(NotSent, match=r"refuses one to this client \(HTTP 401, invalid_client\): is its id"):
        client.get("/Task")
    assert target.tokens == 0
    client.close()


def test_a_token_is_renewed_before_it_ends(target):
    now = [0.0]
    client = FhirClient(target.url, Credentials(client_id="c", client_secret="s"), clock=lambda: now[0])
    client.create("PaymentNotice", PAYMENT)
    now[0] = 36000 - 59
    client.create("PaymentNotice", PAYMENT)
    client.close()
    assert target.tokens == 2


@pytest.mark.parametrize(
    ("fault", "raised", "stored"),
    [
        ("lost_before", UnknownOutcome, 0),
        ("lost_after", UnknownOutcome, 1),
        ("truncated", UnknownOutcome, 1),
        ("redirect", UnknownOutcome, 0),
        ("gateway", UnknownOutcome, 0),
        ("error", UnknownOutcome, 0),
        ("busy", NotDone, 0),
        ("throttled", NotDone, 0),
        ("forbidden", NotDone, 0),
    ],
)
def test_a_write_counts_as_not_done_only_if_the_answer_proves_it(client, target, fault, raised, stored):
    """LEDGER-11: a redirect of a write is not followed."""
    target.faults = [fault]
    with pytest.raises(raised):
        client.create("PaymentNotice", PAYMENT)
    assert len(target.stored) == stored
    assert target.writes == 1


def test_no_connection_is_surely_not_sent():
    """LEDGER-11"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        client = FhirClient(f"http://127.0.0.1:{free.getsockname()[1]}", Credentials(token="t"))
        with pytest.raises(NotSent):
            client.create("PaymentNotice", PAYMENT)
        client.close()


def test_an_answer_that_does_not_come_in_time_is_unknown(target):
    """LEDGER-11"""
    target.hold = 1.0
    client = FhirClient(target.url, Credentials(client_id="c", client_secret="s"), timeout=0.3)
    with pytest.raises(UnknownOutcome, match="no answer in time"):
        client.create("PaymentNotice", PAYMENT)
    client.close()


def test_a_refusal_carries_the_first_issue_of_its_outcome(client, target):
    target.refuse = lambda _: True
    with pytest.raises(RequestRefused) as refused:
        client.create("PaymentNotice", PAYMENT)
    assert refused.value.reply.outcome == {
        "code": "business-rule",
        "text": "Unprocessable entity",
        "diagnostics": "the balance would be negative",
        "expression": None,
    }


def test_a_batch_answers_entry_by_entry_and_creates_a_key_once(client, target):
    first, second = client.create_all("PaymentNotice", [(PAYMENT, CONDITION), (PAYMENT, CONDITION)])
    assert (first.kind, second.kind) == ("created", "existed")
    assert first.resource_id == second.resource_id
    assert len(target.stored) == 1


def test_a_batch_answer_with_missing_entries_is_unknown_as_a_whole(client, target):
    target.faults = ["missing_entries"]
    with pytest.raises(UnknownOutcome, match="0 of 1"):
        client.create_all("PaymentNotice", [(PAYMENT, CONDITION)])


def answers_held():
    return sum(isinstance(found, httpx.Response) for found in gc.get_objects())


@pytest.mark.long
def test_answers_are_gone_when_they_have_been_read(client, target):
    """Answers with the bodies of a bundle would be most of a load's memory until the garbage collector runs."""
    client.check_access()
    gc.collect()
    gc.disable()
    try:
        before = answers_held()
        client.create_all("PaymentNotice", [(PAYMENT, CONDITION)])
        client.create("PaymentNotice", PAYMENT)
        assert answers_held() == before
    finally:
        gc.enable()


def test_a_search_follows_next_links_to_the_end(client, target):
    for number in range(250):
        target.stored[f"r{number}"] = {"resourceType": "DiagnosticReport", "id": f"r{number}"}
    found = [body["id"] for body in whole_search(client.pages("DiagnosticReport"), "DiagnosticReport")]
    assert found == [f"r{number}" for number in range(250)]


def test_a_link_to_another_host_is_not_followed(client):
    with pytest.raises(UnknownOutcome):
        client.get("http://elsewhere.example/Task?_count=1")


INCLUDED = {"resource": {"resourceType": "Practitioner", "id": "p1"}, "search": {"mode": "include"}}


@pytest.mark.crossed
@pytest.mark.parametrize(
    "shown",
    [[[]], [[1, 2]], [[1, 2], [3, 4], [5]], [[number] for number in range(200)], [[INCLUDED]]],
    ids=["empty", "one page", "three pages", "many pages", "included alone"],
)
@pytest.mark.parametrize("at_once", [1, 4])
def test_endless_next_links_are_given_up_after_50_pages_without_a_new_resource(at_once, shown):
    """CLI-CMD-17, LEDGER-04: each link is new, and leads to an earlier page or an empty one."""
    asked = list[httpx.Request]()

    def answer(request):
        numbers = shown[len(asked) % len(shown)]
        asked.append(request)
        links = [{"relation": "next", "url": f"?page={len(asked)}"}]
        entries = [each if each is INCLUDED else _task(each) for each in numbers]
        return httpx.Response(200, json={"link": links, "entry": entries})

    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), transport=httpx.MockTransport(answer))
    with pytest.raises(UnknownOutcome, match="50 pages in a row brought nothing new, and still there is a next one"):
        list(client.pages("Task", at_once=at_once))
    assert len(asked) <= len(shown) + 51
    client.close()


@pytest.mark.parametrize("takes_large", [True, False])
def test_a_search_asks_for_the_total_at_a_target_that_gives_it_only_on_request(takes_large):
    """TARGET-04: without a total, a missing page of payments would go unnoticed in a balance."""
    asked = list[httpx.QueryParams]()

    def answer(request):
        asked.append(request.url.params)
        refuses = request.url.params["_count"] == "1000" and not takes_large
        return httpx.Response(400 if refuses else 200, json={"resourceType": "OperationOutcome"})

    client = FhirClient(
        "http://127.0.0.1:1",
        Credentials(token="t"),
        transport=httpx.MockTransport(answer),
        profile=Profile(total="accurate"),
    )
    assert len(list(client.pages("Claim", {"patient": "Patient/p"}, LARGE))) == 1
    expected = {"_total": "accurate", "patient": "Patient/p"}
    counts = ["1000"] if takes_large else ["1000", "100"]
    assert [dict(each) for each in asked] == [{"_count": count} | expected for count in counts]
    client.close()


@pytest.mark.parametrize(
    ("base", "link", "address"),
    [
        ("/fhir", "https://t.example/fhir/Task?page=2", "/fhir/Task?page=2"),
        ("/fhir", "/fhir/Task?page=2", "/fhir/Task?page=2"),
        ("/fhir", "?page=2", "/fhir/Task?page=2"),
        ("/fhir", "Task?page=2", "/fhir/Task?page=2"),
        ("/fhir", "./page/2", "/fhir/page/2"),
        ("/fhir", "/pages?page=2", "/pages?page=2"),
        ("/fhir", "//t.example/fhir?page=2", "/fhir?page=2"),
        ("/fhir", "/Task?page=2", "/fhir/Task?page=2"),  # as in the interface
        ("/a/FHIR", "/FHIR?page=2", "/a/FHIR/FHIR?page=2"),
        ("/FHIR", "/FHIR?page=2", "/FHIR?page=2"),
        ("", "/Task?page=2", "/Task?page=2"),
        ("", "?page=2", "/Task?page=2"),
    ],
)
@pytest.mark.parametrize("at_once", [1, 4])
def test_a_next_link_is_relative_to_the_page_that_has_it(at_once, base, link, address):
    """LEDGER-04, BUNDLE-08"""
    asked = []

    def answer(request):
        asked.append(str(request.url))
        links = [{"relation": "next", "url": link}] if len(asked) == 1 else []
        return httpx.Response(200, json={"resourceType": "Bundle", "link": links, "entry": [_task(len(asked))]})

    client = FhirClient(f"https://t.example{base}", Credentials(token="t"), transport=httpx.MockTransport(answer))
    assert len(list(client.pages("Task", at_once=at_once))) == 2
    assert asked[1] == f"https://t.example{address}"
    client.close()


@pytest.mark.parametrize(
    "link",
    ["//else.example/Task", "HTTP://t.example/Task", "https://t.example:444/Task", "https://me@t.example/Task",
     "file:///Task", "https://[/Task", "javascript:0"],
)  # fmt: skip
def test_a_next_link_to_another_host_is_not_followed_with_the_token(link):
    """CLI-CMD-17"""
    asked = []

    def answer(request):
        asked.append(request.url)
        return httpx.Response(200, json={"link": [{"relation": "next", "url": link}]})

    transport = httpx.MockTransport(answer)
    client = FhirClient("https://t.example/fhir", Credentials(token="t"), patience=RetryPauses(1), transport=transport)
    with pytest.raises(UnknownOutcome, match="a link leads to another host"):
        list(client.pages("Task"))
    assert len(asked) == 1
    client.close()


@pytest.mark.parametrize("link", ["https://t.example:443/fhir/Task?page=2", "HTTPS://T.Example/fhir/Task?page=2"])
def test_a_link_may_write_the_host_of_the_target_otherwise(link):
    """CLI-CMD-17: proxies add the default port of the scheme."""
    pages = [{"resourceType": "Bundle", "link": [{"relation": "next", "url": link}]}, {"resourceType": "Bundle"}]
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=pages.pop(0)))
    client = FhirClient("https://t.example/fhir", Credentials(token="t"), patience=RetryPauses(1), transport=transport)
    list(client.pages("Task"))
    assert pages == []
    client.close()


def test_capabilities_are_read_from_metadata(client, target):
    found = client.capabilities()
    assert (found.store_id, found.url, step_for(found, "Task").name) == ("urn:uuid:fake", target.url, "batch")
    target.additions = False
    assert step_for(client.capabilities(), "Task") is BARE


def test_pauses_grow_are_jittered_and_bounded():
    patience = RetryPauses(attempts=9, first=0.5, longest=30, random=lambda: 1.0)
    assert list(patience.pauses()) == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert list(RetryPauses(attempts=3, random=lambda: 0.0).pauses()) == [0.25, 0.5]


def test_credentials_never_show_in_a_repr():
    assert "hidden" not in repr(Credentials(token="hidden", client_id="c", client_secret="hidden"))


@pytest.mark.parametrize("body", [b"null", b""])
def test_an_empty_body_of_a_create_counts_like_null(body):
    """COMMON-16"""
    answer = httpx.Response(201, headers={"location": "http://127.0.0.1:1/Task/t1"}, content=body)
    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), transport=httpx.MockTransport(lambda _: answer))
    assert client.create("Task", "{}").resource_id == "t1"
    client.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.Response(200, text="<html>a page</html>"), "does not answer as a FHIR server"),
        (httpx.Response(404, text="not here"), "does not answer as a FHIR server"),
        (httpx.Response(404, json={"resourceType": "OperationOutcome"}), "is FHIR_BASE_URL right"),
        (httpx.Response(200, json={"resourceType": "Patient"}), "does not answer as a FHIR server"),
        (httpx.Response(401, json={"resourceType": "OperationOutcome"}), "does not take the access token"),
    ],
)
def test_the_access_check_refuses_a_target_that_speaks_no_fhir_or_rejects_the_token(answer, why):
    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), transport=httpx.MockTransport(lambda _: answer))
    with pytest.raises(TargetUnusable, match=why):
        client.check_access()
    client.close()


@pytest.mark.parametrize(
    ("status", "kind"), [(200, "Bundle"), (403, "OperationOutcome"), (404, "OperationOutcome"), (503, None)]
)
def test_the_access_check_accepts_a_target_that_speaks_fhir_or_is_busy(status, kind):
    answer = httpx.Response(status, json={"resourceType": kind} if kind else {})
    says = httpx.Response(200, json={"resourceType": "CapabilityStatement"})
    takes = httpx.MockTransport(lambda asked: says if asked.url.path == "/metadata" else answer)
    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), transport=takes)
    client.check_access()
    client.close()


def test_every_read_asks_for_a_fresh_answer_and_no_write_does(target):
    """LEDGER-01: an answer from a cache would show a row as absent that was created meanwhile."""
    asked = []

    def answer(request):
        asked.append((request.method, request.headers.get("cache-control")))
        found = {"resourceType": "Task", "id": "a"} if request.url.path.endswith("/a") else {"resourceType": "Bundle"}
        return httpx.Response(200, json=found)

    client = FhirClient("http://127.0.0.1:1", Credentials(token="t"), transport=httpx.MockTransport(answer))
    list(client.pages("Task"))
    client.read("Task", "a")
    client.update("Task", "a", "{}")
    assert asked == [("GET", "no-cache"), ("GET", "no-cache"), ("PUT", None)]
    client.close()


def test_a_search_whose_pages_hold_fewer_than_the_target_counts_is_not_all(client, target, monkeypatch):
    """LEDGER-04: a resource that is on no page would count as absent, and would be sent again."""
    for number in range(250):
        target.stored[f"t{number}"] = {"resourceType": "Task", "id": f"t{number}"}
    get = client.get

    def one_less(path):
        page = get(path)
        return {**page, "entry": page["entry"][1:]} if next_link(page) else page

    monkeypatch.setattr(client, "get", one_less)
    found = whole_search(client.pages("Task"), "Task")
    assert len([next(found) for _ in range(248)]) == 248
    with pytest.raises(IncompleteSearch, match="its pages hold 248 of 250"):
        next(found)


def test_a_page_that_comes_twice_gives_each_resource_once():
    """LEDGER-04: resources that are created meanwhile move the pages, and may be on none of them."""
    pages = [[1, 2], [2, 3], [4]]
    entries = [[_task(number) for number in numbers] for numbers in pages]
    some = [{"resourceType": "Bundle", "total": 3 + (at > 0), "entry": each} for at, each in enumerate(entries)]
    assert [body["id"] for body in whole_search(some, "Task")] == ["t1", "t2", "t3", "t4"]


def _task(number: int):
    return {"resource": {"resourceType": "Task", "id": f"t{number}"}}


@pytest.mark.parametrize(("status", "asks"), [(429, [("retry-after", "7")]), (503, [])], ids=["429", "503"])
def test_a_token_is_asked_for_again_where_the_target_is_busy_at_the_beginning(target, client, status, asks):
    """LEDGER-11: otherwise the import would end at once, with nothing sent."""
    target.token_faults = [Said(status, None, asks)] * 2
    client.check_access()
    assert not target.token_faults


def test_a_missing_token_address_is_named_at_once(target, client):
    """LEDGER-11"""
    target.token_faults = [Said(404)] * 2
    with pytest.raises(TargetUnusable, match="no access token: HTTP 404"):
        client.check_access()
    assert len(target.token_faults) == 1
