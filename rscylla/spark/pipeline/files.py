"""Directories with the versions of a table, on any file system of Spark, through the Hadoop classes in its JVM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException

from ...errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Directory", "has_files", "path_of"]


_NEW = ".new"
"""What the name of a file ends with until it replaces the old one."""


def has_files(spark: SparkSession) -> bool:
    """Whether *spark* gives access to files: a classic session, and not one of Spark Connect."""
    return getattr(spark, "_jvm", None) is not None


def path_of(spark: SparkSession, uri: str) -> str:
    """Return the path of *uri*, as catalogs have it: with ``%20`` for a space. The session is a classic one."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the way in
    return str(jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(uri)).toString())


class Directory:
    """A directory with small JSON files and subdirectories. Names are relative to it.

    Raises (constructor):
        ConfigError: the session is a Spark Connect session, which has no JVM in this process; or Spark has no file
            system for *path*.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        if not has_files(spark):
            raise ConfigError(
                "tables in files require a classic Spark session, because Spark Connect gives no access to files; use "
                "a MergeTable"
            )
        self.path = path.rstrip("/")
        self._jvm: Any = spark._jvm  # noqa: SLF001 - the way in
        try:
            self._root = self._jvm.org.apache.hadoop.fs.Path(self.path)
            self._fs = self._root.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001 - the way in
        except (IllegalArgumentException, Py4JJavaError) as e:  # it is no path; its scheme has no file system
            if isinstance(e, Py4JJavaError) and "UnsupportedFileSystemException" not in str(e):
                raise
            why = e.java_exception.getMessage() if isinstance(e, Py4JJavaError) else str(e).partition("\n")[0]
            raise ConfigError(
                f"Spark cannot use the path {path!r}: {why}; correct it, or add the package of its file system, such "
                "as hadoop-aws for s3a"
            ) from e
        # Hadoop keeps a checksum beside each file of a local file system. The two cannot be replaced in one step, and
        # after a crash in between, the file could not be read.
        gateway = spark.sparkContext._gateway  # noqa: SLF001 - the way in
        self._is_local = is_instance_of(gateway, self._fs, "org.apache.hadoop.fs.LocalFileSystem")
        if self._is_local:
            self._fs = self._fs.getRawFileSystem()

    def sub(self, name: str) -> str:
        """Return the path of *name*."""
        return f"{self.path}/{name}"

    def read_text(self, name: str) -> str | None:
        """Return the text of the file *name*, or None if there is no such file."""
        path = self._at(name)
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return the object that ``write_json`` wrote last to the file *name*, or None if there is none."""
        # Object stores delete the old file before they rename the new one; a crash or a reader may come in between.
        found_in = next((n for n in (name, name + _NEW, name) if self._fs.exists(self._at(n))), None)
        text = None if found_in is None else self.read_text(found_in)
        if text is None:
            return None
        try:
            found = json.loads(text)
        except ValueError:
            if found_in == name:
                raise
            return None  # the first one, which was not written to its end
        if not isinstance(found, dict):
            raise ConfigError(
                f"{self.sub(name)} was not written by rscylla; check that the directory belongs to this table"
            )
        return found

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Write *value* to the file *name* atomically: a reader sees either the old file or the new one."""
        temporary = self._at(name + _NEW)
        stream = self._fs.create(temporary, True)
        try:
            stream.write(json.dumps(value, separators=(",", ":")).encode())
        finally:
            stream.close()
        if self._is_local:  # as rename(2); FileContext would delete the old file first
            if not self._fs.rename(temporary, self._at(name)):
                raise OSError(f"{self.sub(name)}{_NEW} could not be renamed to replace {name}")
            return
        # FileContext, because FileSystem.rename does not replace a file that is there.
        options = self._jvm.org.apache.hadoop.fs.Options
        overwrite = getattr(options, "Rename").OVERWRITE  # noqa: B009 - a nested Java class
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._root.toUri(), self._fs.getConf())
        # Java's varargs are an array, which Py4J does not make by itself.
        renames = self._jvm.java.lang.reflect.Array.newInstance(overwrite.getClass(), 1)
        self._jvm.java.lang.reflect.Array.set(renames, 0, overwrite)
        context.rename(self._fs.makeQualified(temporary), self._fs.makeQualified(self._at(name)), renames)

    def names(self) -> list[str]:
        """Return the names in the directory, sorted; an empty list if it does not exist."""
        if not self._fs.exists(self._root):
            return []
        return sorted(str(s.getPath().getName()) for s in self._fs.listStatus(self._root))

    def remove(self, name: str) -> None:
        """Remove *name* and its contents, if it exists."""
        self._fs.delete(self._at(name), True)

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.sub(name))
