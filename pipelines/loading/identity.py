"""The identifiers that a source's records have at a target, and the condition of a create with them."""

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
    """The identifiers of a source's records at the target: their system and resource type."""

    source: str
    resource_type: str

    @property
    def system(self) -> str:
        return f"{IMPORTERS}{self.source}:{self.resource_type}"

    def entry(self, row: Row) -> tuple[str, str]:
        """Return the body as sent, and `ifNoneExist` as a JSON string.

        The body is the prepared JSON, with a date if the source has none, and with our identifier after the source's
        own.
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
    """Return the texts around a key: before and after it in the body, and before it in the condition."""
    opening, closing = ("", "") if identity.resource_type == "QuestionnaireResponse" else ("[", "]")
    body = f',"identifier":{opening}{{"system":{json.dumps(identity.system)},"value":'
    return body, f"}}{closing}}}", json.dumps(f"identifier={quote(identity.system, safe=':')}|")[:-1]
