"""Files of batches that a disk, or somebody, damaged, by seed: no command ends with a fault or without a sentence."""

import random

import pytest

from tests.pipelines.ledger.test_lost_ledger_any_history import History
from tests.support.ledgers import lose_ledger

COMMANDS = ("import", "verify", "verify --adopt", "import", "status", "rejects retry", "doubts resolve")
OTHERS = ("rejects export", "evidence", "metrics", "import --remap")
OF_A_BATCH = ("status", "undo --dry-run", "verify", "import --again", "undo", "purge")
SAID = ("[]", "{}", "null", "7", '{"target": 1}', '"x"')


def damage(path, dice):
    body = path.read_bytes()
    match dice.choice(["cut", "noise", "gone", "flipped", "said"]):
        case "cut":
            path.write_bytes(body[: dice.randrange(len(body) + 1)])
        case "noise":
            path.write_bytes(dice.randbytes(200))
        case "gone":
            path.unlink()
        case "flipped" if body:
            at = dice.randrange(len(body))
            path.write_bytes(body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1 :])
        case _:
            path.write_text(dice.choice(SAID))


@pytest.mark.alike
@pytest.mark.parametrize("lost", [True, False], ids=["ledger lost", "ledger kept"])
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 40))])
def test_damaged_files_of_batches_end_no_command_with_a_fault(seed, lost, home, target, asked, chartferry):
    """CLI-CMD-17, STATE-HOME-07"""
    dice = random.Random(seed)
    target.additions = dice.random() < 0.3
    sequence = History(home, target, asked, chartferry, dice)
    sequence.new()
    for _ in range(dice.randrange(1, 5)):
        sequence.step()
    files = sorted(path for path in (home / "batches").rglob("*") if path.is_file() and "source" not in path.parts)
    for path in dice.sample(files, min(len(files), dice.randrange(1, 4))):
        damage(path, dice)
    if lost:
        lose_ledger(home)
    batches = sorted(path.name for path in (home / "batches").iterdir())
    for command in (*COMMANDS, *OTHERS, *(f"{command} {batch}" for command in OF_A_BATCH for batch in batches)):
        code, out, err = chartferry(*command.split())
        assert out or err, command
        assert "fault of this program" not in err, (command, err)
        assert "Traceback" not in err, (command, code)
