"""Writes to a data directory by many processes, published in one atomic commit.

Tasks write fragments (`fragment`): record batches of one partition in a hidden file. The commit
(`publish`) assigns their offsets and moves them into the logs through a journal of renames
(`journal`), so that a crash leaves all or none. The next job deletes the files of dead jobs
(`job`).
"""

from seglog.fragments.fragment import Fragment, FragmentWriter
from seglog.fragments.job import Job, sweep
from seglog.fragments.journal import finish_commit
from seglog.fragments.layout import partition_count
from seglog.fragments.publish import StreamBatch, check_target, exclusive, publish

__all__ = ["Fragment", "FragmentWriter", "Job", "StreamBatch", "check_target", "exclusive",
           "finish_commit", "partition_count", "publish", "sweep"]
