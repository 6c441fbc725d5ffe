"""Azure Blob Storage and Google Cloud Storage with the usual emulators: Azurite (from npm) and
fake-gcs-server (from Go), each installed once below ~/.cache/seglog-s3."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import pickle
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from seglog import PartitionLog
from seglog.errors import KafkaStorageError
from tests.objects.faulty import Faulty
from tests.objects.server import CACHE, ServerMissing, go_binary, install, started
from tests.support.ports import free_ports

obstore = pytest.importorskip("obstore",
                              reason="obstore is not installed: pip install 'seglog[s3]'")

from obstore.store import from_url  # noqa: E402

_AZURITE = "azurite@3.35.0"
_FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
# Azurite's default account.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
LOGS = ("txn-0", "plain-zstd-0", "appendtime-0")


def files(golden: Path) -> Iterator[tuple[str, bytes]]:
    """The keys below `data/` and their contents."""
    clean = golden / "real" / "clean"
    for name in LOGS:
        for file in sorted((clean / name).iterdir()):
            yield f"data/{name}/{file.name}", file.read_bytes()


@contextmanager
def azure(golden: Path) -> Iterator[dict[str, str]]:
    """Storage options for `az://box`, which has the logs. Raises ServerMissing."""
    home = CACHE / "azurite"
    program = home / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise ServerMissing("Azurite is missing, and so is npm, which installs it")
        install([npm, "install", "--silent", "--prefix", str(home), _AZURITE], program)
    port, = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    given = {"azure_storage_account_name": _ACCOUNT, "azure_storage_account_key": _KEY,
             "azure_storage_endpoint": endpoint}
    with started([str(program), "--inMemoryPersistence", "--skipApiVersionCheck", "--silent",
                  "--blobPort", str(port)], port):
        _make_container(endpoint)
        make: Any = from_url
        store = make("az://box", config=given, client_options={"allow_http": True})
        for key, data in files(golden):
            obstore.put(store, key, data)
        yield given


def _make_container(endpoint: str) -> None:
    """Makes a container, signed with the account's key (Shared Key); obstore has no call for it."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = ("PUT" + "\n" * 12 + "".join(f"{name}:{text}\n" for name, text in headers.items())
              + f"/{_ACCOUNT}/{_ACCOUNT}/box\nrestype:container")
    mac = hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(mac).decode()}"
    _ask(f"{endpoint}/box?restype=container", None, "PUT", {**headers, "Content-Length": "0"})


@contextmanager
def google(golden: Path) -> Iterator[dict[str, str]]:
    """Storage options for `gs://box`, which has the logs. Raises ServerMissing."""
    port, = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    with started([go_binary("fake-gcs-server", _FAKE_GCS), "-scheme", "http", "-host", "127.0.0.1",
                  "-port", str(port), "-backend", "memory", "-public-host", f"127.0.0.1:{port}"],
                 port):
        _ask(f"{endpoint}/storage/v1/b?project=p", b'{"name": "box"}', "POST",
             {"Content-Type": "application/json"})
        for key, data in files(golden):
            _ask(f"{endpoint}/upload/storage/v1/b/box/o?uploadType=media&name="
                 f"{urllib.parse.quote(key, safe='')}", data, "POST",
                 {"Content-Type": "application/octet-stream"})
        yield {"allow_http": "true", "google_service_account_key": json.dumps({
            "gcs_base_url": endpoint, "disable_oauth": True, "client_email": "",
            "private_key": "", "private_key_id": ""})}


def _ask(url: str, body: bytes | None, method: str, headers: dict[str, str]) -> None:
    asked = urllib.request.Request(url, data=body, method=method, headers=headers)
    with urllib.request.urlopen(asked, timeout=120) as answer:
        answer.read()


def rows(log: PartitionLog) -> list[dict[str, list[Any]]]:
    return [columns.to_pylists() for columns in log.to_arrow()]


@pytest.mark.judge
@pytest.mark.parametrize("cloud, scheme", [(azure, "az"), (google, "gs")])
def test_logs_read_as_from_the_disk(golden: Path, cloud: Any, scheme: str) -> None:
    try:
        with cloud(golden) as options:
            for name in LOGS:
                local = PartitionLog.open(golden / "real" / "clean" / name)
                log = PartitionLog.open(f"{scheme}://box/data/{name}", storage_options=options)
                assert rows(log) == rows(local)
                assert log.log_end_offset == local.log_end_offset > 0
                assert rows(pickle.loads(pickle.dumps(log))) == rows(local)
            with pytest.raises(KafkaStorageError, match="no object below this URL"):
                PartitionLog.open(f"{scheme}://box/data/none-0", storage_options=options)
    except ServerMissing as missing:
        pytest.skip(str(missing))


def test_a_list_whose_tags_have_no_quotes(faulty: Faulty, hasty: dict[str, str], golden: Path
                                          ) -> None:
    """As from Azure, whose headers have quotes around the same tag."""
    source = golden / "real" / "clean" / "txn-0"
    shutil.copytree(source, faulty.root / "data" / "txn-0")
    faulty.quote = ""
    log = PartitionLog.open("s3://data/txn-0", storage_options=hasty)
    assert rows(log) == rows(PartitionLog.open(source))
