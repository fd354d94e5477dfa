"""PaymentNotice: a payment collected from a patient, deducted from the balance; a copayment when it names a Claim."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field

from fhir_service.interface.billing import ABOVE_BALANCE
from fhir_service.interface.datatypes import (
    ClaimReference,
    Element,
    Id,
    Identifier,
    Meta,
    Number,
    PatientReference,
    Text,
    Time,
    UnusedObject,
    Uri,
    id_of,
)
from fhir_service.interface.fast import forms
from fhir_service.interface.fast.forms import DrawnValues, Each, Reference
from fhir_service.interface.outcomes import BUSINESS_RULE, INVALID
from fhir_service.interface.resources.common import ID, IDENTIFIER, IDENTIFIERS, records_exist, reference_id
from fhir_service.interface.site import STORED, Site
from fhir_service.interface.vocabulary import Found, Param, Resource, World, condition, rule

MOST = Decimal("9999999.99")
LEAST = -MOST
CENT, _HUNDRED = Decimal("0.01"), Decimal(100)
PAID = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/paymentstatus", "code": "paid"}]}


class ClaimPart(Element):
    url: Uri
    valueReference: ClaimReference


class Extension(Element):
    url: Uri
    extension: Annotated[list[ClaimPart], Field(min_length=1)] | None = None


class Amount(Element):
    value: Number
    currency: Text | None = None


class PaymentNotice(Element):
    """The field table of PaymentNotice as a body of create."""

    resourceType: Literal["PaymentNotice"]
    id: Id | None = None
    meta: Meta | None = None
    identifier: Annotated[list[Identifier], Field(min_length=1)] | None = None
    extension: Annotated[list[Extension], Field(min_length=1)] | None = None
    status: Text
    request: PatientReference
    created: Time
    payment: UnusedObject
    recipient: UnusedObject
    amount: Amount
    paymentStatus: dict[str, Any] | None = None

    @property
    def claims(self) -> list[str]:
        """The claims that a copayment names, as `Claim/id`."""
        if self.extension is None:
            return []
        return [part.valueReference.reference for e in self.extension for part in e.extension or ()]

    @property
    def cents(self) -> int:
        """The amount in cents; whole by the rules on `amount.value`."""
        return _cents(self.amount.value)


@rule("COMMON-45", INVALID, given=False, of="extension")
def extension_is_the_copayment(notice: PaymentNotice, site: Site) -> Found:
    """An extension is one that the interface lists for the resource, with its value, once."""
    for index, extension in enumerate(notice.extension or ()):
        at = f"PaymentNotice.extension[{index}]"
        if extension.url != site.copayment:
            yield f"{at}.url", "the extension is not known here"
        elif index:
            yield f"{at}.url", "the extension is sent twice"
        for number, part in enumerate(extension.extension or ()):
            if part.url != "claim":
                yield f"{at}.extension[{number}].url", "the extension is not known here"


_AMOUNT = "PaymentNotice.amount.value"
_ONE_CLAIM = "a copayment must name exactly one Claim"


@condition("PAY-12", BUSINESS_RULE, "PaymentNotice.status", "the status is not supported")
def status_is_active(notice: PaymentNotice, _: Site) -> bool:
    """A payment has the status `active`."""
    return notice.status == "active"


@condition("PAY-25", BUSINESS_RULE, _AMOUNT, "the amount is not more than zero", given=False)
def amount_is_positive(notice: PaymentNotice, _: Site) -> bool:
    """An amount is more than zero."""
    return bool(notice.amount.value > 0)


@condition("PAY-26", BUSINESS_RULE, _AMOUNT, "the amount has more than two decimals", given=False)
def amount_is_in_cents(notice: PaymentNotice, _: Site) -> bool:
    """An amount has at most two decimals, counted on the value."""
    value = notice.amount.value
    return not LEAST <= value <= MOST or value == value.quantize(CENT)


@condition("PAY-28", BUSINESS_RULE, _AMOUNT, "the amount is above 9999999.99", given=False)
def amount_is_within_the_limit(notice: PaymentNotice, _: Site) -> bool:
    """An amount is at most 9,999,999.99."""
    return notice.amount.value <= MOST


@condition("PAY-08", BUSINESS_RULE, "PaymentNotice.extension[0].extension", _ONE_CLAIM, given=False)
def copayment_names_a_claim(notice: PaymentNotice, _: Site) -> bool:
    """A copayment names a Claim."""
    return not notice.extension or bool(notice.claims)


@condition("PAY-07", BUSINESS_RULE, "PaymentNotice.extension[0].extension[1]", _ONE_CLAIM)
def copayment_names_one_claim(notice: PaymentNotice, _: Site) -> bool:
    """A copayment names no second Claim."""
    return not notice.extension or len(notice.claims) <= 1


_CLAIM = "PaymentNotice.extension[0].extension[0].valueReference"


def _patient(notice: PaymentNotice) -> list[tuple[str, str]]:
    return [("PaymentNotice.request", notice.request.reference)]


def _claims(notice: PaymentNotice) -> list[tuple[str, str]]:
    return [(_CLAIM, claim) for claim in notice.claims[:1]] if notice.extension else []


@rule("PAY-10", BUSINESS_RULE, needs="state", given=False, of="extension")
def claim_is_the_patients(notice: PaymentNotice, world: World) -> Found:
    """The Claim of a copayment belongs to the patient who pays."""
    for claim in notice.claims[:1]:
        if world.known.exists(claim) and world.known.patient_of(claim) != id_of(notice.request.reference):
            yield _CLAIM, f"{claim} belongs to another patient"


@condition("PAY-CREATE-04", BUSINESS_RULE, _AMOUNT, ABOVE_BALANCE, needs="state")
def balance_stays_positive(notice: PaymentNotice, world: World) -> bool:
    """An ordinary payment is at most the balance owed. No balance is known of a patient who is not known."""
    patient = notice.request.reference
    if notice.extension or not world.known.exists(patient):
        return True
    return bool(notice.amount.value <= CENT * world.known.balance(id_of(patient)))


FORM = {
    "resourceType": "PaymentNotice",
    "id": forms.ID,
    "identifier": IDENTIFIERS,
    "extension": Each(
        "claims",
        {"url": STORED.copayment, "extension": [{"url": "claim", "valueReference": Reference("")}]},
    ),
    "status": "active",
    "request": Reference("request"),
    "created": forms.NOW,
    "payment": {"display": "Unused"},
    "recipient": {"display": "Unused"},
    "amount": {"value": forms.Number("amount.value"), "currency": "USD"},
    "paymentStatus": PAID,
}
"""A new notice: `created` is the time of storing, the currency USD, the unused objects say so."""


def _cents(value: Decimal) -> int:
    return int(value * _HUNDRED)


PAYMENT_NOTICE = Resource(
    "PaymentNotice",
    model=PaymentNotice,
    interactions=("create", "read", "search"),
    params=(ID, IDENTIFIER, Param("request", "reference", reference_id("request"), target="Patient")),
    rules=(
        extension_is_the_copayment,
        status_is_active,
        amount_is_positive,
        amount_is_in_cents,
        amount_is_within_the_limit,
        copayment_names_a_claim,
        copayment_names_one_claim,
        records_exist("PAY-14", _patient),
        records_exist("PAY-09", _claims),
        claim_is_the_patients,
        balance_stays_positive,
    ),
    stored=FORM,
    kept={
        "cents": (int, DrawnValues("amount", "value", convert=_cents, required=True)),
        "claim": (str, DrawnValues("extension[]", "extension[]", "valueReference", "reference", convert=id_of)),
    },
)
