"""The identifiers by which a target knows a source's records, and the condition of a create by them."""

import json
import re
from functools import cache
from typing import NamedTuple
from urllib.parse import quote

from pipelines.client.identifiers import IMPORTERS, identifier_value
from pipelines.loading.row import Row, dated, own_identifiers
from pipelines.validation.content import dump

PLAIN_KEY = re.compile(r"[A-Za-z0-9._~-]+")


class Identity(NamedTuple):
    """The names of a source's records at the target: the identifier's system, and the resource type."""

    source: str
    resource_type: str

    @property
    def system(self) -> str:
        return f"{IMPORTERS}{self.source}:{self.resource_type}"

    def entry(self, row: Row) -> tuple[str, str]:
        """The body as it is sent, and `ifNoneExist` as a JSON string.

        The body is the prepared JSON with identifier, behind those that its source gave it, and, where the source has
        none, its date.
        """
        before, after, condition = _around(self)
        body, own = own_identifiers(dated(self.resource_type, row))
        if own:
            before = before.replace('"identifier":[', f'"identifier":[{dump(own)[1:-1]},', 1)
        value = asked = identifier_value(row.key, row.generation)
        if PLAIN_KEY.fullmatch(value):
            shown = f'"{value}"'
        else:
            shown, asked = json.dumps(value), quote(re.sub(r"([\\,|$])", r"\\\1", value), safe="")
        return f"{body[:-1]}{before}{shown}{after}", f'{condition}{asked}"'


@cache
def _around(identity: Identity) -> tuple[str, str, str]:
    """Return the texts around a key: in the body before and after it, and in the condition before it."""
    opening, closing = ("", "") if identity.resource_type == "QuestionnaireResponse" else ("[", "]")
    body = f',"identifier":{opening}{{"system":{json.dumps(identity.system)},"value":'
    return body, f"}}{closing}}}", json.dumps(f"identifier={quote(identity.system, safe=':')}|")[:-1]
