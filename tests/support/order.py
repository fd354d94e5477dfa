"""Which files of tests take longest: they begin first, so that no worker is alone with one at the end."""

_LONGEST = """
    34 test_import_samples.py
    22 pipelines/test_definitions.py
    20 pipelines/test_inside_another_dagster.py
    20 pipelines/test_privacy_everything.py
    18 pipelines/test_page.py
    18 pipelines/test_privacy.py
    18 pipelines/test_tutorial.py
    18 spec/test_http.py
    17 pipelines/test_cli.py
    16 pipelines/test_adopt.py
    16 service/test_checks.py
    15 pipelines/test_own_service.py
    15 pipelines/test_reloading.py
    15 pipelines/test_two_homes.py
    15 project/test_starting.py
    15 test_practice.py
    14 faults/test_faults.py
    14 pipelines/test_steps.py
    14 pipelines/test_web_guard.py
    14 pipelines/views/test_published_views.py
    14 service/test_kills.py
    13 pipelines/test_answers.py
    12 pipelines/test_evidence.py
    12 pipelines/test_money_by_command.py
    12 service/test_cli.py
    12 service/test_workers.py
    11 pipelines/test_command_line_in_dagster.py
    11 pipelines/test_queries.py
    11 pipelines/test_reference_in_dagster.py
    11 pipelines/test_spellings.py
    11 service/hostile/test_bodies.py
    11 service/test_contention.py
    11 service/test_messy.py
    10 faults/test_deaths.py
    10 pipelines/feeds/test_unseen.py
    10 pipelines/test_bad_targets.py
    10 pipelines/test_dagster_storage.py
    10 pipelines/test_inbox_sensor.py
    10 pipelines/test_publish.py
    9 pipelines/test_policies.py
    9 pipelines/test_readers.py
    9 service/test_ahead.py
    9 service/test_fuzz.py
    9 service/test_workers_kills.py
    8 laws/test_generated_requests.py
    8 pipelines/test_analysts_sessions.py
    8 pipelines/test_imports_in_parts.py
    8 pipelines/test_memory.py
    8 pipelines/test_parts.py
    8 pipelines/test_verify_by_search.py
    8 spec/test_rules.py
    7 service/test_signing_clients.py
    6 test_unreadable_files.py
    5 pipelines/test_clinics_in_dagster.py
    5 pipelines/test_publish_replaced.py
    5 service/test_stretches.py
    5 service/test_writer.py
"""
SECONDS = {name: int(seconds) for seconds, name in map(str.split, _LONGEST.split("\n")[1:-1])}
"""CPU seconds of files in `tests/`, roughly; any other is short."""
