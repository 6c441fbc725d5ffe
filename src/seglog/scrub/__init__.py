"""Level `verify` of a load in pieces that any process works on: what executors of a cluster run.

The one door from Spark to the loader's findings. It hands out checks and the dry run, which open
files for reading alone; nothing that writes, locks or recovers is reachable by its names.
"""

from seglog.recovery.callbacks import LoadListener, NullListener
from seglog.recovery.findings import Finding, Severity
from seglog.recovery.loader import LoadOptions
from seglog.recovery.partition_plan import LoadLevel
from seglog.recovery.load_report import LoadReport, PartitionReport
from seglog.recovery.rows import FINDING_FIELDS, exit_code, finding_row
from seglog.recovery.segment_verification import SegmentCheck
from seglog.scrub.pieces import DirectoryScrub, PartitionPiece, SegmentsPiece

__all__ = [
    "FINDING_FIELDS", "DirectoryScrub", "Finding", "LoadLevel", "LoadListener", "LoadOptions",
    "LoadReport", "NullListener", "PartitionPiece", "PartitionReport", "SegmentCheck",
    "SegmentsPiece", "Severity", "exit_code", "finding_row",
]
