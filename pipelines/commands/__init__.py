"""The commands of `chartferry`, one module for each group."""
