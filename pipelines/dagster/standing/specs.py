"""The names and descriptions of the standing checks: for each feed, for the inbox, and for imports that wait."""

from collections.abc import Sequence

import dagster as dg

from pipelines.dagster.names import Names
from pipelines.feeds.files.catalog import Feed, plain

INBOX_CHECK = "no_file_has_lain_in_the_inbox_for_an_hour"
WAITING_CHECK = "imports_do_not_wait"


def check_of(feed: Feed) -> str:
    """Return the name of the feed's standing check."""
    return f"nothing_of_{plain(feed.name)}_is_broken"


def rejects_check_of(feed: Feed) -> str:
    """Return the name of the check that warns of the feed's open rejects."""
    return f"no_reject_of_{plain(feed.name)}_is_open"


def expectation_of(feed: Feed) -> str:
    """Return the name of the check of a feed's expectations."""
    return f"files_of_{plain(feed.name)}_are_as_expected"


def expecting(feeds: Sequence[Feed]) -> list[Feed]:
    return [feed for feed in feeds if feed.file.expect]


def specs_of(names: Names, feeds: Sequence[Feed]) -> list[dg.AssetCheckSpec]:
    """Return the standing checks of these feeds, and those of the inbox and of imports that wait."""
    described = {
        **{
            check_of(
                feed
            ): f"Right now no batch of `{feed.name}` failed, is left without an end, or had all its records "
            "set aside, and no row is in doubt."
            for feed in feeds
        },
        **{
            rejects_check_of(feed): f"No reject of `{feed.name}` waits for a person: a warning. `rejects export` has "
            "them."
            for feed in feeds
        },
        **{
            expectation_of(feed): f"The newest file of `{feed.name}` came in time, and is as large as [expect] in its "
            "feed says."
            for feed in expecting(feeds)
        },
        INBOX_CHECK: "No file has lain in the inbox for an hour: one that no feed takes, that cannot be received, or "
        "that still waits for its run.",
        WAITING_CHECK: "Neither reference data that is not loaded nor a target that does not answer holds up imports.",
    }
    return [dg.AssetCheckSpec(name, asset=names.published, description=said) for name, said in described.items()]
