"""The names and descriptions of the standing checks: for each feed, for the inbox, and for imports that wait."""

from collections.abc import Sequence

import dagster as dg

from pipelines.dagster.names import Names
from pipelines.feeds.files.catalog import Feed, plain

OF_FEEDS = {
    "nothing_of_{}_is_broken": "Right now no batch of `{}` failed, is left without an end, or had all its records set "
    "aside, and no row is in doubt.",
    "no_reject_of_{}_is_open": "No reject of `{}` waits for a person: a warning. `rejects export` has them.",
    "files_of_{}_are_as_expected": "The newest file of `{}` came in time, and is as large as [expect] in its "
    "feed says.",
}
"""Name and description of each check of a feed, with a place for the feed's name."""
BROKEN, REJECTS, EXPECTED = OF_FEEDS
OF_HOME = {
    "no_file_has_lain_in_the_inbox_for_an_hour": "No file has lain in the inbox for an hour: one that no feed takes, "
    "that cannot be received, or that still waits for its run.",
    "imports_do_not_wait": "Neither reference data that is not loaded, nor a target that does not answer, nor an inbox "
    "beyond the home that is out of reach holds up imports.",
}
INBOX_CHECK, WAITING_CHECK = OF_HOME


def expecting(feeds: Sequence[Feed]) -> list[Feed]:
    return [feed for feed in feeds if feed.file.expect]


def checked(check: str, feeds: Sequence[Feed]) -> dict[str, Feed]:
    """Return the feeds that have a check of `OF_FEEDS`, by the name that it has for each."""
    return {check.format(plain(feed.name)): feed for feed in (expecting(feeds) if check == EXPECTED else feeds)}


def specs_of(names: Names, feeds: Sequence[Feed]) -> list[dg.AssetCheckSpec]:
    """Return the standing checks of these feeds, and those of the inbox and of imports that wait."""
    of_feeds = {
        name: said.format(feed.name) for check, said in OF_FEEDS.items() for name, feed in checked(check, feeds).items()
    }
    described = {**of_feeds, **OF_HOME}
    return [dg.AssetCheckSpec(name, asset=names.published, description=said) for name, said in described.items()]
