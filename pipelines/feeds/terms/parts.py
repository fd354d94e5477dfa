"""What all pieces of a feed file have in common."""

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A piece of a feed file: nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False, hide_input_in_errors=True)
