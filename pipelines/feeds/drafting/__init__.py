"""A feed file drafted from an export."""
