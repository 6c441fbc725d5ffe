"""`seglog load --recover --states` on generated cases: Kafka's states, and Kafka's files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.cli.main import main
from tests.differential.cases import Case, plan
from tests.differential.compare import differences
from tests.differential.kafka import Oracle
from tests.differential.ours import EXPIRATION_MS, files
from tests.differential.sources import Sources

SEED = 12
CASES = 40


def recover(root: Path, case: Case, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What the command prints, and the files that it left."""
    config = {**dict(case.config), "producer.id.expiration.ms": str(EXPIRATION_MS)}
    options = [f"--config={key}={value}" for key, value in config.items()]
    capsys.readouterr()
    main(["load", "--recover", "--states", *options, str(root)])
    printed = capsys.readouterr().out
    found: dict[str, Any] = json.loads(printed) if printed else {}
    for name, state in found.items():
        if (root / name).is_dir():
            state["files_closed"] = files(root / name)
    return found


@pytest.mark.usefixtures("kafka_lib")
def test_the_command_arrives_where_kafka_does(golden: Path, home: Path,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    sources, wrong, compared = Sources(golden, home / "sources"), [], 0
    with Oracle() as oracle:
        for number in range(CASES):
            case = plan(sources, SEED, number)
            # A data directory without an identity has no owner, and one name twice stops a broker.
            if any(kind.startswith(("no_files", "odd_directory", "directory_of", "checkpoint_dam"))
                   for kind, _ in case.damages) or case.source.home == "old":
                continue
            theirs, mine = home / "kafka" / "data", home / "ours" / "data"
            case.build(sources, theirs)
            shutil.copytree(theirs, mine)
            oracle.ask(theirs, dict(case.config))
            ours, kafka = recover(mine, case, capsys), oracle.answer()
            for name, state in kafka.items():
                del state["files_closed" if "error" in state else "files_loaded"]
                if "error" not in state and any(isinstance(value, dict) for one in
                                                state["segments"] for value in one.values()):
                    continue  # the command says of such a log what could not be told, and no more
                compared += 1
                told = {key: value for key, value in ours.get(name, {}).items()
                        if key in ("error", *state)}
                if "error" in told:
                    told["message"] = told.get("message", "").replace(str(mine), "")
                wrong += [f"{case.name} {name}: {line}" for line in differences(state, told)]
            shutil.rmtree(home / "kafka")
            shutil.rmtree(home / "ours")
    assert compared > CASES / 2
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong)
