"""Links in the inbox: those that lead out of it are followed only where a setting allows it."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.dagster.inbox.look import LookContext, SeenFiles, look
from pipelines.feeds.files.catalog import Feed, load_feeds
from pipelines.home import inbox as inboxes
from pipelines.home.batch import UnreadableFile
from pipelines.home.inbox import LEADS_OUT, SETTING, SWAPPED, Inbox
from pipelines.receiving.stage import receive
from pipelines.session.waiting_files import find_files

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
ROWS = "payment_id,patient_id,amount,paid_on\nA1,p1,10.00,2026-01-05\n"
NAME = "payments-1.csv"


@pytest.fixture
def feed() -> Feed:
    found = load_feeds().match(NAME)
    assert found
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a file outside of its inbox."""
    (tmp_path / "home" / "inbox" / "later").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "export.csv").write_text(ROWS)
    return tmp_path / "home"


def to_the_file(link: Path, outside: Path) -> None:
    link.symlink_to(outside / "export.csv")


def through_another_link(link: Path, outside: Path) -> None:
    (link.parent / "later" / "folder").symlink_to(outside)
    link.symlink_to("later/folder/export.csv")


def up_and_over(link: Path, outside: Path) -> None:
    link.symlink_to(f"../../{outside.name}/export.csv")


WAYS = [to_the_file, through_another_link, up_and_over]


@pytest.mark.parametrize("way", WAYS)
def test_a_link_that_leads_out_is_refused_and_left(way: Callable[[Path, Path], None], home: Path, feed: Feed) -> None:
    """FEED-FILE-10: by the look at the inbox, by the sensor, and by the copy itself."""
    link, inbox = home / "inbox" / NAME, Inbox.of(home, {})
    way(link, home.parent / "elsewhere")
    matched, left = find_files([inbox.folder], load_feeds(), inbox=inbox)
    assert matched == []
    assert [each.why for each in left if each.path == link] == [LEADS_OUT]
    with pytest.raises(UnreadableFile, match=f"^{NAME}: a link that leads out of the inbox"):
        receive(link, feed, home, NOW, inbox)
    by = LookContext(load_feeds(), NOW, inbox=inbox)
    found = look(inbox.folder, look(inbox.folder, SeenFiles(), by), by)
    assert (found.refused, found.ready) == ([NAME], {})
    assert link.is_symlink()
    assert not list((home / "batches").iterdir())


@pytest.mark.parametrize("way", WAYS)
def test_a_link_into_a_folder_that_the_setting_names_is_followed(
    way: Callable[[Path, Path], None], home: Path, feed: Feed
) -> None:
    """FEED-FILE-10: the import removes the link, and leaves the file."""
    link, outside = home / "inbox" / NAME, home.parent / "elsewhere"
    refused = look(home / "inbox", SeenFiles(), LookContext(load_feeds(), NOW, inbox=Inbox.of(home, {})))
    inbox = Inbox.of(home, {SETTING: os.pathsep.join(["/nowhere", str(outside)])})
    way(link, outside)
    assert [each.path for each in find_files([inbox.folder], load_feeds(), inbox=inbox)[0]] == [link]
    by = LookContext(load_feeds(), NOW, inbox=inbox)
    assert look(inbox.folder, look(inbox.folder, refused, by), by).number == 1
    received = receive(link, feed, home, NOW, inbox)
    assert received.path_in_batch.read_text() == ROWS
    assert not link.is_symlink()
    assert (outside / "export.csv").read_text() == ROWS


def test_a_link_to_what_the_inbox_holds_is_taken(home: Path, feed: Feed) -> None:
    """FEED-FILE-10"""
    (home / "inbox" / "later" / "export.csv").write_text(ROWS)
    link = home / "inbox" / NAME
    link.symlink_to("later/export.csv")
    assert [each.path for each in find_files([home / "inbox"], load_feeds(), inbox=Inbox.of(home, {}))[0]] == [link]
    assert receive(link, feed, home, NOW).path_in_batch.read_text() == ROWS
    assert [path.name for path in (home / "inbox").iterdir()] == ["later"]


def test_an_inbox_may_itself_be_a_link(home: Path, feed: Feed) -> None:
    """FEED-FILE-10"""
    (home / "inbox").rename(home.parent / "share")
    (home / "inbox").symlink_to(home.parent / "share")
    (home / "inbox" / NAME).write_text(ROWS)
    assert len(find_files([home / "inbox"], load_feeds(), inbox=Inbox.of(home, {}))[0]) == 1
    assert receive(home / "inbox" / NAME, feed, home, NOW).path_in_batch.read_text() == ROWS


def test_a_link_whose_folder_a_person_names_is_taken(home: Path, feed: Feed) -> None:
    (home.parent / "elsewhere" / NAME).symlink_to("export.csv")
    assert receive(home.parent / "elsewhere" / NAME, feed, home, NOW).path_in_batch.read_text() == ROWS
    assert (home.parent / "elsewhere" / NAME).is_symlink()


@pytest.mark.parametrize("swapped", ["the file", "its folder"])
def test_a_link_that_comes_between_look_and_copy_leads_nowhere(
    swapped: str, home: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FEED-FILE-10"""
    secret, later = home.parent / "elsewhere", home / "inbox" / "later"
    (later / "export.csv").write_text(ROWS)
    link = home / "inbox" / NAME
    link.symlink_to("later/export.csv")
    opened = inboxes._open_below

    def too_late(*about: object) -> int:
        if swapped == "the file":
            (later / "export.csv").unlink()
            (later / "export.csv").symlink_to(secret / "export.csv")
        else:
            later.rename(home / "moved")
            later.symlink_to(secret)
        return opened(*about)  # type: ignore[arg-type]

    monkeypatch.setattr(inboxes, "_open_below", too_late)
    with pytest.raises(UnreadableFile) as error:
        receive(link, feed, home, NOW)
    assert str(error.value) == f"{NAME}: {SWAPPED}"
    assert not list((home / "batches").iterdir())


def test_control_totals_that_lead_out_are_not_taken_along(home: Path, feed: Feed) -> None:
    """FEED-FILE-10, LEDGER-14"""
    (home / "inbox" / NAME).write_text(ROWS)
    (home / "inbox" / f"{NAME}.control.json").symlink_to(home.parent / "elsewhere" / "export.csv")
    with pytest.raises(UnreadableFile, match=r"control\.json: a link that leads out of the inbox"):
        receive(home / "inbox" / NAME, feed, home, NOW)
    assert (home / "inbox" / NAME).exists()


def test_a_link_that_is_named_by_itself_is_refused_too(home: Path) -> None:
    """FEED-FILE-10"""
    link = home / "inbox" / NAME
    link.symlink_to(home.parent / "elsewhere" / "export.csv")
    assert [each.why for each in find_files([link], load_feeds(), inbox=Inbox.of(home, {}))[1]] == [LEADS_OUT]


def test_a_loop_of_links_ends_with_one_sentence(home: Path, feed: Feed) -> None:
    """FEED-FILE-10"""
    (home / "inbox" / NAME).symlink_to(NAME)
    with pytest.raises(UnreadableFile, match="cannot be taken in"):
        receive(home / "inbox" / NAME, feed, home, NOW)
