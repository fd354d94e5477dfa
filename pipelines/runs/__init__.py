"""One batch through the stages."""
