"""Rows of exports, and the mark of a reject, for tests of readers of quotes."""

TASKS = "task_id,description,status,requester_id,labels\n"
MARK = "0123456789abcdef"


def payment(key: str, amount: str = "1.00") -> str:
    return f"{key},p1,{amount},2024-01-01,\n"
