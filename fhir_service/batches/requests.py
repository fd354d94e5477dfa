"""The requests in the entries of a bundle that was sent."""

from fhir_service.http import parse_body
from fhir_service.interactions import batch, create, transaction
from fhir_service.scopes import Caller
from fhir_service.service import Service


def understood(service: Service, raw: bytes, caller: Caller) -> batch.Bundle:
    """Return the requests of a body, each with its error where it can be none. Raises the bad request of the whole."""
    if batch.has_too_many_values(raw):
        raise batch.too_many_values()
    plain = batch.understand_plain(raw, caller, service.site)
    if plain is not None:
        return plain
    if batch.has_too_many_parts(raw):
        raise batch.too_many()
    kind, entries = batch.entries(parse_body(raw))
    ids = transaction.link(entries, service.new_id) if kind == "transaction" else [""] * len(entries)
    size = len(raw) // max(len(entries), 1)
    requests = [batch.understand(entry, caller, service.site, size) for entry in entries]
    for one, given in zip(requests, ids, strict=True):
        if isinstance(one, create.Create):
            one.id = given
    return batch.Bundle(kind, requests)
