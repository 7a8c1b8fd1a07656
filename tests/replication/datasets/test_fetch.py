import errno
import hashlib
import io
import multiprocessing
import resource
import socket
import tarfile
import zipfile

import pytest

from replication.config.datasets import RemoteFile
from replication.datasets import fetch as fetching
from replication.datasets.fetch import fetch
from replication.datasets.miniature import write_miniature
from replication.images.opening import build
from vitrail.errors import VitrailError


@pytest.fixture
def cifar10(registry, tmp_path, server):
    """CIFAR-10 whose archive is a miniature on the local server; a function of the mirrors."""
    source = write_miniature(registry["cifar10"], tmp_path / "source", classes=3)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(source / "cifar-10-batches-py", "cifar-10-batches-py")
    server.content = archive.getvalue()

    def with_mirrors(*mirrors, content=server.content, name="cifar-10-python.tar.gz"):
        file = RemoteFile(
            name=name,
            url=[mirror if ":" in mirror else server.url(mirror) for mirror in mirrors],
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        return registry["cifar10"].model_copy(
            update={"files": [file], "train_images": 6, "val_images": 6}
        )

    return with_mirrors


def complaint(info, root) -> str:
    with pytest.raises(VitrailError) as caught:
        fetch(info, root)
    return str(caught.value)


def leftovers(root):
    names = {file.name for file in (root / "cifar10").iterdir()}
    return names - {".fetching", ".fetched-cifar10.json"}


WHOLE = {"cifar-10-python.tar.gz", "cifar-10-batches-py"}


@pytest.mark.parametrize("kept", [True, False])
def test_files_of_other_digests_are_fetched_again(cifar10, tmp_path, server, kept):
    """Also where the archive of the older files was deleted."""
    fetch(cifar10("good"), tmp_path)
    folder = tmp_path / "cifar10" / "cifar-10-batches-py"
    if not kept:
        (tmp_path / "cifar10" / "cifar-10-python.tar.gz").unlink()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(folder, "cifar-10-batches-py")
        added = tarfile.TarInfo("cifar-10-batches-py/added")
        added.size = 3
        tar.addfile(added, io.BytesIO(b"new"))
    server.content = archive.getvalue()
    fetch(cifar10("good", content=server.content), tmp_path)
    assert (folder / "added").read_bytes() == b"new"


def test_a_dataset_is_downloaded_unpacked_and_verified(cifar10, tmp_path, server):
    info = cifar10("good")
    assert fetch(info, tmp_path) == {"train": 6, "val": 6}
    assert leftovers(tmp_path) == WHOLE
    assert len(build(info, "train", tmp_path)) == 6


def test_fetching_again_asks_no_server(cifar10, tmp_path, server):
    fetch(cifar10("good"), tmp_path)
    fetch(cifar10("good"), tmp_path)
    assert server.requests == [("good", 0)]


def test_a_dropped_connection_goes_on_where_it_stopped(cifar10, tmp_path, server):
    fetch(cifar10("drops"), tmp_path)
    assert server.requests == [("drops", 0), ("drops", len(server.content) // 2)]


def test_an_interrupted_download_goes_on_in_the_next_fetch(cifar10, tmp_path, server):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    (folder / "cifar-10-python.tar.gz.part").write_bytes(server.content[:100])
    fetch(cifar10("good"), tmp_path)
    assert server.requests == [("good", 100)]


def test_a_server_without_ranges_starts_over(cifar10, tmp_path, server):
    fetch(cifar10("deaf"), tmp_path)
    assert server.requests == [("deaf", 0), ("deaf", len(server.content) // 2), ("deaf", 0)]
    assert leftovers(tmp_path) == WHOLE


def test_a_spoilt_beginning_is_thrown_away_once(cifar10, tmp_path, server):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    (folder / "cifar-10-python.tar.gz.part").write_bytes(b"x" * 100)
    fetch(cifar10("good"), tmp_path)
    assert server.requests == [("good", 100), ("good", 0)]


def dead_url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/archive"


@pytest.mark.parametrize("first", ["dead", "gone", "corrupt"])
def test_the_next_mirror_serves_when_the_first_does_not(cifar10, tmp_path, server, first):
    fetch(cifar10(dead_url() if first == "dead" else first, "good"), tmp_path)
    assert server.requests[-1] == ("good", 0)


def test_when_no_mirror_serves_each_reason_and_the_way_by_hand_are_told(
    cifar10, tmp_path, monkeypatch
):
    monkeypatch.setattr("replication.datasets.download.WAITS", ())
    dead = dead_url()
    said = complaint(cifar10(dead, "gone"), tmp_path)
    assert f"({dead}: " in said
    assert "connect" in said
    assert "error: 404" in said
    assert f"place the file at {tmp_path}/cifar10/cifar-10-python.tar.gz" in said
    assert f"the tree as {tmp_path}/cifar10/cifar-10-batches-py/" in said
    assert "\n" not in said


def test_corrupt_bytes_are_refused_and_not_kept(cifar10, tmp_path, server):
    said = complaint(cifar10("corrupt"), tmp_path)
    assert "its sha256 is" in said
    assert f"instead of {hashlib.sha256(server.content).hexdigest()}" in said
    assert leftovers(tmp_path) == set()


def test_a_server_that_sends_no_more_is_given_up_and_the_half_kept(cifar10, tmp_path, server):
    server.content = server.content[:200]  # as much as this mirror has
    said = complaint(cifar10("good", content=b"y" * 300), tmp_path)
    assert "it has 200 bytes instead of 300" in said
    assert leftovers(tmp_path) == {"cifar-10-python.tar.gz.part"}


def test_an_archive_placed_by_hand_is_used(cifar10, tmp_path, server):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    (folder / "cifar-10-python.tar.gz").write_bytes(server.content)
    assert fetch(cifar10("gone"), tmp_path) == {"train": 6, "val": 6}
    assert server.requests == []


def test_a_tree_placed_by_hand_is_used(cifar10, tmp_path, server):
    write_miniature(cifar10("gone"), tmp_path, classes=3)
    fetch(cifar10("gone"), tmp_path)
    assert server.requests == []
    assert leftovers(tmp_path) == {"cifar-10-batches-py"}


def test_a_truncated_archive_placed_by_hand_is_refused_and_left_alone(cifar10, tmp_path, server):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    (folder / "cifar-10-python.tar.gz").write_bytes(server.content[:-10])
    said = complaint(cifar10("good"), tmp_path)
    size = len(server.content)
    assert f"python.tar.gz is damaged or another file (it has {size - 10} bytes instead" in said
    assert said.endswith("; delete it")
    assert leftovers(tmp_path) == {"cifar-10-python.tar.gz"}


def test_a_damaged_tree_is_replaced_by_the_archives(cifar10, tmp_path, server):
    fetch(cifar10("good"), tmp_path)
    batch = tmp_path / "cifar10" / "cifar-10-batches-py" / "data_batch_1"
    batch.write_bytes(b"")
    fetch(cifar10("good"), tmp_path)
    assert batch.stat().st_size > 0
    assert len(server.requests) == 1


def tar_of(**members) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def zip_of(name) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr(name, b"content")
    return archive.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.tar.gz", tar_of(inside=b"x" * 10_000)[:-20]),
        ("not.tgz", b"this is no archive"),
        ("cut.zip", zip_of("inside")[:-5]),
        ("up.zip", zip_of("../../escaped")),
        ("absolute.zip", zip_of("/escaped")),
        ("up.tar", tar_of(**{"..__..__escaped": b"x"})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_archive_is_refused_and_leaves_nothing(cifar10, tmp_path, server, name, content):
    server.content = content
    said = complaint(cifar10("good", content=content, name=name), tmp_path)
    assert f"cannot unpack {tmp_path}/cifar10/{name} (" in said
    assert said.endswith("; delete it and fetch it again")
    assert leftovers(tmp_path) == {name}
    assert not list(tmp_path.rglob("escaped"))


def test_a_zip_is_unpacked_beside_itself(cifar10, tmp_path, server):
    server.content = zip_of("2750/Forest/Forest_1.jpg")
    info = cifar10("good", content=server.content, name="sub/EuroSAT.zip")
    assert "data_batch_1 is missing" in complaint(info, tmp_path)
    assert (tmp_path / "cifar10/sub/2750/Forest/Forest_1.jpg").read_bytes() == b"content"


def test_an_unwritable_data_root_is_told(cifar10, tmp_path):
    (tmp_path / "file").write_text("in the way")
    said = complaint(cifar10("good"), tmp_path / "file")
    assert f"cannot write {tmp_path}/file/cifar10 (Not a directory): make room there or" in said


def test_a_data_root_without_permission_is_told(cifar10, tmp_path, monkeypatch):
    def refuse(path, *args, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    said = complaint(cifar10("good"), tmp_path)
    assert "cifar10 (Permission denied): make room there or choose another data root" in said


def fetch_with_little_room(info, root, room, said):
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        fetch(info, root)
    except VitrailError as error:
        said.put(str(error))


def test_a_full_disk_is_told_and_the_download_goes_on_when_there_is_room(cifar10, tmp_path, server):
    fork = multiprocessing.get_context("fork")
    said = fork.SimpleQueue()
    room = len(server.content) // 2
    process = fork.Process(
        target=fetch_with_little_room, args=(cifar10("good"), tmp_path, room, said)
    )
    process.start()
    process.join()
    assert not said.empty()
    told = said.get()
    assert "cannot write" in told
    assert "cifar-10-python.tar.gz.part" in told
    assert "make room there" in told
    fetch(cifar10("good"), tmp_path)
    assert server.requests == [("good", 0), ("good", room)]


def test_a_disk_that_fills_up_while_unpacking_leaves_nothing(
    cifar10, tmp_path, server, monkeypatch
):
    def no_space(self, path, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractall", no_space)
    said = complaint(cifar10("good"), tmp_path)
    assert f"cannot write {tmp_path}/cifar10 (No space left on device): make room" in said
    assert leftovers(tmp_path) == {"cifar-10-python.tar.gz"}


def test_two_processes_do_not_fetch_the_same_dataset_at_once(cifar10, tmp_path, server):
    (tmp_path / "cifar10").mkdir()
    with fetching.alone(tmp_path / "cifar10" / ".fetching", "the same"):
        said = complaint(cifar10("good"), tmp_path)
    assert said.startswith(f"another process is fetching into {tmp_path}/cifar10; wait")
    assert server.requests == []
    fetch(cifar10("good"), tmp_path)


def test_what_a_killed_unpacking_left_is_cleared(cifar10, tmp_path, server):
    (tmp_path / "cifar10" / ".unpacking-old" / "cifar-10-batches-py").mkdir(parents=True)
    fetch(cifar10("good"), tmp_path)
    assert leftovers(tmp_path) == WHOLE


def test_a_dataset_to_be_placed_by_hand_is_never_downloaded(registry, tmp_path):
    assert "get it from https://image-net.org" in complaint(registry["imagenet"], tmp_path)
    assert list(tmp_path.iterdir()) == []
