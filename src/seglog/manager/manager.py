"""LogManager: every log of every data directory, from start to shutdown."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Self

from seglog.arguments import optional
from seglog.config import BrokerConfig, LoadConfig, LogConfig
from seglog.config.definition import at_least
from seglog.errors import (
    KafkaStorageError, LogManagerStateError, UnknownTopicOrPartitionError,
)
from seglog.forks import ending
from seglog.log.log_dir_failures import CLOSED, LogDirFailure, LogDirFailureChannel
from seglog.log.scheduler import Scheduler, Time
from seglog.log.stats import BrokerTopicStats
from seglog.log.unified_log import LogContext, UnifiedLog
from seglog.manager.offset_checkpoints import Checkpoints
from seglog.manager.log_cleaning import LogCleaning
from seglog.manager.closing import abandon_logs, close_logs
from seglog.manager.configs import TopicConfigs
from seglog.manager.background_checks import BackgroundChecks, open_reader
from seglog.manager.directories import (
    agreed_broker_epoch, configured_log_dirs, refuse_foreign_directories,
)
from seglog.manager.identity import read_identities
from seglog.manager.live import LiveDirectories
from seglog.manager.loading import LoadSettings, LogLoading
from seglog.manager.operations import LogOperations
from seglog.manager.startup_callbacks import StartupCallbackFailure, StartupCallbacks
from seglog.manager.state import ManagerState
from seglog.manager.table import LogTable, dir_of
from seglog.manager.tasks import BackgroundTasks
from seglog.metrics import MetricsRegistry
from seglog.model import TopicPartition
from seglog.recovery.callbacks import LoadListener, NullListener
from seglog.recovery.partition_plan import LoadLevel
from seglog.recovery.load_report import LoadReport
from seglog.storage.partition_log import PartitionLog
from seglog.storage.meta import MetaProperties

__all__ = ["LogManager"]

_log = logging.getLogger(__name__)
_Path = str | os.PathLike[str]


def _never(_: UnifiedLog) -> bool:
    return False


class LogManager(LogOperations):
    """The logs of one or more data directories, opened for writing (Kafka: LogManager).

        with seglog.LogManager(["/data/k1", "/data/k2"]) as manager:
            log = manager.get_log(seglog.TopicPartition("orders", 0))

    The constructor creates missing directories, compares their `meta.properties` and takes their
    locks. `startup` loads. `shutdown` flushes, closes, and writes the clean shutdown marker, so
    that a broker starts without recovery. A `with` block does the last two.

    Without a `scheduler` it only opens, serves and closes: there is no periodic retention, flush or
    deletion. With one it does all that a broker's does (docs/manager.md).

    A directory that fails (an I/O error, a full disk, a permission) goes offline with its logs, and
    a separate thread calls `on_log_dir_failure`; the others keep working. If no directory is left,
    all methods raise AllLogDirsFailedError. Safe from any thread.
    """

    def __init__(self, log_dirs: _Path | Sequence[_Path] | None = None, *,
                 config: LoadConfig | BrokerConfig | None = None,
                 log_config: LogConfig | None = None,
                 topic_configs: Mapping[str, LogConfig] | None = None,
                 cluster_id: str | None = None, node_id: int | None = None,
                 is_stray: Callable[[UnifiedLog], bool] = _never,
                 scheduler: Scheduler | None = None, time: Time | None = None,
                 listener: LoadListener | None = None,
                 on_log_dir_failure: Callable[[LogDirFailure], object] | None = None,
                 on_load_error: Callable[[str, Exception], object] | None = None,
                 load: Callable[..., Any] | None = None, keep_log_starts: bool = False,
                 metrics: MetricsRegistry | None = None) -> None:
        """`log_dirs` default to those of `config` (a BrokerConfig: `server.properties`).

        `log_config` are the settings of topics that `topic_configs` does not name. `is_stray` says
        whether a loaded log is stray; its directory is then renamed. `cluster_id` and `node_id` are
        compared with each `meta.properties`.

        Kafka stops its start at a log that it abandons, and takes a data directory offline that has
        an unreadable one. With `on_load_error(path, error)` the other logs are loaded, and the
        directory gets no clean shutdown marker. `load` replaces `log.unified_log.load_unified_log`,
        with its arguments except for the context; LoadedLogs suffice to recover. `keep_log_starts`
        keeps checkpointed log starts below first segments: which topics are tiered is not known.

        `scheduler` runs the background tasks, and those of the logs, with the clock `time`. If it
        has not been started, `startup` starts it and `shutdown` shuts it down. Otherwise its owner
        shuts it down, before this manager.

        A directory that cannot be used (not readable, `meta.properties` damaged or of a newer
        format) is offline from the beginning. Raises LogDirLockedError and KafkaStorageError (the
        directory holds other things than logs), and then changes nothing. Also raises
        InconsistentLogDirError, DuplicateLogDirError, AllLogDirsFailedError, ConfigError.
        """
        optional(LoadConfig, config=config)
        optional(LogConfig, log_config=log_config)
        optional(LoadListener, listener=listener)
        optional(Scheduler, scheduler=scheduler)
        optional(Time, time=time)
        optional(MetricsRegistry, metrics=metrics)
        self.config = config if config is not None else LoadConfig()
        broker = self.config if isinstance(self.config, BrokerConfig) else BrokerConfig()
        #: Absolute paths, as configured.
        self.log_dirs = configured_log_dirs(log_dirs, self.config)
        self.metrics = metrics if metrics is not None else MetricsRegistry()
        self._is_stray, self._listener = is_stray, listener or NullListener()
        self._on_failure, self._on_load_error, self._load = on_log_dir_failure, on_load_error, load
        self._recovery_threads = self.config.num_recovery_threads_per_data_dir
        self._segment_threads = self.config.num_segment_loading_threads_per_data_dir
        self._callbacks, self._checks = StartupCallbacks(), BackgroundChecks()
        self._channel = LogDirFailureChannel()
        self._loading: LogLoading | None = None
        self._load_reports: dict[str, LoadReport] = {}
        self._handler: threading.Thread | None = None
        self._phase = "new"  # then starting, running, closed
        self._lock = threading.RLock()
        refuse_foreign_directories(self.log_dirs)
        self._identities = read_identities(self.log_dirs, cluster_id, node_id)
        self._scheduler = scheduler or Scheduler()
        self._owns_scheduler = False
        super().__init__(self._make_state(broker, log_config or broker.log_config(),
                                          time or Time(), keep_log_starts, topic_configs or {}))
        self._tasks = BackgroundTasks(
            self._state, self._deletion, None if scheduler is None else broker)
        self._gauges = self._register_gauges()

    def __repr__(self) -> str:
        return f"LogManager({', '.join(map(repr, self.log_dirs))}, {self._phase})"

    def _make_state(self, broker: BrokerConfig, default: LogConfig, time: Time, keep: bool,
                    topic_configs: Mapping[str, LogConfig]) -> ManagerState:
        configs = TopicConfigs(default, topic_configs, broker.remote_log_storage_system_enable)
        directories = LiveDirectories(self.log_dirs, self._identities, self._channel, keep)
        context = LogContext(
            self._scheduler, time, self._channel,
            transaction_verification=broker.transaction_partition_verification_enable,
            max_transaction_timeout_ms=broker.transaction_max_timeout_ms,
            producer_id_expiration_check_interval_ms=
            broker.producer_id_expiration_check_interval_ms,
            remote_storage=broker.remote_log_storage_system_enable,
            stats=BrokerTopicStats(self.metrics))
        table = LogTable(time.milliseconds, configs.serve)
        cleaning = LogCleaning(table, configs, directories, broker, context, self.metrics)
        return ManagerState(
            directories, table, self._channel, configs, Checkpoints(directories, table), cleaning,
            context, self.config.producer_id_expiration_ms)

    def _register_gauges(self) -> list[str]:
        live, state = self._state.directories, self._state
        group = self.metrics.group("kafka.log", "LogManager")
        names = group.gauges({
            "OfflineLogDirectoryCount": lambda: len(live.offline),
            "CordonedLogDirectoryCount": lambda: len(self.cordoned_log_dirs)}, {})
        for path in self.log_dirs:
            names += group.gauges({
                "LogDirectoryOffline": partial(lambda one: int(live.get(one) is None), path),
                "LogDirectoryCordoned": partial(
                    lambda one: int(one in self.cordoned_log_dirs), path),
            }, {"logDirectory": path})
        return names + self.metrics.group("kafka.server", "ReplicaManager").gauges(
            {"ProducerIdCount": lambda: state.table.producer_count(state.now_ms())}, {})

    # ---- start and end --------------------------------------------------------------------------

    def startup(self) -> None:
        """Loads all logs, then runs the startup callbacks.

        Raises the errors at which a broker refuses to start: DuplicatePartitionError,
        InvalidTopicPartitionError for a foreign subdirectory, and LogLoadError, with Kafka's
        exception name, for a log that the loader abandons. Also raises AllLogDirsFailedError.
        `shutdown` must still be called then.
        """
        with self._lock:
            self._require("new")
            self._phase = "starting"
            self._owns_scheduler = self._load is None and not self._scheduler.is_started
            if self._owns_scheduler:
                self._scheduler.startup()
            loading = self._loading = LogLoading(self._state, self.metrics, self._load_settings())
        try:
            loading.run()
        finally:
            self._load_reports = loading.reports
            self._loading = None
        while (failure := self._channel.take_next_offline_log_dir(block=False)) is not None:
            self._handle_log_dir_failure(failure)
        with self._lock:
            self._state.directories.require_one()
            self._require("starting")
            self._handler = threading.Thread(target=self._handle_failures,
                                             name="LogDirFailureHandler", daemon=True)
            self._handler.start()
            self._phase = "running"
            self._tasks.start(is_quiet=self._load is not None)
        self._callbacks.fire()

    def _load_settings(self) -> LoadSettings:
        return LoadSettings(
            self._recovery_threads, self._segment_threads,
            LoadLevel(self.config.sanity_check_level),
            not self.config.sanity_check_all_logs_enabled,
            None if self._is_stray is _never else self._is_stray, self._listener, self._load,
            self._on_load_error)

    @ending
    def shutdown(self, broker_epoch: int = -1) -> None:
        """Flushes and closes all logs, writes the checkpoints, marks each directory without errors,
        and releases the locks. A second call does nothing; it does not wait for the first, which
        may wait for its thread (a task, `on_log_dir_failure`).

        A log that cannot be closed is logged; its directory gets no marker.
        """
        with self._lock:
            if self._phase == "closed":
                return
            self._phase = "closed"
            loading = self._loading
        _log.info("Shutting down.")
        self.metrics.remove_all(self._gauges)
        try:
            self._stop(loading)
            self._state.checkpoints.high_watermarks()
            close_logs(self._state.directories.all(), self._state.table, self._channel,
                       self._recovery_threads, broker_epoch)
        except BaseException:  # an interrupt: threads may still work, and the locks are released
            abandon_logs(self._state.table)
            raise
        finally:
            self._state.remove_log_metrics()
            for directory in self._state.directories.all():
                directory.unlock()
        _log.info("Shutdown complete.")

    def _stop(self, loading: LogLoading | None) -> None:
        """Ends all threads."""
        if loading is not None:
            loading.cancel()
        self._tasks.stop()
        if self._owns_scheduler:
            self._scheduler.shutdown()
        self._state.seal()
        for log in self._state.table.opened():
            if log.deferred_checks is not None:
                log.deferred_checks.stop()
        self._checks.close()
        self._channel.close()
        if self._handler is not None and self._handler is not threading.current_thread():
            self._handler.join()

    def __enter__(self) -> Self:
        if self._phase == "new":
            try:
                self.startup()
            except BaseException:
                self.shutdown()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.shutdown()

    def register_startup_callback(self, callback: Callable[[], object]) -> None:
        """Runs `callback()` once, when all logs are loaded and the manager works (Kafka:
        BrokerReadyCallback), after those registered before it; at once if that is so already. An
        exception is logged, is in `startup_callback_failures`, and does not stop the others.
        """
        self._callbacks.register(callback)

    @property
    def startup_callback_failures(self) -> tuple[StartupCallbackFailure, ...]:
        """The callbacks that raised, and their exceptions."""
        return self._callbacks.failures

    @property
    def load_reports(self) -> dict[str, LoadReport]:
        """What `startup` found and did, by data directory, for loaded ones."""
        return dict(self._load_reports)

    @property
    def is_running(self) -> bool:
        """Whether all logs are loaded and the manager is not shut down."""
        return self._phase == "running"

    def resize_recovery_thread_pool(self, new_size: int) -> None:
        """Changes `num.recovery.threads.per.data.dir`, also for a running load."""
        at_least(1)("num.recovery.threads.per.data.dir", new_size)
        _log.info("Resizing recovery thread pool size for each data dir from %d to %d",
                  self._recovery_threads, new_size)
        with self._lock:
            self._recovery_threads = new_size
            self._checks.resize(new_size)
            if self._loading is not None:
                self._loading.resize_recovery(new_size)

    def resize_segment_loading_thread_pool(self, new_size: int) -> None:
        """Changes `num.segment.loading.threads.per.data.dir`, also for a running load with more
        than one thread."""
        at_least(1)("num.segment.loading.threads.per.data.dir", new_size)
        _log.info("Resizing segment loading thread pool size for each data dir from %d to %d",
                  self._segment_threads, new_size)
        with self._lock:
            self._segment_threads = new_size
            if self._loading is not None:
                self._loading.resize_segment_loading(new_size)

    # ---- logs -----------------------------------------------------------------------------------

    def get_log(self, topic_partition: TopicPartition,
                is_future: bool = False) -> UnifiedLog | None:
        """The current log of a partition, or the copy that a move builds; None if there is none.

        Raises AllLogDirsFailedError; KafkaStorageError if its directory has just failed.
        """
        self._state.directories.require_one()
        return self._state.table.get(topic_partition, is_future)

    def open_log(self, topic_partition: TopicPartition) -> PartitionLog:
        """Opens a log for reading, to be closed by the caller; it does not follow later appends.

        With `sanity.check.all.logs.enabled=false` the first thread that reads an unchecked segment
        checks it. Raises UnknownTopicOrPartitionError, KafkaStorageError.
        """
        log = self.get_log(topic_partition)
        if log is None:
            raise UnknownTopicOrPartitionError(f"there is no log of {topic_partition} here")
        return open_reader(log)

    def on_become_leader(self, partitions: Iterable[TopicPartition]) -> list[Future[None]]:
        """Checks the segments of these partitions in background threads, if a start with
        `sanity.check.all.logs.enabled=false` deferred that (KIP-263).

        Returns at once, with a future for each log that has something to check. Partitions without
        a log are skipped.
        """
        found = (self.get_log(key) for key in partitions)
        futures = (self._checks.submit(log, self._recovery_threads) for log in found if log)
        return [future for future in futures if future is not None]

    @property
    def all_logs(self) -> list[UnifiedLog]:
        """Current and future logs."""
        return self._state.table.served()

    @property
    def current_logs(self) -> dict[TopicPartition, UnifiedLog]:
        """The logs in place, by partition."""
        return self._state.table.current

    @property
    def future_logs(self) -> dict[TopicPartition, UnifiedLog]:
        """The copies that moves between directories build."""
        with self._state.table.lock:
            return dict(self._state.table.future)

    @property
    def stray_logs(self) -> dict[TopicPartition, UnifiedLog]:
        """Stray logs: not served, not closed, not deleted."""
        with self._state.table.lock:
            return dict(self._state.table.stray)

    @property
    def logs_to_be_deleted(self) -> list[UnifiedLog]:
        """Logs in `-delete` directories."""
        with self._state.table.lock:
            return [one.log for one in self._state.table.to_be_deleted]

    def logs_in_dir(self, log_dir: _Path) -> list[UnifiedLog]:
        """Current and future logs of one directory. LogDirNotFoundError."""
        return self._state.table.served_in(self._state.directories.configured(log_dir))

    # ---- directories ----------------------------------------------------------------------------

    @property
    def live_log_dirs(self) -> list[str]:
        """The working directories."""
        return self._state.directories.paths

    @property
    def offline_log_dirs(self) -> list[str]:
        """The failed directories."""
        return self._state.directories.offline

    def is_log_dir_online(self, log_dir: _Path) -> bool:
        """Whether a configured directory works. LogDirNotFoundError for any other."""
        directories = self._state.directories
        return directories.get(directories.configured(log_dir)) is not None

    @property
    def meta_properties(self) -> dict[str, MetaProperties]:
        """`meta.properties` of the directories that have one, as it was at the beginning."""
        return dict(self._identities.properties)

    def read_broker_epoch_from_clean_shutdown_files(self) -> int | None:
        """The broker epoch in all clean shutdown markers, None if they disagree.

        Call it before `startup`, which removes them.
        """
        return None if self.offline_log_dirs else agreed_broker_epoch(self._state.directories.all())

    # ---- checkpoints ----------------------------------------------------------------------------

    def checkpoint_log_recovery_offsets(self) -> None:
        """Writes log start offsets and `recovery-point-offset-checkpoint` of all live directories.

        A directory that cannot be written goes offline; the others are written.
        """
        self._require_running()
        self._state.checkpoints.recovery_offsets()

    def checkpoint_log_start_offsets(self) -> None:
        """Writes `log-start-offset-checkpoint` of all live directories."""
        self._require_running()
        self._state.checkpoints.log_start_offsets()

    def checkpoint_high_watermarks(self) -> None:
        """Writes `replication-offset-checkpoint` of the live directories that have logs."""
        self._require_running()
        self._state.checkpoints.high_watermarks()

    def flush_logs(self) -> None:
        """Flushes every log, including its active segment; recovery points move to the ends."""
        self._state.directories.require_one()
        for log in self.all_logs:
            path = dir_of(log)
            try:
                with self._channel.guard(path, "Error while flushing log for "
                                               f"{log.topic_partition} in dir {path} with offset "
                                               f"{log.log_end_offset}"):
                    with log.lock:
                        log.flush(True)
            except KafkaStorageError as error:
                if error.code != CLOSED:  # it was deleted meanwhile
                    _log.error("Error flushing topic %s: %s", log.topic_partition.topic, error)

    # ---- failures -------------------------------------------------------------------------------

    def handle_log_dir_failure(self, log_dir: _Path, error: BaseException | None = None) -> None:
        """Takes a configured directory offline, as an I/O error does. Raises
        LogDirNotFoundError."""
        path = self._state.directories.configured(log_dir)
        optional(BaseException, error=error)
        self._channel.maybe_add_offline_log_dir(path, f"Stopping serving logs in dir {path}",
                                                error)

    def _handle_failures(self) -> None:
        while (failure := self._channel.take_next_offline_log_dir()) is not None:
            self._handle_log_dir_failure(failure)

    def _handle_log_dir_failure(self, failure: LogDirFailure) -> None:
        path = failure.log_dir
        _log.warning("Stopping serving logs in dir %s", path)
        with self._state.lock:
            directory = self._state.directories.remove(path)
            gone = self._state.table.remove_dir(path)
        self._state.cleaning.directory_failed(path)
        for log in gone.opened:
            if log.deferred_checks is not None:
                log.deferred_checks.stop()
            if isinstance(log, UnifiedLog):  # not the result of a custom `load`
                log.remove_log_metrics()
            log.close_handlers()
        self._state.forget_topics(key.topic for key in gone.current_partitions)
        told = LogDirFailure(path, failure.message, failure.error, gone.current_partitions,
                             tuple(log.topic_partition for log in gone.future))
        _log.warning("Logs for partitions %s are offline and logs for future partitions %s are "
                     "offline due to failure on log directory %s",
                     ",".join(map(str, told.partitions)),
                     ",".join(map(str, told.future_partitions)), path)
        if directory is not None:
            directory.unlock()
        if self._on_failure is not None:
            try:
                self._on_failure(told)
            except Exception as error:
                _log.error("The listener for failed log dirs failed", exc_info=error)

    def _require_running(self) -> None:
        """See LogOperations."""
        self._state.directories.require_one()
        self._require("running")

    def _require(self, phase: str) -> None:
        if self._phase != phase:
            raise LogManagerStateError(f"the log manager is {self._phase}, not {phase}")
