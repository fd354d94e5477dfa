"""Traces for OpenTelemetry: a span for each request, in its caller's trace (`traceparent`), and for its commit.

Nothing is done unless `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector and the extra `traces` is installed. A span holds
the method, the path's template, the status and counts: never a path, a query, an id or a body.
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
    """Send spans to the collector that the environment names; return a sentence if they cannot be."""
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
    """Make spans with this provider from now on, or none."""
    Traces.tracer = provider.get_tracer(NAME) if provider else None


def began(traceparent: str | None) -> Any:
    """Begin the span of a request, in the trace that its `traceparent` names; None if there are no traces."""
    if Traces.tracer is None:
        return None
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": traceparent} if traceparent else {}
    above = TraceContextTextMapPropagator().extract(carrier, context.Context())
    span = Traces.tracer.start_span("request", above, trace.SpanKind.SERVER)
    context.attach(trace.set_span_in_context(span, above))  # of this request's task alone, which ends with it
    return span


def ended(span: Any, method: str, template: str, status: int) -> None:
    """End the span of a request. template: of its path, without the ids in it."""
    if span is None:
        return
    span.update_name(f"{method} {template}")
    span.set_attributes({"http.request.method": method, "http.route": template, "http.response.status_code": status})
    span.end()


@contextmanager
def commit(entries: int) -> Iterator[None]:
    """Make a span from the moment at which entries wait for the writer to that at which they are stored or refused."""
    if Traces.tracer is None:
        yield
        return
    span = Traces.tracer.start_span("commit", attributes={"fhir.entries": entries})
    try:
        yield
    finally:
        span.end()
