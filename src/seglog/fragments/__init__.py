"""Writing to a data directory by many processes at once, and making it visible in one step.

Tasks write fragments (`fragment`): record batches of one partition in a hidden file. One commit
(`publish`) gives them their offsets and moves them into the logs, by a journal of renames
(`journal`) that a crash cannot halve. What a job leaves behind is swept by the next (`job`).
"""

from seglog.fragments.fragment import Fragment, FragmentWriter
from seglog.fragments.job import Job, sweep
from seglog.fragments.journal import finish_commit
from seglog.fragments.layout import partition_count
from seglog.fragments.publish import StreamBatch, check_target, exclusive, publish

__all__ = ["Fragment", "FragmentWriter", "Job", "StreamBatch", "check_target", "exclusive",
           "finish_commit", "partition_count", "publish", "sweep"]
