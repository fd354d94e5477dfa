"""The reasons that a run reports for a file that was not loaded."""

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from pipelines.dagster import results
from pipelines.dagster.results import NOT_LOADED, note_not_loaded

BATCH = "payments-1"


def key_of(stage: str) -> dg.AssetKey:
    return dg.AssetKey(["payments", stage])


def test_a_run_reports_each_reason_once_and_a_later_reason_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first reason may be gone after a retry of its stage; a person has to act on that of a later stage."""
    names = SimpleNamespace(keys_of=lambda _: {"loaded": key_of("loaded")}, partition=str)
    monkeypatch.setattr(results, "names_in", lambda _: names)
    monkeypatch.setattr(results, "file_of", lambda *_: SimpleNamespace(file_name="payments.csv"))
    events: list[Any] = []
    said: list[str] = []

    def tell(stage: str, sentence: str) -> None:
        def log_event(noted: dg.AssetObservation) -> None:
            event = SimpleNamespace(asset_observation_data=SimpleNamespace(asset_observation=noted))
            step = key_of(stage).to_python_identifier()
            events.append(SimpleNamespace(step_key=step, get_dagster_event=lambda: event, noted=noted))

        context: Any = SimpleNamespace(
            asset_key=key_of(stage),
            log=SimpleNamespace(error=lambda text, *given: said.append(text % given)),
            log_event=log_event,
            run=SimpleNamespace(run_id="r"),
            instance=SimpleNamespace(all_logs=lambda *_, **__: list(events)),
        )
        anything: Any = None
        note_not_loaded(context, anything, anything, {BATCH: sentence})

    away, doubt = "the target does not answer", "3 rows are in doubt"
    for stage, sentence in (
        ("validated", away),
        ("validated", away),
        ("loaded", f"payments.csv: {away}"),
        ("loaded", doubt),
    ):
        tell(stage, sentence)
    assert said == [f"payments.csv: {away}", f"payments.csv: {doubt}"]
    told = {(each.noted.asset_key.path[-1], each.noted.metadata[NOT_LOADED].value) for each in events}
    assert told == {("validated", away), ("loaded", away), ("loaded", doubt)}
