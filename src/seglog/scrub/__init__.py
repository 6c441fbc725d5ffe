"""Verification of data directories in pieces that any process, such as a Spark executor, can run.

Spark reaches the loader's findings only through this package. It exports checks and the dry run,
which open files read-only; it exports nothing that writes, locks or recovers.
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
