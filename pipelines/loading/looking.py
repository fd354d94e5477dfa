"""What patients have at a target, noted before their first row is sent there."""

from datetime import UTC, datetime

from pipelines.client.client import FhirClient
from pipelines.ledger.lease import utc_text
from pipelines.ledger.rows import Sighting
from pipelines.loading.lookup import ahead, ids_before
from pipelines.loading.row import Row


class Looks:
    """The looks of one load. noted: patients whose resources at the target are noted."""

    def __init__(self, client: FhirClient, resource_type: str) -> None:
        self._client, self._resource_type = client, resource_type
        self.noted: set[str] = set()

    def look(self, row: Row) -> Sighting:
        """Return the resources that the row's patient has at the target now. Safe from any thread."""
        ids = ids_before(self._client, self._resource_type, row)
        now = datetime.now(UTC)
        return Sighting(row.patient_id or "", utc_text(now), ahead(self._client, now), ids)
