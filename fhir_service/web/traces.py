"""OpenTelemetry traces: a span for each request, in its caller's trace (`traceparent`), and one for its commit.

They need `OTEL_EXPORTER_OTLP_ENDPOINT`, which names a collector, and the extra `traces`. A span holds the method, the
template of the path, the status and counts, but no path, query, id or body.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
NAME = "fhir-service"
LACKING = f"{ENDPOINT} is set, and traces are not installed: pip install 'chartferry[traces]'"


class Traces:
    """The tracer of this process."""

    tracer: Any = None


def start(environ: Mapping[str, str]) -> str | None:
    """Send spans to the collector that the environment names. Return a sentence if the extra is not installed."""
    if not environ.get(ENDPOINT):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return LACKING
    provider = TracerProvider(resource=Resource.create({"service.name": NAME}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    use(provider)
    return None


def use(provider: "TracerProvider | None") -> None:
    """Make spans with this provider from now on; with None, make none."""
    Traces.tracer = provider.get_tracer(NAME) if provider else None


def begin_span(traceparent: str | None) -> Any:
    """Begin the span of a request, in the trace that its `traceparent` names; None if there are no traces."""
    if Traces.tracer is None:
        return None
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": traceparent} if traceparent else {}
    above = TraceContextTextMapPropagator().extract(carrier, context.Context())
    span = Traces.tracer.start_span("request", above, trace.SpanKind.SERVER)
    context.attach(trace.set_span_in_context(span, above))  # ends with the task of this request
    return span


def end_span(span: Any, method: str, template: str, status: int) -> None:
    """End the span of a request. template: its path without ids."""
    if span is None:
        return
    span.update_name(f"{method} {template}")
    span.set_attributes({"http.request.method": method, "http.route": template, "http.response.status_code": status})
    span.end()


@contextmanager
def commit(entries: int) -> Iterator[None]:
    """Make a span from the time when entries are queued for the writer until they are stored or refused."""
    if Traces.tracer is None:
        yield
        return
    span = Traces.tracer.start_span("commit", attributes={"fhir.entries": entries})
    try:
        yield
    finally:
        span.end()
