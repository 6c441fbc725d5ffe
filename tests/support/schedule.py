"""Which process of pytest-xdist runs which tests of a quick run.

A file is one process's, for what its tests share (a JVM, a broker). So is a folder of FOLDERS,
whose files share it. Its tests come first, for they take longest; then come the files in the order
of their names, so that the short ones of tests/unit are last and fill the processes.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: Each process that ran one of their files would start a Spark.
FOLDERS = ("tests/spark/",)


class FolderScheduling(LoadFileScheduling):
    """As `--dist loadfile`, but for FOLDERS."""

    def _split_scope(self, nodeid: str) -> str:
        return next(filter(nodeid.startswith, FOLDERS), "") or super()._split_scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        for folder in reversed(FOLDERS):
            if folder in self.workqueue:
                self.workqueue.move_to_end(folder, last=False)
        super()._assign_work_unit(node)
