"""Which files of tests take longest: they begin first, so that no worker is alone with one at the end."""

_LONGEST = """
    35 test_practice.py
    32 test_import_samples.py
    30 pipelines/test_privacy.py
    25 pipelines/test_reference_in_dagster.py
    25 pipelines/test_steps.py
    24 pipelines/feeds/test_messy_files.py
    23 faults/test_deaths.py
    22 pipelines/test_command_line_in_dagster.py
    22 pipelines/test_page.py
    20 pipelines/test_inbox_sensor.py
    20 pipelines/test_inside_another_dagster.py
    20 pipelines/test_resumed_in_dagster.py
    20 pipelines/test_tutorial.py
    18 faults/test_faults.py
    18 pipelines/test_definitions.py
    18 pipelines/test_evidence.py
    18 service/hostile/test_bodies.py
    18 service/test_checks.py
    18 spec/test_http.py
    17 pipelines/test_analysts_sessions.py
    17 pipelines/test_cli.py
    16 pipelines/test_money_by_command.py
    16 pipelines/test_parts.py
    16 service/test_messy.py
    16 service/test_workers.py
    15 pipelines/test_answers.py
    15 pipelines/test_dagster_storage.py
    15 pipelines/test_generated_files.py
    15 pipelines/test_own_service.py
    15 pipelines/test_publish.py
    15 pipelines/test_reloading.py
    15 pipelines/test_two_homes.py
    15 pipelines/test_up.py
    15 project/test_starting.py
    15 service/test_cli.py
    14 pipelines/test_web_guard.py
    13 faults/test_answers.py
    13 pipelines/test_bad_targets.py
    13 pipelines/test_queries.py
    12 laws/test_bodies.py
    12 pipelines/test_lost_ledger_any_history.py
    11 pipelines/test_damaged_batches.py
    11 service/test_signing_clients.py
    10 pipelines/feeds/test_unseen.py
    10 pipelines/test_every_record.py
    10 service/test_writer.py
    9 laws/test_growth.py
    9 pipelines/test_policies.py
    9 pipelines/test_readers.py
    9 service/test_transactions.py
    9 service/test_workers_kills.py
    8 faults/test_two_importers.py
    8 laws/test_generated_requests.py
    8 pipelines/test_copayments.py
    8 pipelines/test_verify_by_search.py
    8 service/test_validate_all.py
    8 service/test_versions.py
"""
SECONDS = {name: int(seconds) for seconds, name in map(str.split, _LONGEST.split("\n")[1:-1])}
"""CPU seconds of files in `tests/`, roughly; any other is short."""
