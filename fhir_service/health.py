"""`GET /health`: whether the service can answer reads and take writes now."""

from fhir_service.service import Service


def problem(service: Service) -> str | None:
    """Return why the service cannot do its work; None if it can. Waits for the store."""
    if not _readable(service):
        return "the store cannot be reached"
    if not service.audit.works():
        return "the audit cannot be written"
    return None


def _readable(service: Service) -> bool:
    try:
        with service.store.read() as connection:
            return connection.exec_driver_sql("SELECT 1").scalar() == 1
    except Exception:  # noqa: BLE001 - whatever it is, the store does not answer
        return False
