"""A job for each feed with a query, which runs every hour and imports new rows of its database.

It works like the command line, so its batches are shown by the sensor `command_line`.
"""

import dagster as dg

from pipelines.dagster.names import DagsterNames
from pipelines.dagster.run_resource import RESOURCE_KEY, workplace_of
from pipelines.feeds.files.catalog import Feed, plain
from pipelines.home.exits import UNREADABLE
from pipelines.importing.all_files import import_all
from pipelines.importing.begin_and_end import summary_of


def query_job(names: DagsterNames, feed: Feed) -> dg.JobDefinition:
    name = names.job(f"query_{plain(feed.name)}")

    @dg.op(
        name=f"ask_{name}",
        required_resource_keys={RESOURCE_KEY},
        description="Queries the database and imports new rows.",
    )
    def ask(context: dg.OpExecutionContext) -> None:
        with workplace_of(context) as place:
            session = place.session(context.log)
            summary = import_all(session, summary_of(session), [], queries=[feed])
            sentences = [summary.error, *(result.message for result in summary.results)]
            context.add_output_metadata({"batches": [str(result.batch_id) for result in summary.results]})
            if summary.exit_code >= UNREADABLE:
                raise dg.Failure("; ".join(each for each in sentences if each) or "see chartferry status")

    @dg.job(
        name=name, tags=names.tags, description=f"Queries the database of the feed `{feed.name}`, and imports new rows."
    )
    def query() -> None:
        ask()

    return query
