"""Read published files from an extracted folder, or in one pass over their archive.

Nothing is extracted to disk. An archive with members that point outside of it is refused.
"""

from __future__ import annotations

import hashlib
import lzma
import posixpath
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dhocl.core.errors import InputError

SUFFIXES = (".tar.gz", ".tgz", ".tar.xz", ".tar")


@dataclass(frozen=True)
class Archive:
    """The extracted folder of a data set, or the archive that holds this folder."""

    path: Path
    root: str  # the folder's name, which the members of the archive start with

    def stamp(self, names: Collection[str]) -> str:
        """Names, sizes and modification times of the files that would be read, for cache keys."""
        if not self.path.is_dir():
            return _mark(self.path)
        marks = []
        for name in names:
            try:
                marks.append(_mark(self._file(name)))
            except OSError:
                raise self._lacks(name) from None
        return "\n".join(marks)

    def read(self, names: Collection[str], md5: Mapping[str, str] | None = None) -> Iterator[tuple[str, bytes]]:
        """Name and content of each file, in the order of the archive. InputError if an md5 is given and differs."""
        source = self._from_folder(names) if self.path.is_dir() else self._from_archive(names)
        for name, content in source:
            expected = (md5 or {}).get(name)
            found = hashlib.md5(content, usedforsecurity=False).hexdigest()
            if expected not in (None, found):
                raise InputError(
                    f"{name} in {self.path} is not the published file: expected md5 {expected}, "
                    f"found {found}; download the archive again"
                )
            yield name, content

    def pairs(self, file: str, content: bytes, what: str = "a number, a space and a value") -> dict[str, str]:
        """Number -> value, from the lines of a published list."""
        pairs = {}
        for line, text in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            number, _, value = text.strip().partition(" ")
            if not (number.isdigit() and value):
                raise self.malformed(file, f"line {line}: expected {what}")
            pairs[number] = value
        return pairs

    def malformed(self, file: str, expected: str) -> InputError:
        return InputError(f"{file} in {self.path} is not the published list ({expected}): download it again")

    def _from_folder(self, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
        for name in names:
            try:
                content = self._file(name).read_bytes()
            except OSError:
                raise self._lacks(name) from None
            yield name, content

    def _file(self, name: str) -> Path:
        if escapes(name):
            raise InputError(f"{self.path} lists the file {name!r}, which is outside of it: download it again")
        return self.path / name

    def _from_archive(self, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
        missing = set(names)
        try:
            with tarfile.open(self.path, "r:*") as tar:
                for member in tar:
                    name = self._checked(member)
                    handle = tar.extractfile(member) if name in missing and member.isfile() else None
                    if handle is not None:
                        missing.remove(name)
                        yield name, handle.read()
                    if not missing:
                        return
        except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as problem:
            reason = str(problem).splitlines()[0].rstrip(": ") if str(problem) else type(problem).__name__
            raise InputError(
                f"{self.path} is damaged, truncated or no tar archive ({reason}): expected the archive of "
                f"{self.root}/; download it again"
            ) from None
        raise self._lacks(min(missing))

    def _checked(self, member: tarfile.TarInfo) -> str:
        """The member's name below the root, or "" if it is not below it."""
        target = member.linkname if member.islnk() else ""
        if member.issym():
            target = posixpath.join(posixpath.dirname(member.name), member.linkname)
        if escapes(member.name) or escapes(posixpath.normpath(target)):
            raise InputError(
                f"{self.path} is refused: its member {member.name!r} points outside the archive; "
                "download the published file"
            )
        path = PurePosixPath(member.name)
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else ""

    def _lacks(self, name: str) -> InputError:
        return InputError(f"{self.path} lacks {self.root}/{name}: it is not complete; download it again")


def locate(data: Path | None, root: str, origin: str) -> Archive:
    """The data set in the folder `data`; of several archives the one with the shortest name."""
    first, *others = SUFFIXES
    archives = f"{root}{first} ({', '.join(others)})"
    if data is None:
        raise InputError(f"`data` must be a folder with {root}/ or {archives} from {origin}")
    if not data.is_dir():
        raise InputError(f"`data` {data} is not a folder: expected one with {root}/ or {archives} from {origin}")
    if (data / root).is_dir():
        return Archive(data / root, root)
    found = [file for file in data.iterdir() if file.name.startswith(root) and file.name.endswith(SUFFIXES)]
    if not found:
        raise InputError(f"{data} holds neither {root}/ nor {archives}: download it from {origin}")
    return Archive(min(found, key=lambda file: (len(file.name), file.name)), root)


def _mark(file: Path) -> str:
    status = file.stat()
    return f"{file.name} {status.st_size} {status.st_mtime_ns}"


def escapes(name: str) -> bool:
    """Whether a relative name points outside of its folder.

    >>> escapes("a/../../b"), escapes("/etc/passwd"), escapes("a/b..c")
    (True, True, False)
    """
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts
