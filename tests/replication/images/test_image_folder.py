import pytest
from PIL import Image
from torchvision.datasets import ImageFolder

from replication.images.image_folder import ClassFolders


@pytest.fixture
def tree(tmp_path):
    """Classes whose names and depths make orders of paths, names and folders differ."""
    names = ("2/9.png", "2/10.png", "10/a.png", "10-b/b.png", "Z/y.png", "Z/x/1.jpg", "Z/x-/0.png")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    return tmp_path


def test_images_classes_and_labels_are_in_torchvisions_order(tree):
    ours, theirs = ClassFolders(tree), ImageFolder(tree)
    assert (ours.classes, ours.samples) == (theirs.classes, theirs.samples)
    assert ours.targets == theirs.targets
    assert [label for _, label in ours] == ours.targets


def test_hidden_folders_are_no_classes_and_hidden_files_no_images(tree):
    before = ClassFolders(tree)
    for name in (".ipynb_checkpoints/2.png", "__MACOSX/2/9.png", "2/._9.png", "2/.old/9.png"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    after = ClassFolders(tree)
    assert (after.classes, after.samples) == (before.classes, before.samples)


def test_all_formats_that_are_read_are_found(tree):
    for name in ("2/a.gif", "2/b.jp2"):
        Image.new("RGB", (4, 4)).save(tree / name)
    assert len(ClassFolders(tree)) == 9


def test_a_class_without_images_would_shift_no_labels_and_is_refused(tree):
    (tree / "3").mkdir()
    with pytest.raises(FileNotFoundError, match="3 has no images"):
        ClassFolders(tree)
