"""Apache Kafka itself, for tests: its jars, a broker on loopback, its log classes and tools.

Needs Java 17 and, for the first run, Maven. Whatever is missing is one `KafkaUnavailable` whose
text says what and how to get it. `SEGLOG_KAFKA_LIB` names a directory of jars to use instead.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support import class_archive
from tests.support.golden import decode
from tests.support.locks import locked
from tests.support.ports import free_ports

KAFKA_VERSION = "4.3.1"
JAVA_MIN = 17
HERE = Path(__file__).resolve().parent
_START_SECONDS = 300.0
#: Programs of several files.
_PARTS = {"Driver": ("Tier",)}
#: Short-lived JVMs: small, and quick to be up rather than quick later.
_JVM = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


class KafkaUnavailable(Exception):
    """The real Kafka cannot run here; the text says why."""


@contextmanager
def required() -> Iterator[None]:
    """Skips the test, with the reason, where the block finds no real Kafka."""
    import pytest  # examples/pipeline.py needs the broker and has no pytest

    try:
        yield
    except KafkaUnavailable as error:
        pytest.skip(f"no real Kafka: {error}")


def cache_dir() -> Path:
    """Where the jars and the compiled programs are kept between runs."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "seglog-kafka"


@functools.cache
def java_command() -> str:
    """The `java` to run, at least Java 17."""
    found = shutil.which("java")
    if found is None:
        raise KafkaUnavailable(f"java is missing: install a JDK of at least {JAVA_MIN}")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_MIN:
        raise KafkaUnavailable(f"java is too old, at least {JAVA_MIN} is needed: "
                               f"{(said.splitlines() or ['no version'])[0]}")
    return found


@functools.cache
def library() -> Path:
    """The directory of Kafka's jars, fetched from Maven Central when it is not there yet."""
    named = os.environ.get("SEGLOG_KAFKA_LIB")
    lib = Path(named) if named else cache_dir() / KAFKA_VERSION
    if (lib / f"kafka_2.13-{KAFKA_VERSION}.jar").is_file():
        return lib
    if named:
        raise KafkaUnavailable(f"SEGLOG_KAFKA_LIB={named} holds no kafka_2.13-{KAFKA_VERSION}.jar")
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(f"mvn is missing and {lib} holds no Kafka {KAFKA_VERSION}: "
                               "install Maven, or name a directory of jars in SEGLOG_KAFKA_LIB")
    with locked(lib.parent), tempfile.TemporaryDirectory(dir=lib.parent) as fresh:
        if lib.is_dir():
            return lib  # another process was first
        done = subprocess.run(
            [maven, "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies",
             f"-DoutputDirectory={fresh}/lib"], capture_output=True, text=True, check=False)
        if done.returncode:
            cause = (done.stdout + done.stderr).strip().splitlines() or ["no reason given"]
            raise KafkaUnavailable(f"Maven could not fetch Kafka {KAFKA_VERSION}: {cause[0]}")
        os.rename(f"{fresh}/lib", lib)
    return lib


@functools.cache
def compiled(program: str, folder: Path = HERE) -> Path:
    """The directory of the classes of a Java program of `folder`, by default one beside this
    file."""
    sources = [folder / f"{name}.java" for name in (program, *_PARTS.get(program, ()))]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)
                            + KAFKA_VERSION.encode()).hexdigest()[:16]
    target = cache_dir() / "classes" / f"{program}-{digest}"
    if target.is_dir():
        return target
    javac = shutil.which("javac")
    if javac is None:
        raise KafkaUnavailable(f"javac is missing: install a JDK of at least {JAVA_MIN}, "
                               "a runtime alone is not enough")
    lib = library()
    with locked(target.parent), tempfile.TemporaryDirectory(dir=target.parent) as fresh:
        if target.is_dir():
            return target  # another process was first
        subprocess.run([javac, "-nowarn", "-XDsuppressNotes", "-cp", f"{lib}/*",
                        "-d", f"{fresh}/classes", *map(str, sources)], check=True)
        os.rename(f"{fresh}/classes", target)
    return target


def command(main: str, *args: str, options: Sequence[str] = (),
            before: Sequence[Path] = ()) -> list[str]:
    """The command line of a class of Kafka, or of a program beside this file.

    Jars of `before` are searched before Kafka's.
    """
    return _command(main, args, [*class_archive.using(_classes()), *options], before)


def _command(main: str, args: Sequence[str], options: Sequence[str],
             before: Sequence[Path] = ()) -> list[str]:
    paths = [*map(str, before), f"{library()}/*"]  # an archive begins with the same jars
    if (HERE / f"{main}.java").is_file():
        paths.append(str(compiled(main)))
    return [java_command(), *_JVM, *options, "-cp", os.pathsep.join(paths), main, *args]


@functools.cache
def _classes() -> Path:
    """The archive of a broker's classes, of which every program needs some."""
    return class_archive.path_of(cache_dir(), KAFKA_VERSION, java_command(),
                                 os.path.realpath(library()))


def archive_classes() -> None:
    """Makes that archive where there is none, out of a broker's start."""
    def run_broker(options: Sequence[str]) -> None:
        with tempfile.TemporaryDirectory() as home, Broker(Path(home), options=options) as broker:
            broker.stop()

    formatted()
    class_archive.make(_classes(), run_broker)


def run(main: str, *args: str, timeout: float = 1800.0, given: str | None = None) -> str:
    """Runs a class to its end, on `given` as its input, and gives what it printed."""
    done = subprocess.run(command(main, *args), capture_output=True, text=True, check=False,
                          timeout=timeout, input=given, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"{main} failed with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def load(roots: Iterable[Path], config: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """What Kafka's UnifiedLog makes of every partition of data directories, which it changes.

    Gives {data directory name: {partition directory: state}}; a state is what Oracle.java prints.
    """
    given = [str(root) for root in roots]
    assert len({Path(root).name for root in given}) == len(given), "one name for two directories"
    found = json.loads(run("Oracle", *given, *(f"{key}={config[key]}" for key in config)))
    return {Path(given[0]).name: found} if len(given) == 1 else found


def dump_log(files: Iterable[Path], *options: str) -> str:
    """What kafka-dump-log prints about files."""
    return run("org.apache.kafka.tools.DumpLogSegments", "--files",
               ",".join(str(file) for file in files), *options)


@functools.cache
def formatted() -> Path:
    """A log directory as kafka-storage.sh formats it, made once: a JVM for each broker's took as
    long as half of its start. The ids in it are the same for all brokers."""
    target = cache_dir() / f"formatted-{KAFKA_VERSION}"
    if target.is_dir():
        return target
    library()  # before the lock, which it may take itself
    with locked(target.parent), tempfile.TemporaryDirectory(dir=target.parent) as fresh:
        if target.is_dir():
            return target  # another process was first
        broker = Broker(Path(fresh))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # An id that begins with a dash would be read as an option.
        run("kafka.tools.StorageTool", "format", "-t", "k" + cluster[1:], "-c",
            str(broker._properties()))
        os.rename(broker.data_dir, target)
    return target


_REBUILT = re.compile("Recovering unflushed segment|Found a corrupted|recovering segment|"
                      "no clean shutdown file| ERROR |Deleting index|Rebuilding producer")


class Broker:
    """One KRaft broker and controller on 127.0.0.1; `with` starts it and kills what is left."""

    def __init__(self, home: Path, extra: Mapping[str, str] | None = None,
                 options: Sequence[str] | None = None) -> None:
        self.home, self.data_dir = home, home / "data"
        self.extra, self._options = dict(extra or {}), options
        self.port, self._controller_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def _properties(self) -> Path:
        home, port, quorum = self.home, self.port, self._controller_port
        settings = {
            "process.roles": "broker,controller", "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{quorum}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{quorum}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir), "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1", "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.index.size.max.bytes": "65536", **self.extra,
        }
        path = home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def start(self) -> None:
        """Formats the directory when it is new, starts, and waits until the broker serves."""
        self.home.mkdir(parents=True, exist_ok=True)
        properties, log = self._properties(), self.home / "broker.log"
        if not (self.data_dir / "meta.properties").exists():
            shutil.copytree(formatted(), self.data_dir, dirs_exist_ok=True)
        log.unlink(missing_ok=True)
        options = [f"-Dorg.slf4j.simpleLogger.logFile={log}",
                   "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
                   *(class_archive.using(_classes()) if self._options is None else self._options)]
        with open(self.home / "out.log", "wb") as out:
            self._process = subprocess.Popen(
                _command("kafka.Kafka", [str(properties)], options),
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        end = time.monotonic() + _START_SECONDS
        while not (log.exists() and "Kafka Server started" in log.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                said = log.read_text(errors="replace") if log.exists() else \
                    (self.home / "out.log").read_text(errors="replace")
                raise RuntimeError(f"the broker did not start:\n{said[-3000:]}")
            time.sleep(0.1)

    def rebuilt(self, *unlike: str) -> list[str]:
        """Lines of the log that say that this start repaired or rebuilt something.

        Left out are lines with one of `unlike` and those of the metadata log, which the Raft layer
        recovers at every start. What the controller cannot answer yet while it starts, the broker
        asks again: no log is concerned.
        """
        unlike += "__cluster_metadata", "kafka.server.ControllerApis"
        return [line for line in (self.home / "broker.log").read_text(errors="replace").splitlines()
                if not any(part in line for part in unlike) and _REBUILT.search(line)]

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=300)
            self._process = None

    def stop(self) -> None:
        """A clean shutdown, which leaves `.kafka_cleanshutdown`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9, which leaves an unclean directory."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.kill()


class Client:
    """Kafka's Java clients in a process of their own (Client.java); `with` ends it."""

    def __init__(self, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            command("Client", bootstrap), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            encoding="utf-8")

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """One request and its answer; RuntimeError with Kafka's exception when it fails."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{op}: {answer['error']}")
        return answer

    def create_topic(self, topic: str, partitions: int = 1,
                     config: Mapping[str, str] | None = None) -> None:
        self.ask("create", topic=topic, partitions=partitions, config=dict(config or {}))

    def produce(self, topic: str, records: Iterable[Mapping[str, Any]], *, partition: int = 0,
                producer: str = "plain", config: Mapping[str, str] | None = None) -> list[int]:
        """Sends records (bytes for key, value and header values) and gives their offsets."""
        sent = [{"key": _text(record.get("key")), "value": _text(record.get("value")),
                 "timestamp": record.get("timestamp"),
                 "headers": [[key, _text(value)] for key, value in record.get("headers", [])]}
                for record in records]
        answer = self.ask("produce", topic=topic, partition=partition, producer=producer,
                          config=dict(config or {}), records=sent)
        offsets: list[int] = answer["offsets"]
        return offsets

    def end_transaction(self, producer: str, *, commit: bool) -> None:
        self.ask("end", producer=producer, commit=commit)

    def consume(self, topic: str, partition: int = 0,
                isolation: str = "read_uncommitted") -> list[dict[str, Any]]:
        """All that a consumer gets, as rows of seglog's default columns."""
        return as_rows(self.ask("consume", topic=topic, partition=partition,
                                isolation=isolation)["rows"])

    def offsets_for_times(self, topic: str, partition: int, timestamps: Iterable[int]
                          ) -> list[tuple[int, int] | None]:
        """(offset, timestamp) of the first record at or after each time."""
        found = self.ask("times", topic=topic, partition=partition,
                         timestamps=list(timestamps))["found"]
        return [None if one is None else (one[0], one[1]) for one in found]

    def java_utf8(self, given: Iterable[bytes]) -> list[str]:
        """How Java reads byte strings as UTF-8."""
        texts: list[str] = self.ask("utf8", bytes=[_text(raw) for raw in given])["texts"]
        return texts

    def decompress(self, codec: int, magic: int,
                   payloads: Iterable[bytes]) -> list[bytes | str]:
        """What Kafka decompresses from payloads, or the text of its exception."""
        results = self.ask("decompress", codec=codec, magic=magic,
                           bytes=[_text(raw) for raw in payloads])["results"]
        return [result["error"] if "error" in result else decode(result["bytes"]) or b""
                for result in results]

    def records(self, logs: Iterable[bytes]) -> list[tuple[list[dict[str, Any]], str | None]]:
        """The rows that Kafka's FileRecords reads from log files, and what ended the reading."""
        results = self.ask("records", bytes=[_text(raw) for raw in logs])["results"]
        return [([_row(row) for row in result["rows"]], result.get("error"))
                for result in results]

    def close(self) -> None:
        """Ends the process; a transaction that is open stays open."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def as_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `consume` answers, as rows of seglog's default columns; in place."""
    for row in rows:
        row["timestamp_type"] = {"NoTimestampType": -1, "CreateTime": 0,
                                 "LogAppendTime": 1}[row["timestamp_type"]]
        _row(row)
    return rows


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Turns the base64 of a row into bytes, in place."""
    for field in (row, *row["headers"]):
        field.update({name: decode(field[name]) for name in ("key", "value")
                      if name in field and (name == "value" or field is row)})
    return row


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()
