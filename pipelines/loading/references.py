"""Look up the patients, practitioners and other resources that rows refer to, before the rows are sent.

The interface refuses a row that refers to something missing. Servers of other makes may take it, and then the row is
in nobody's chart. A row in doubt is not looked up. Absence is believed as for rows in doubt: a read of the
resource itself has to say so, and the target has to show others of its type.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from fhir_service.interface.json_text import parse_json
from pipelines.client.capabilities import Capabilities
from pipelines.client.client import PAGE, FhirClient
from pipelines.client.replies import NoResult, RequestRefused, resources_of
from pipelines.client.threads import threads
from pipelines.home.progress import Progress
from pipelines.ledger.rows import Reason
from pipelines.loading.row import AcceptedRow
from pipelines.validation.content import dump

REFERENCE = re.compile(r'"reference":"(([A-Z][A-Za-z]{0,63})/[A-Za-z0-9.\-]{1,64})"')
"""A reference in a prepared body. Within a text its quotes would be escaped."""
NOT_THERE = Reason("TARGET-08", None, None, "{} is not at the target", True)
NOT_SHOWN = (
    "the target does not show a {}: a row that refers to one which is not there is sent, unless the target refuses it"
)
ONLY_ID = {"_elements": "id"}
AT_ONCE = 4
MOST_KEPT = 200_000
"""The references kept as known. Beyond it they are looked up anew."""


class References:
    """The resources that rows of one load refer to, as the target shows them. types: those that are looked up."""

    def __init__(self, client: FhirClient, types: frozenset[str], progress: Progress) -> None:
        self._client, self._types, self._progress = client, set(types), progress
        self._known: dict[str, bool] = {}
        """True for a reference that is there, False for one that is not."""

    @classmethod
    def at(cls, client: FhirClient, capabilities: Capabilities, resource_type: str, progress: Progress) -> "References":
        """Return the references of rows of a type. None are looked up at a target that checks them itself."""
        is_other = capabilities.beyond_interface and not capabilities.store_id
        checked = not is_other or resource_type in capabilities.enforced or client.profile.checks_references
        return cls(client, frozenset() if checked else capabilities.searched, progress)

    def reasons(self, rows: Sequence[AcceptedRow]) -> dict[str, Reason]:
        """Return by key why rows are set aside: the first resource that each refers to and that is not there."""
        if not self._types:
            return {}
        named = {row.key: list(self._named(row)) for row in rows}
        if len(self._known) > MOST_KEPT:
            self._known.clear()
        self._look_up({each for some in named.values() for each in some if each not in self._known})
        missing = {key: [each for each in some if self._known.get(each) is False] for key, some in named.items()}
        return {row.key: _reason(row, missing[row.key][0]) for row in rows if missing.get(row.key)}

    def _named(self, row: AcceptedRow) -> Iterator[str]:
        return (found[1] for found in REFERENCE.finditer(row.body) if found[2] in self._types)

    def _look_up(self, names: set[str]) -> None:
        """Look up references, and note which are there. One whose look-up fails stays unknown."""
        ids: dict[str, list[str]] = defaultdict(list)
        for name in sorted(names):
            kind, _, resource_id = name.partition("/")
            ids[kind].append(resource_id)
        for kind, some in ids.items():
            parts = [some[at : at + PAGE] for at in range(0, len(some), PAGE)]
            try:
                with threads(AT_ONCE, "references") as pool:
                    found = [each for part in pool.map(partial(self._shown, kind), parts) for each in part]
                absent = self._absent(kind, sorted(set(some).difference(found)))
            except RequestRefused:
                self._types.discard(kind)
                self._progress.say(NOT_SHOWN.format(kind))
            except NoResult:
                continue
            else:
                self._known |= {f"{kind}/{each}": each not in absent for each in some}

    def _shown(self, kind: str, ids: Sequence[str]) -> list[str]:
        pages = self._client.pages(kind, {"_id": ",".join(ids)}, ONLY_ID)
        found = list[str]()
        for page in pages:
            shown = {str(body["id"]) for body in resources_of(page, kind)}
            found += shown.intersection(ids)
            if not shown <= set(ids):  # a target that does not know the parameter shows everything
                break
        return found

    def _absent(self, kind: str, ids: Sequence[str]) -> set[str]:
        """Return the ids of which a read says that they are not there. Raises as a read does."""
        if not ids:
            return set()
        if not resources_of(self._client.get(f"/{kind}?_count=1"), kind):
            self._types.discard(kind)
            self._progress.say(NOT_SHOWN.format(kind))
            return set()
        with threads(AT_ONCE, "references") as pool:
            return {
                each
                for each, body in zip(ids, pool.map(partial(self._client.read, kind), ids), strict=True)
                if body is None
            }


def _reason(row: AcceptedRow, name: str) -> Reason:
    body = parse_json(row.body)
    element = next((each for each, value in body.items() if f'"{name}"' in dump(value)), None)
    expression = f"{body['resourceType']}.{element}" if element else None
    return NOT_THERE._replace(expression=expression, message=NOT_THERE.message.format(name))
