"""What the dry run says: offsets, or the exception that Kafka would end with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import seglog
from seglog.config import LogConfig

State = dict[str, Any]


def predict(root: Path, config: Mapping[str, str]) -> dict[str, State]:
    """{partition directory: state} of a verification, which changes nothing."""
    with seglog.open_data_dir(root, level="verify",
                              log_config=LogConfig.from_properties(config)) as data:
        report = data.report
    found: dict[str, State] = {}
    for one in report.partitions:
        if one.kafka_error is not None:
            found[one.directory] = {"error": one.kafka_error,
                                    "message": str(one.kafka_message).replace(str(root), "")}
        elif one.log_end_offset is not None:
            found[one.directory] = {"log_start_offset": one.log_start_offset,
                                    "log_end_offset": one.log_end_offset}
    return found
