"""One file comes from its mirrors, whatever faults they have in between."""

import hashlib
import socket

import pytest

from replication.config.datasets import RemoteFile
from replication.config.weights import PublishedWeights
from replication.datasets import download as module
from replication.datasets.download import WAITS, download
from vitrail.errors import VitrailError

CONTENT = bytes(range(256)) * 100


@pytest.fixture
def waits(monkeypatch):
    """A clock that only notes how long it would have slept."""
    slept = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    return slept


@pytest.fixture
def file(server):
    """A file on the local server; a function of its mirrors."""
    server.content = CONTENT

    def file(*mirrors):
        return RemoteFile(
            name="file",
            url=[server.url(mirror) for mirror in mirrors],
            size=len(CONTENT),
            sha256=hashlib.sha256(CONTENT).hexdigest(),
        )

    return file


def test_an_overloaded_server_is_asked_again_after_longer_and_longer_waits(
    file, server, waits, tmp_path, capsys
):
    server.faults["busy"] = [503, 500, 429, "reset"]
    download(file("busy"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert waits == [2, 4, 8, 16]
    assert "error: 503; trying again in 2 s" in capsys.readouterr().err


def test_other_mirrors_are_asked_before_anything_is_waited_for(file, server, waits, tmp_path):
    server.faults["busy"] = [503]
    download(file("busy", "good"), tmp_path / "file")
    assert [path for path, _ in server.requests] == ["busy", "good"]
    assert waits == []


def test_a_mirror_without_the_file_is_not_asked_again(file, server, waits, tmp_path):
    server.faults["busy"] = [503, 503]
    download(file("gone", "busy"), tmp_path / "file")
    assert [path for path, _ in server.requests] == ["gone", "busy", "busy", "busy"]
    assert waits == [2, 4]


def test_a_server_that_stays_overloaded_is_given_up(file, server, waits, tmp_path):
    server.faults["busy"] = [503] * 100
    with pytest.raises(VitrailError, match=r"cannot download file .*error: 503.* try again la"):
        download(file("busy"), tmp_path / "file")
    assert waits == list(WAITS)
    assert len(server.requests) == 1 + len(WAITS)


def test_a_server_that_says_nothing_is_waited_out(file, server, waits, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 1)
    server.faults["good"] = ["silence"]
    download(file("good"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert waits == [2]


def test_a_refused_connection_is_tried_again_and_then_given_up(file, waits, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
        with pytest.raises(VitrailError, match=r"cannot download file .*onnect"):
            download(file("good").model_copy(update={"url": [url]}), tmp_path / "file")
    assert waits == list(WAITS)


@pytest.mark.parametrize(
    ("status", "passes"), [(5, True), (6, True), (92, True), (3, False), (60, False)]
)
def test_a_fault_is_waited_out_if_it_may_pass(file, waits, tmp_path, monkeypatch, status, passes):
    """Such as a name that is not known just now; a wrong URL or certificate stays wrong."""
    curl = tmp_path / "curl"
    curl.write_text(f"#!/bin/sh\necho '000 no'\nexit {status}\n")
    curl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VitrailError, match="cannot download file"):
        download(file("good"), tmp_path / "file")
    assert waits == (list(WAITS) if passes else [])


@pytest.mark.slow
def test_bytes_that_came_before_a_silence_are_kept(file, server, waits, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 1)
    download(file("stalls"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [("stalls", 0), ("stalls", len(CONTENT) // 2)]


def test_a_file_larger_than_it_should_be_is_not_kept(file, server, waits, tmp_path):
    server.content = CONTENT * 2
    with pytest.raises(VitrailError, match="cannot download file"):
        download(file("good"), tmp_path / "file")
    assert not any(tmp_path.iterdir())


def test_without_curl_one_is_told_to_install_it(file, waits, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VitrailError, match=r"curl is not installed: install it, or place .*/file$"):
        download(file("good"), tmp_path / "file")


@pytest.mark.parametrize("url", ["http://[broken/x", "http://127.0.0.1:port/x", "file:///none/x"])
def test_a_url_that_leads_nowhere_is_one_sentence(file, waits, tmp_path, url):
    lost = file("good").model_copy(update={"url": [url]})
    with pytest.raises(VitrailError, match=r"cannot download file \(.*place the file at") as error:
        download(lost, tmp_path / "file")
    assert "\n" not in str(error.value)
    assert waits == []


@pytest.fixture
def unpinned(server):
    """A file of which neither size nor digest is known."""
    server.content = CONTENT
    entry = {"name": "weights", "url": [server.url("drops")], "licence": "none"}
    return PublishedWeights.model_validate(entry)


def test_a_file_of_unknown_size_is_resumed_too(unpinned, server, tmp_path):
    download(unpinned, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [("drops", 0), ("drops", len(CONTENT) // 2)]


def test_what_an_interrupted_download_of_unknown_size_left_is_gone_on_with(
    unpinned, server, tmp_path
):
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    server.requests.append(("before", 0))
    download(unpinned, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests[1:] == [("drops", 1000)]


@pytest.mark.parametrize("faults", [[], [416]], ids=["with the size", "without"])
def test_what_was_complete_but_for_its_name_is_not_downloaded_again(
    unpinned, server, tmp_path, faults
):
    """Servers answer 416, as there is nothing after what is here, and most of them the size."""
    (tmp_path / "file.part").write_bytes(CONTENT)
    server.faults["drops"] = faults
    download(unpinned, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert len(server.requests) == 1


def test_other_bytes_than_a_file_s_after_which_nothing_comes_are_downloaded_anew(
    unpinned, server, tmp_path
):
    pinned = unpinned.model_copy(update={"sha256": hashlib.sha256(CONTENT).hexdigest()})
    (tmp_path / "file.part").write_bytes(bytes(len(CONTENT)))
    server.requests.append(("before", 0))
    download(pinned, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.fixture
def curlrc(tmp_path, monkeypatch):
    """Write the settings of curl of the user who runs this."""
    for name in ("CURL_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return (tmp_path / "home" / ".curlrc").write_text


@pytest.mark.parametrize(
    "setting",
    ['output-dir = "elsewhere"', "include", "-i", "--head", "range = 1-5", "remove-on-error"],
)
def test_what_the_user_has_set_for_curl_spoils_no_file(file, tmp_path, curlrc, setting):
    curlrc(f"# mine\n{setting}\n")
    download(file("good"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("setting", ["proxy = {}", "--proxy {}", '-x "{}"', "  proxy: {}"])
def test_the_user_s_proxy_is_used(file, server, tmp_path, curlrc, setting):
    curlrc(setting.format(f"http://127.0.0.1:{server.server_port}"))
    behind = file("good").model_copy(update={"url": ["http://host.invalid/good/archive"]})
    download(behind, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
