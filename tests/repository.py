"""Git in a folder, for what depends on commits, and the files that it does not ignore."""

import os
import subprocess
from pathlib import Path, PurePosixPath


def git(folder, *arguments):
    """Run git there as somebody; return what it prints."""
    identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]
    command = ["git", *identity, *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def begin(folder):
    """Make a folder a repository whose first commit holds everything there."""
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Begin")


def files_of(root):
    """The files of a checkout that git does not ignore; in an archive of one there is no git."""
    if (root / ".git").exists():
        listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        return list(filter(None, listed.split("\0")))
    patterns = (root / ".gitignore").read_text().split()

    def kept(path):
        place = PurePosixPath("/", path.relative_to(root))
        fitting = [line for line in patterns if place.match(line.strip("!").rstrip("/"))]
        return not fitting or fitting[-1].startswith("!")

    found = []
    for folder, folders, files in os.walk(root):
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        found += filter(kept, (Path(folder, name) for name in (*files, *linked)))
        folders[:] = [name for name in folders if kept(Path(folder, name))]
    return [str(path.relative_to(root)) for path in found]
