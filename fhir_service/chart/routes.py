"""The chart's addresses: who may open a page, what it is filled with, and how a refusal looks.

Read-only: its forms sign in, sign out and look for a patient. What a page shows is decided by the client's scopes.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from fhir_service.audit.records import touch
from fhir_service.audit.unknown_ids import Stranger
from fhir_service.chart import money, records, tasks, timeline
from fhir_service.chart.pages import Pages
from fhir_service.chart.paging import ListPage
from fhir_service.chart.session import TYPES, Sessions, SignInRefused, Viewer, goal, posted_fields
from fhir_service.interface.datatypes import CONTROLS
from fhir_service.interface.outcomes import AUTHENTICATION, NOT_FOUND, NOT_SUPPORTED, FhirError
from fhir_service.service import Service

CHART = "/chart"
"""The chart's path. All paths below it need no bearer token: the session decides."""

PATIENTS, OPEN_TASKS = 50, 25
SECTIONS = {"notes": 20, "tasks": 25, "receipts": 25, "charges": 25}
"""The entries on a page of each section of a patient's chart, by the parameter that selects the page."""

log = logging.getLogger(__name__)

Show = Callable[[Request, Viewer], Response]
Handler = Callable[[Request], Awaitable[Response]]


def routes(service: Service) -> list[BaseRoute]:
    """Return the routes of a service's chart."""
    chart = Chart(service)
    addresses: dict[str, dict[str, Handler]] = {
        CHART: {"GET": chart.entrance, "POST": chart.sign_in},
        f"{CHART}/{chart.pages.style_name}": {"GET": chart.style},
        f"{CHART}/sign-out": {"POST": chart.sign_out},
        f"{CHART}/patients": {"GET": chart.shown(chart.patients), "POST": chart.find},
        f"{CHART}/patients/{{id}}": {"GET": chart.shown(chart.patient)},
        f"{CHART}/tasks": {"GET": chart.shown(chart.panel)},
        f"{CHART}/tasks/{{id}}": {"GET": chart.shown(chart.task)},
        f"{CHART}/responses/{{id}}": {"GET": chart.shown(chart.response)},
        f"{CHART}/{{rest:path}}": {"GET": chart.shown(chart.nothing)},
    }
    return [Route(path, _Endpoint(chart, path, handlers)) for path, handlers in addresses.items()]


class _Endpoint:
    """An ASGI endpoint that chooses the handler by method, and answers every error with a page."""

    def __init__(self, chart: "Chart", path: str, handlers: dict[str, Handler]) -> None:
        self._chart, self._path, self._handlers = chart, path, handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["template"] = self._path
        request = Request(scope, receive)
        response = await self._answer(request)
        try:
            await response(scope, receive, send)
        except FhirError as error:
            # A page that cannot be audited is not shown.
            await self._chart.refusal(request, error)(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._handler(request)(request)
        except FhirError as error:
            return self._chart.refusal(request, error)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours is answered, never shown
            # The class only: exception texts may hold values of a record.
            log.error("a page of the chart failed: %s", type(error).__name__)  # noqa: TRY400
            return self._chart.pages.problem(500, None)

    def _handler(self, request: Request) -> Handler:
        if CONTROLS.search(request.scope["path"]):
            raise FhirError(NOT_FOUND)
        handler = self._handlers.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            raise FhirError(NOT_SUPPORTED, headers={"allow": ", ".join(sorted(self._handlers))})
        return handler


class Chart:
    """The pages of a service's chart."""

    def __init__(self, service: Service) -> None:
        path = urlsplit(service.site.base_url).path.rstrip("/") + CHART
        self._service, self._site, self._store = service, service.site, service.store
        self.pages, self._sessions = Pages(path), Sessions(service, path)

    def shown(self, show: Show) -> Handler:
        """Return a page for a signed-in client."""

        async def handle(request: Request) -> Response:
            return await run_in_threadpool(self._shown, show, request)

        return handle

    def _shown(self, show: Show, request: Request) -> Response:
        response = show(request, self._viewer(request))
        self._sessions.prolong(request, response)
        return response

    def _viewer(self, request: Request) -> Viewer:
        viewer = self._sessions.viewer(request)
        request.scope["caller"], request.scope["viewer"] = viewer.caller, viewer
        return viewer

    def refusal(self, request: Request, error: FhirError) -> Response:
        """Return a page in place of an outcome. A request without a session gets the sign-in."""
        if error.outcome != AUTHENTICATION:
            return self.pages.problem(error.outcome.status, request.scope.get("viewer"), error.headers)
        wanted = goal(request.scope["path"].removeprefix(CHART))
        return self._see(f"?to={quote(wanted)}" if wanted else "")

    def _see(self, page: str) -> Response:
        headers = {"cache-control": "no-store"}
        return RedirectResponse(f"{self.pages.path}{page}", 303, headers)

    # --- The way in and out ---

    async def entrance(self, request: Request) -> Response:
        """Answer with the first page: the patients, or the sign-in."""
        try:
            return await self.shown(self.patients)(request)
        except FhirError as error:
            if error.outcome != AUTHENTICATION:
                raise
        told = "Your session has ended. Sign in again." if self._sessions.has_cookie(request) else ""
        response = self._entrance(goal(request.query_params.get("to")), told)
        self._sessions.drop(response)
        return response

    def _entrance(self, wanted: str, told: str, status: int = 200) -> Response:
        return self.pages.page("sign_in.html", status, viewer=None, to=wanted, told=told)

    async def sign_in(self, request: Request) -> Response:
        self._sessions.require_same_origin(request)
        form = await posted_fields(request)
        touch(request, "sign-in", "Chart")
        wanted = goal(form.get("to"))
        try:
            token = await run_in_threadpool(self._sessions.sign_in, form)
        except SignInRefused as refused:
            return self._entrance(wanted, str(refused), 403)
        request.scope["caller"] = await run_in_threadpool(self._service.auth.caller, f"Bearer {token}")
        response = self._see(wanted)
        self._sessions.keep(response, token)
        return response

    async def sign_out(self, request: Request) -> Response:
        self._sessions.require_same_origin(request)
        await run_in_threadpool(self._sessions.sign_out, request)
        response = self._see("")
        self._sessions.drop(response)
        return response

    async def style(self, _: Request) -> Response:
        headers = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
        return Response(self.pages.style, media_type="text/css", headers=headers)

    # --- Pages ---

    def patients(self, request: Request, viewer: Viewer) -> Response:
        """Answer with the list of patients."""
        return self._patients(request, viewer, "", ListPage.asked("page", PATIENTS, request.query_params))

    async def find(self, request: Request) -> Response:
        """Answer with the patients of a name or id. The search is a posted form: no name gets into an address."""
        self._sessions.require_same_origin(request)
        sought = (await posted_fields(request)).get("sought", "").strip()

        def show(request: Request, viewer: Viewer) -> Response:
            with self._store.read(asked=True) as connection:
                if records.exists(connection, sought):
                    return self._see(f"/patients/{quote(sought)}")
            return self._patients(request, viewer, sought, ListPage("page", 1, PATIENTS))

        return await self.shown(show)(request)

    def _patients(self, request: Request, viewer: Viewer, sought: str, page: ListPage) -> Response:
        touched = touch(request, "search", "Patient")
        with self._store.read(asked=True) as connection:
            found, page = records.patients(connection, page, sought, viewer.finds_people)
        touched.patients = tuple(patient.id for patient in found)
        return self.pages.page("patients.html", viewer=viewer, patients=found, page=page, sought=sought)

    def patient(self, request: Request, viewer: Viewer) -> Response:
        """A patient's chart: what the client may search for of notes, tasks, receipts and charges."""
        patient_id, query, site = request.path_params["id"], request.query_params, self._site
        touched = touch(request, "read", "Patient", Stranger(patient_id))
        seen = {kind: viewer.may(kind, "s") for kind in (*TYPES, "Claim")}
        pages = {name: ListPage.asked(name, size, query) for name, size in SECTIONS.items()}
        notes: list[timeline.Note] = []
        due: list[tasks.Task] = []
        account = None
        with self._store.read(asked=True) as connection:
            patient = records.patient(connection, patient_id, viewer.may("Patient", "r"))
            if seen["QuestionnaireResponse"]:
                notes, pages["notes"] = timeline.of_patient(connection, site, patient_id, pages["notes"])
            if seen["Task"]:
                due, pages["tasks"] = tasks.of_patient(
                    connection, site, patient_id, pages["tasks"], self._service.clock()
                )
            if seen["PaymentNotice"]:
                account = money.account(connection, patient_id, pages["receipts"], pages["charges"])
                pages |= {"receipts": account.receipts_page, "charges": account.charges_page}
            names = records.names(connection, viewer.nameable(_named(notes, due)))
        touched.id, touched.patients = patient_id, (patient_id,)
        for kind in (kind for kind in TYPES if seen[kind]):
            touch(request, "search", kind).patients = (patient_id,)
        values: dict[str, Any] = {
            "notes": notes,
            "tasks": due,
            "account": account,
            "pages": pages,
            "names": names,
            "seen": seen,
        }
        return self.pages.page("patient.html", viewer=viewer, patient=patient, **values)

    def panel(self, request: Request, viewer: Viewer) -> Response:
        """Answer with the open tasks of all patients."""
        touched = touch(request, "search", "Task")
        viewer.caller.require("Task", "s")
        page = ListPage.asked("page", OPEN_TASKS, request.query_params)
        with self._store.read(asked=True) as connection:
            found, page = tasks.open_ones(connection, self._site, page, self._service.clock())
            names = records.names(connection, viewer.nameable(_named(found)))
        touched.patients = tuple(sorted({task.patient for task in found if task.patient}))
        return self.pages.page("panel.html", viewer=viewer, tasks=found, page=page, names=names)

    def task(self, request: Request, viewer: Viewer) -> Response:
        """Redirect from a Task's permalink."""
        touched = touch(request, "read", "Task", request.path_params["id"])
        viewer.caller.require("Task", "r")
        with self._store.read(asked=True) as connection:
            task = tasks.one(connection, self._site, request.path_params["id"], self._service.clock())
            names = records.names(connection, viewer.nameable(task.references))
        touched.patients = (task.patient,) if task.patient else ()
        return self.pages.page("task.html", viewer=viewer, task=task, names=names)

    def response(self, request: Request, viewer: Viewer) -> Response:
        """Redirect from a QuestionnaireResponse's permalink: to the response in its note."""
        response_id = request.path_params["id"]
        touched = touch(request, "read", "QuestionnaireResponse", response_id)
        viewer.caller.require("QuestionnaireResponse", "r")
        alone = not viewer.may("QuestionnaireResponse", "s")
        with self._store.read(asked=True) as connection:
            note = timeline.holding(connection, self._site, response_id, alone)
            patient = records.patient(connection, note.patient, viewer.may("Patient", "r"))
            names = records.names(connection, viewer.nameable(note.references))
        touched.patients = (note.patient,)
        if not alone:
            touch(request, "search", "QuestionnaireResponse").patients = (note.patient,)
        return self.pages.page(
            "response.html", viewer=viewer, note=note, patient=patient, response_id=response_id, names=names
        )

    def nothing(self, *_: object) -> Response:
        raise FhirError(NOT_FOUND)


def _named(*lists: Iterable[tasks.Task | timeline.Note]) -> set[str]:
    """Return the references of all people whose names are shown."""
    return {reference for found in lists for one in found for reference in one.references}
