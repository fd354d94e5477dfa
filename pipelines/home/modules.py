"""Which libraries a process of ours loads."""

import sys


def leave_pandas_out() -> None:
    """Let pyarrow find no pandas, which it loads to convert any list: 60 MB and half a second of each process.

    To be called first in a process that reads no workbook and no table of a database.
    """
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
