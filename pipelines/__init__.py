"""The import pipeline and its command line."""

import os

# Read when Arrow is loaded, which would else have a pool of its own for Parquet: that keeps some 40 MB more for the
# 10 MB that a stage has in use at once, and is no faster here.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
