"""The parts that the hosts of one deployment share: a target, a ledger and a bucket, reached over the network."""

from collections.abc import Mapping

from sqlalchemy import make_url

from tests.support.commands import environment
from tests.support.fake_s3 import FakeBucket
from tests.support.hosts import Network


def settings(
    joined: Network, target: str, client: Mapping[str, str], bucket: FakeBucket, ledger: str, **more: str
) -> dict[str, str]:
    """Return the environment of a command on a host.

    target: the service's address, as hosts reach it; see `reached`. client: its credentials there.
    """
    return environment(
        **{**bucket.environ(), "AWS_ENDPOINT": reached(joined, bucket.url)},
        FHIR_BASE_URL=target,
        FHIR_CLIENT_ID=client["client_id"],
        FHIR_CLIENT_SECRET=client["client_secret"],
        CHARTFERRY_LEDGER=f"postgresql+psycopg://{database(joined, ledger)}",
        CHARTFERRY_BATCHES="s3://bucket/batches",
        CHARTFERRY_INSECURE="yes",
        CHARTFERRY_SETTLING_SECONDS="0",
        **more,
    )


def reached(joined: Network, url: str) -> str:
    """Make a loopback address of this machine reachable for hosts. Return the address that they use."""
    return f"http://{joined.address}:{joined.serve(int(url.rpartition(':')[2]))}"


def database(joined: Network, url: str) -> str:
    """Make a database of the tests' PostgreSQL reachable for hosts. Return its address for them, without the scheme."""
    at = make_url(url)
    port = joined.serve(path=f"{at.query['host']}/.s.PGSQL.5432")
    return f"tests@{joined.address}:{port}/{at.database}"


def psycopg_address(url: str) -> str:
    """Return the address of a database of the tests' PostgreSQL as psycopg takes it, on this machine."""
    at = make_url(url)
    return f"postgresql://tests@/{at.database}?host={at.query['host']}"
