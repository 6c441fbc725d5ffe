"""What a recovery, or its dry run, tells of a data directory."""

from __future__ import annotations

from typing import Any

from seglog.cli.recover import DirectoryOutcome, RecoverySettings
from seglog.config import BrokerConfig


def told(outcome: DirectoryOutcome, settings: RecoverySettings) -> dict[str, Any]:
    """Everything that is printed, but for the time that it took."""
    return {"rows": outcome.part(settings).partitions, "states": outcome.states,
            "clean": outcome.is_clean,
            "findings": [one.to_dict() for one in outcome.findings],
            "error": outcome.error and str(outcome.error)}


def settings_of(config: tuple[tuple[str, str], ...], level: str, *,
                threads: int = 2) -> RecoverySettings:
    """How `seglog load --recover --level LEVEL` works."""
    reads_all = level == "verify"
    broker = BrokerConfig(sanity_check_level="full" if reads_all else level,
                          num_recovery_threads_per_data_dir=threads)
    return RecoverySettings(broker, broker.log_config(dict(config)), full_states=True,
                            reads_all=reads_all)
