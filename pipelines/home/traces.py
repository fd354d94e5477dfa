"""Traces for OpenTelemetry: one for each batch, from its file to the commits of its records at the service.

Nothing is done unless `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector and the extra `traces` is installed. A span has
names of stages, batches, feeds and types, counts, states and classes of errors, but never a value, a key or an id of a
record. The id of a batch's trace is computed from the batch, so that its stages share it in any process.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
NAME = "chartferry"
LACKING = f"{ENDPOINT} is set, and traces are not installed: pip install 'chartferry[traces]'"

_of_batch: ContextVar[int | None] = ContextVar("trace of the batch", default=None)


class Traces:
    """The tracer of this process, and the stage under way, whose spans other threads continue."""

    tracer: Any = None
    stage: Any = None


def start(environ: Mapping[str, str]) -> str | None:
    """Send spans to the collector that the environment names; return a sentence if that is impossible."""
    if not environ.get(ENDPOINT) or Traces.tracer is not None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return LACKING
    provider = TracerProvider(resource=Resource.create({"service.name": NAME}), id_generator=ids())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    use(provider)
    return None


def use(provider: "TracerProvider | None") -> None:
    """Use this provider for spans from now on, or none. With `ids()` as its ids, a batch has one trace."""
    Traces.tracer = provider.get_tracer(NAME) if provider else None
    Traces.stage = None


def ids() -> Any:
    """Return the ids for a provider: a trace's id is computed from its batch; all others are random."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class OfBatches(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return _of_batch.get() or super().generate_trace_id()

    return OfBatches()


@contextmanager
def stage(name: str, batch_id: str, **about: str | int) -> Iterator[None]:
    """Make a span of a stage of a batch. Requests of all its threads belong to it."""
    if Traces.tracer is None:
        yield
        return
    from opentelemetry import context, trace

    token = _of_batch.set(_trace_of(batch_id))
    try:
        attributes = {"chartferry.batch": batch_id, **{f"chartferry.{key}": value for key, value in about.items()}}
        span = Traces.tracer.start_span(name, context.Context(), attributes=attributes)
        before, Traces.stage = Traces.stage, trace.set_span_in_context(span, context.Context())
        try:
            yield
        except BaseException as error:
            _fails(span, error)
            raise
        finally:
            Traces.stage = before
            span.end()
    finally:
        _of_batch.reset(token)


def past(name: str, batch_id: str, began: int) -> None:
    """Make the span of an ended stage. began: its beginning in nanoseconds since 1970."""
    if Traces.tracer is None:
        return
    from opentelemetry import context

    token = _of_batch.set(_trace_of(batch_id))
    try:
        attributes = {"chartferry.batch": batch_id}
        Traces.tracer.start_span(name, context.Context(), attributes=attributes, start_time=began).end()
    finally:
        _of_batch.reset(token)


@contextmanager
def request(method: str) -> Iterator[dict[str, str]]:
    """Make a span of a request in the present stage; yield the headers that continue its trace at the target."""
    if Traces.tracer is None or Traces.stage is None:
        yield {}
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    span = Traces.tracer.start_span(method, Traces.stage, trace.SpanKind.CLIENT, {"http.request.method": method})
    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers, trace.set_span_in_context(span))
    try:
        yield headers
    except BaseException as error:
        _fails(span, error)
        raise
    finally:
        span.end()


def _fails(span: Any, error: BaseException) -> None:
    """Note only the class of an error, since its text may contain values."""
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", type(error).__name__)
    span.set_status(StatusCode.ERROR)


def _trace_of(batch_id: str) -> int:
    return int.from_bytes(hashlib.sha256(batch_id.encode()).digest()[:16], "big")
