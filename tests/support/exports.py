"""Small exports of payments and tasks in the inbox of a home, and a questionnaire for answers."""

PAYMENTS = "payment_id,patient_id,amount,paid_on,claim_id\n"

QUESTIONS = {
    "resourceType": "Questionnaire",
    "id": "q1",
    "name": "q",
    "status": "active",
    "code": [{"system": "http://loinc.org", "code": "1"}],
    "item": [{"linkId": "1", "type": "text", "text": "?", "repeats": False}],
}
TASKS = "task_id,patient_id,description,status,requester_id\n"


def put(home, name, text):
    (home / "inbox" / name).write_text(text)


def payments(home, *rows, name="payments.csv"):
    put(
        home,
        name,
        PAYMENTS + "".join(f"{key},{patient},{amount},2026-03-01,\n" for key, patient, amount in rows),
    )


def tasks(home, *keys, text="call"):
    put(home, "tasks.csv", TASKS + "".join(f"{key},p1,{text} {key},requested,a\n" for key in keys))
