"""The interface's placeholders: base URL, vendor and customer, and the addresses made of them.

Stored bodies hold markers instead (`STORED`), which `Site.fill` replaces in the bytes that go out,
so that a store can move to another host, port or name. The markers are C1 control characters: JSON
writers leave them as they are, and no text of a body may contain them.
"""

from dataclasses import dataclass
from functools import cached_property

_BASE, _VENDOR, _CUSTOMER = "\x91", "\x92", "\x93"


@dataclass(frozen=True)
class Site:
    """The placeholders of a service: `{base_url}` without a trailing slash, `{vendor}`, `{customer_identifier}`."""

    base_url: str = "http://127.0.0.1:8400"
    vendor: str = "example"
    customer: str = "demo"

    @cached_property
    def task_group(self) -> str:
        return f"http://schemas.{self.vendor}.com/fhir/extensions/task-group"

    @cached_property
    def task_permalink(self) -> str:
        return f"http://schemas.{self.vendor}.com/fhir/extensions/task-permalink"

    @cached_property
    def copayment(self) -> str:
        return f"http://schemas.{self.vendor}.com/fhir/copayment-claims"

    @cached_property
    def note_id(self) -> str:
        return f"http://schemas.{self.vendor}.com/fhir/extensions/note-id"

    @cached_property
    def questionnaire_permalink(self) -> str:
        return f"http://schemas.{self.vendor}.com/fhir/extensions/questionnaire-permalink"

    @cached_property
    def deprecated_url(self) -> str:
        return f"http://schemas.{self.vendor}.com/fhir/extensions/deprecated-url"

    @cached_property
    def systems(self) -> dict[str, str]:
        """The six coding systems: address -> internal value."""
        return {
            "http://loinc.org": "LOINC",
            "http://snomed.info/sct": "SNOMED",
            f"http://{self.vendor}.com": "VENDOR",
            "http://www.ama-assn.org/go/cpt": "CPT",
            "http://hl7.org/fhir/sid/icd-10": "ICD-10",
            f"http://schemas.{self.customer}.{self.vendor}.com/fhir/systems/internal": "INTERNAL",
        }

    @cached_property
    def stored_systems(self) -> dict[str, str]:
        """Return the stored addresses of the six systems: those made of placeholders have their markers."""
        return dict(zip(self.systems, STORED_SYSTEMS, strict=True))

    def url(self, resource_type: str, resource_id: str) -> str:
        """Return the absolute address of a resource."""
        return f"{self.base_url}/{resource_type}/{resource_id}"

    def fill(self, stored: bytes) -> bytes:
        """Return a stored body with this site's values in place of the markers."""
        base, vendor, customer = self._values
        return stored.replace(b"\xc2\x91", base).replace(b"\xc2\x92", vendor).replace(b"\xc2\x93", customer)

    @cached_property
    def _values(self) -> tuple[bytes, bytes, bytes]:
        return self.base_url.encode(), self.vendor.encode(), self.customer.encode()


STORED = Site(_BASE, _VENDOR, _CUSTOMER)
STORED_SYSTEMS = tuple(STORED.systems)
