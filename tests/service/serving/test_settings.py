"""Settings of the service: from the environment and from flags, and what says which of them is wrong."""

import pytest

from fhir_service.settings import SettingError, Settings
from tests.support.called import CLEAN, called, run


@pytest.fixture
def store(tmp_path):
    return tmp_path / "s.duckdb"


def test_every_setting_comes_from_the_environment_and_a_flag_wins():
    """CLI-SVC-12"""
    environ = {
        "FHIR_SERVICE_STORE": "a.duckdb",
        "FHIR_SERVICE_HOST": "localhost",
        "FHIR_SERVICE_PORT": "9000",
        "FHIR_SERVICE_BASE_URL": "https://fhir.example.org/r4/",
        "FHIR_SERVICE_VENDOR": "acme",
        "FHIR_SERVICE_CUSTOMER": "north",
        "FHIR_SERVICE_INTERFACE_ONLY": "true",
        "FHIR_SERVICE_REQUESTS_PER_SECOND": "2.5",
        "FHIR_SERVICE_MAX_BODY": "1000",
        "FHIR_SERVICE_MAX_BATCH": "2000",
        "FHIR_SERVICE_PAGE_SIZE": "5",
        "FHIR_SERVICE_MAX_PAGE_SIZE": "50",
        "FHIR_SERVICE_MEMORY_LIMIT": "2GB",
    }
    expected = Settings(
        "a.duckdb",
        "localhost",
        9000,
        "https://fhir.example.org/r4/",
        "acme",
        "north",
        True,
        2.5,
        1000,
        2000,
        5,
        50,
        "2GB",
    )
    assert Settings.read(environ) == expected
    assert expected.site.base_url == "https://fhir.example.org/r4"
    won = Settings.read(environ, store="b.duckdb", port=1, interface_only=False, host=None)
    assert (won.store, won.port, won.interface_only, won.host) == ("b.duckdb", 1, False, "localhost")


def test_a_flag_of_a_command_wins_over_the_environment(store, monkeypatch):
    """CLI-SVC-12: seen from outside."""
    monkeypatch.setitem(CLEAN, "FHIR_SERVICE_STORE", str(store))
    monkeypatch.setenv("FHIR_SERVICE_STORE", str(store))
    other = store.with_name("other.duckdb")
    assert called("client", "add", "--name", "x", "--store", other).exit_code == 0
    assert (store.exists(), other.exists()) == (False, True)
    assert called("client", "add", "--name", "x").exit_code == 0
    assert store.exists()


@pytest.mark.parametrize(
    ("environ", "flags", "says"),
    [
        ({}, {}, "no store is named: use --store or FHIR_SERVICE_STORE"),
        ({"FHIR_SERVICE_PORT": "x"}, {"store": "s"}, "FHIR_SERVICE_PORT: a whole number is expected"),
        (
            {"FHIR_SERVICE_INTERFACE_ONLY": "maybe"},
            {"store": "s"},
            "FHIR_SERVICE_INTERFACE_ONLY: true or false is expected",
        ),
        ({}, {"store": "s", "port": 65536}, "port: a number between 0 and 65535 is expected"),
        ({}, {"store": "s", "base_url": "ftp://x"}, "base-url: an address such as https://host/path is expected"),
        ({}, {"store": "s", "base_url": "http://x/?a"}, "base-url: an address such as https://host/path is expected"),
        ({}, {"store": "s", "vendor": "a/b"}, "vendor: letters, digits, dots and dashes are expected"),
        ({}, {"store": "s", "requests_per_second": 0.0}, "requests-per-second: a number above zero is expected"),
        (
            {},
            {"store": "s", "requests_per_second": float("nan")},
            "requests-per-second: a number above zero is expected",
        ),
        ({}, {"store": "s", "max_page_size": 1001}, "max-page-size: a number between 1 and 1000 is expected"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(environ, flags, says):
    with pytest.raises(SettingError) as caught:
        Settings.read(environ, **flags)
    assert str(caught.value) == says


def test_a_wrong_setting_is_a_usage_error_in_one_line(store):
    result = run("check", env={"FHIR_SERVICE_STORE": str(store), "FHIR_SERVICE_PORT": "x"})
    assert (result.returncode, result.stderr) == (2, "Error: FHIR_SERVICE_PORT: a whole number is expected\n")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8400"),
        ("0.0.0.0", "http://127.0.0.1:8400"),  # noqa: S104 - nothing listens
        ("::", "http://[::1]:8400"),
        ("fhir.internal", "http://fhir.internal:8400"),
    ],
)
def test_the_base_url_follows_host_and_port(host, url):
    assert Settings("s", host=host).url == Settings("s", host=host).site.base_url == url
    assert Settings("s", host=host, port=0).bound_to(8400).site.base_url == url
