"""Fixtures that the areas share: a real service on loopback over a fresh store with the small world loaded."""

import atexit
import gc
import itertools
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from zlib import crc32

import duckdb
import httpx
import hypothesis
import pytest
import uvicorn
from alembic.config import Config
from alembic.script import ScriptDirectory

from fhir_service import ids
from fhir_service.app import create_app
from fhir_service.reference.loading import load
from fhir_service.service import Service, utc_now
from fhir_service.settings import Settings
from fhir_service.web.protocol import HttpProtocol
from pipelines.home import files
from pipelines.ledger.access import JOURNAL
from pipelines.session import bundled
from tests.support import loopback
from tests.support.crossing import leave_for_long
from tests.support.dialects import share_compiled
from tests.support.ending import workers_end_at_once
from tests.support.instances import Bench, Instances
from tests.support.order import SECONDS
from tests.support.plans import hold_plans
from tests.support.postgres import NoPostgres, Postgres, running_server
from tests.support.publishing import comments_of_ours_are_left_out
from tests.support.replaying import assert_replay_is_equal, is_seldom, new_ledgers_are_copies
from tests.support.starting import OwnService
from tests.support.temporary_files import keep_files_in_memory

WORLD = Path(__file__).parent / "spec" / "world"
BENCH = "tables.duckdb"
"""The name of a database that a command throws away: see `pipelines.verifying.staging.workbench`."""
ALL_LONG = re.compile(r"^pytestmark = (IN_A_BROWSER|\[?\s*pytest\.mark\.long)\b", re.MULTILINE)
"""What a module says all tests of which are long."""
gc.disable()  # until all is imported and collected, which leaves little to be freed
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what it does not wait for. Some tests interrupt themselves.
    signal.signal(signal.SIGINT, signal.default_int_handler)
workers_end_at_once()
share_compiled()
hold_plans()
keep_files_in_memory()


@dataclass(frozen=True)
class Running:
    """A service that listens: its parts, its address and a client that may do everything."""

    service: Service
    url: str
    headers: dict[str, str]
    client: httpx.Client


@contextmanager
def running(
    folder: Path,
    world: Path | None = WORLD,
    clock: Callable[[], datetime] = utc_now,
    new_id: Callable[[], str] = ids.new_id,
    **settings: object,
) -> Iterator[Running]:
    """A service over a new store in `folder`, with reference data from `world`.

    Where that is the small world as any process loads it, the store is a copy.
    """
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        options: dict[str, object] = {"store": str(folder / "service.duckdb"), "port": port} | settings
        options.setdefault("audit", str(folder / "service.duckdb.audit.ndjson"))
        plain = "store" not in settings and clock is utc_now and new_id is ids.new_id
        is_copy = world == WORLD and plain and not Path(str(options["store"])).exists()
        if is_copy:
            shutil.copy(small_world(), str(options["store"]))
        service = Service.open(Settings(**options), clock=clock, new_id=new_id)  # type: ignore[arg-type]
        if world and not is_copy:
            load_world(service, world)
        config = uvicorn.Config(create_app(service), http=HttpProtocol, ws="none", log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            client = service.auth.add_client("tests")
            url = service.settings.url
            form = {"grant_type": "client_credentials"} | {k: client[k] for k in ("client_id", "client_secret")}
            with loopback.Client(base_url=url, timeout=60) as http:
                token = http.post("/auth/token", data=form).json()["access_token"]
                headers = {"authorization": f"Bearer {token}"}
                http.headers.update(headers)
                yield Running(service, url, headers, http)
        finally:
            server.should_exit = True
            thread.join()
            service.close()


@cache
def small_world() -> Path:
    """A store of DuckDB that holds the small world, made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="world-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    store = folder / "service.duckdb"
    with closing(Service.open(Settings(str(store), audit=str(folder / "audit")))) as service:
        load_world(service, WORLD)
    return store


def load_world(service: Service, world: Path) -> None:
    """Load reference data."""
    load([world], service.writer, service.store, service.clock, service.new_id, service.site)


FROZEN = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)


# --- Databases ------------------------------------------------------------------------------------

BOTH = ("duckdb", "postgresql")
Database = Callable[[Path], AbstractContextManager[str]]
"""Makes an empty store: given a folder of its own, what `--store` takes."""


def pytest_configure(config: pytest.Config) -> None:
    """An example of Hypothesis may take long on a busy machine. `make test` tries a tenth of those of each law."""
    hypothesis.settings.register_profile("all", deadline=None)
    hypothesis.settings.register_profile("few", deadline=None, max_examples=10)
    some = "not long" in config.option.markexpr
    hypothesis.settings.load_profile("few" if some else "all")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of a module with `STORES = BOTH` run on each database, those of others on DuckDB."""
    stores = getattr(metafunc.module, "STORES", None)
    if stores and "database" in metafunc.fixturenames:
        metafunc.parametrize("database", stores, indirect=True, scope="session")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module whose tests are all long, where none of those is to run: some need what takes long to import."""
    if "not long" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return bool(ALL_LONG.search(collection_path.read_text(encoding="utf-8"))) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Mark the tests that are left for `make test-all`, before tests are selected by marks."""
    leave_for_long(items)
    yield
    longest_first(items)


def longest_first(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, so that workers end together."""
    items.sort(key=lambda item: -SECONDS.get(item.nodeid.partition("::")[0].removeprefix("tests/"), 0))


def pytest_collection_finish() -> None:
    """Keep what is imported and collected out of the searches for what can be freed: it stays to the end.

    The others are made less often: of 700 new objects each, they take a thirtieth of all time.
    """
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True)
def journals_replay(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test that wrote a ledger, its journal gives the same tables. LEDGER-20

    `make test` looks after one test of sixteen, always the same ones, and wherever a ledger holds what none had.
    """
    told = "tmp_path" in request.fixturenames and not request.node.get_closest_marker("by_hand")
    folder: Path | None = request.getfixturevalue("tmp_path") if told else None
    some = "not long" in request.config.option.markexpr and crc32(request.node.nodeid.encode()) % 16
    yield
    for path in folder.rglob("ledger.db") if folder else ():
        if path.with_name(JOURNAL).exists() and (not some or is_seldom(path)):
            assert_replay_is_equal(path)


@contextmanager
def own_services_start_warm() -> Iterator[None]:
    """The services that commands in this process start come from the warm process, and cost no imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled, "SERVICE", OwnService())
        yield


@contextmanager
def clients_share_contexts_of_tls() -> Iterator[None]:
    """Of httpx: a command asks over plain HTTP, and each of its clients would read all certificates first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", cache(httpx.create_ssl_context))
        yield


@contextmanager
def databases_in_memory_share_instances() -> Iterator[None]:
    """Let commands in this process use existing DuckDB instances for sorts in memory."""
    with pytest.MonkeyPatch.context() as patch, closing(Instances()) as instances:
        patch.setattr(files, "open_in_memory", instances)
        yield


@contextmanager
def publications_take_one_thread() -> Iterator[None]:
    """Let publications in this process use one thread: on few rows, threads that wait for each other take a sixth of
    the time.

    Commands in separate processes use a thread per core. `verify` and `evidence` compare in memory instead of a
    temporary file.
    """
    opened = files._opened

    def cheaply(file: Path | None, given: dict[str, str | bool | int]) -> duckdb.DuckDBPyConnection | Bench:
        if file is None:
            return opened(file, given)
        if file.name == BENCH:
            return Bench(opened(None, given))
        return duckdb.connect(str(file), config={**given, "threads": 1})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_opened", cheaply)
        yield


@contextmanager
def scripts_of_dagster_are_read_once() -> Iterator[None]:
    """Those that change its tables: of each database that it makes or opens, it would read all of them, 50 ms each."""
    known = dict[str | None, ScriptDirectory]()
    read = ScriptDirectory.from_config

    def once(config: Config) -> ScriptDirectory:
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = read(config)
        return known[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", once)
        yield


CHEAPER = (
    own_services_start_warm,
    new_ledgers_are_copies,
    clients_share_contexts_of_tls,
    databases_in_memory_share_instances,
    publications_take_one_thread,
    scripts_of_dagster_are_read_once,
    comments_of_ours_are_left_out,
)


@pytest.fixture(scope="session", autouse=True)
def what_is_set_up_costs_less() -> Iterator[None]:
    """Share expensive preparations. They are one fixture, since pytest looks up each fixture for every test."""
    with ExitStack() as stack:
        for cheaper in CHEAPER:
            stack.enter_context(cheaper())
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for the session."""
    try:
        with running_server() as found:
            yield found
    except NoPostgres as error:
        pytest.skip(str(error))


def in_a_file(folder: Path) -> AbstractContextManager[str]:
    """Makes a store on DuckDB."""
    return nullcontext(str(folder / "service.duckdb"))


@pytest.fixture(scope="session")
def database(request: pytest.FixtureRequest) -> Database:
    """Makes stores on the database of this round."""
    if getattr(request, "param", "duckdb") == "duckdb":
        return in_a_file
    server: Postgres = request.getfixturevalue("postgres")
    return lambda _: server.database()


@pytest.fixture(scope="session")
def models() -> dict[tuple[str, bool], str]:
    """Stores that were made to be copied, of the whole session: by fixture, and whether it is on DuckDB."""
    return {}


Copies = Callable[[str, Callable[[Service], None]], Database]


@pytest.fixture(scope="session")
def copies(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    database: Database,
    models: dict[tuple[str, bool], str],
) -> Copies:
    """Makes stores that are copies of one, which is filled once for each database: a copy takes a third of the time."""

    def copied(name: str, fill: Callable[[Service], None]) -> Database:
        known = (name, database is in_a_file)
        folder = tmp_path_factory.mktemp(name)
        if known not in models:
            store = str(folder / "service.duckdb") if known[1] else request.getfixturevalue("postgres").create()
            with closing(Service.open(Settings(store, audit=str(folder / "audit")), lambda: FROZEN)) as service:
                fill(service)
            models[known] = store
        if known[1]:
            return lambda own: nullcontext(shutil.copy(models[known], str(own)))
        server: Postgres = request.getfixturevalue("postgres")
        return lambda _: server.database(like=models[known])

    return copied


@pytest.fixture(scope="session")
def empty(copies: Copies) -> Database:
    """Make empty stores, for tests that do not test the making of a store."""
    return copies("empty", lambda _: None)


@pytest.fixture(scope="session")
def ready(copies: Copies) -> Database:
    """Makes stores that hold the small world."""
    return copies("ready", lambda service: load_world(service, WORLD))


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, ready: Database) -> Iterator[Running]:
    """One service for tests that only add to it, or look at what they made themselves."""
    folder = tmp_path_factory.mktemp("service")
    with ready(folder) as store, running(folder, world=None, store=store) as found:
        yield found


@pytest.fixture
def fresh_service(tmp_path: Path, ready: Database) -> Iterator[Running]:
    """A service of the test's own."""
    with ready(tmp_path) as store, running(tmp_path, world=None, store=store) as found:
        yield found


def counted_ids() -> Callable[[], str]:
    """Predictable ids: UUIDs that count."""
    numbers = itertools.count(1)
    return lambda: str(uuid.UUID(int=next(numbers)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The coverage of the requirements, below the tests' own figures."""
    from tests.spec.test_coverage import named, of_areas, uncovered

    wanted, left = of_areas(), uncovered()
    terminalreporter.write_line(
        f"requirements of the interface: {len(wanted & named())} of {len(wanted)} named by a case or a test, "
        f"{len(left)} left out with a reason ({', '.join(left)})"
    )
