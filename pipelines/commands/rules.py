"""The command `rules`: what the rules of rejects say, where they come from, and what to do."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from pipelines.commands.common import NameArgument
from pipelines.home.exits import ALL_LOADED, WronglyAsked

if TYPE_CHECKING:
    from pipelines.feeds.terms.rulebook import RuleEntry


@click.command(short_help="Explains a rule: what it says, who decided it, what to do.")
@click.argument("rule_id", metavar="[ID]", type=NameArgument(), required=False)
def rules(rule_id: str | None) -> int:
    """Lists the rules that a reject may name; or shows a rule's sentence, its source, and what to do."""
    from pipelines.feeds.terms import rulebook

    known = rulebook.rules()
    if rule_id is None:
        click.echo("\n".join(_list(known)))
        return ALL_LOADED
    name = next((each for each in known if each.lower() == rule_id.lower()), None)
    if name is None:
        near = get_close_matches(rule_id.upper(), known, 1)
        hint = f"did you mean {near[0]}?" if near else "chartferry rules lists them"
        raise WronglyAsked(f"{rule_id}: no such rule; {hint}")
    entry = known[name]
    click.echo(f"{name}: {entry.sentence}\nwho says so: {rulebook.BASES[entry.basis]}\nwhat to do: {entry.do}")
    return ALL_LOADED


def _list(known: Mapping[str, "RuleEntry"]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in (known, [entry.basis for entry in known.values()])]
    for name, entry in known.items():
        yield f"{name.ljust(widths[0])}  {entry.basis.ljust(widths[1])}  {entry.sentence}"
