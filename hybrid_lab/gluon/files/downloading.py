"""Downloads of files, and their SHA-1."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from hybrid_lab.diagnostics.errors import HybridLabError, SettingError
from hybrid_lab.diagnostics.file_errors import FileError, writing
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.formats.atomic import atomic_write, check_writable
from hybrid_lab.system.logger import logger
from hybrid_lab.system.progress import shows_work

if TYPE_CHECKING:
    import ssl


class DownloadError(HybridLabError, RuntimeError):
    """A file could not be downloaded, or is another one than was expected."""


def check_sha1(filename: str | os.PathLike[str], sha1_hash: str) -> bool:
    """Whether the file has this SHA-1, in hexadecimal digits."""
    digest = hashlib.sha1(usedforsecurity=False)
    with open(filename, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == sha1_hash.lower()


@shows_work("downloading")
def download(
    url: str,
    path: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    sha1_hash: str | None = None,
    retries: int = 5,
    verify_ssl: bool = True,
) -> str:
    """Download a file and return its path. The log names the file and its source.

    url : http://, https:// or file://
    path : of the file, or a folder that is there; by default the last part of the URL, in the current folder. A part
        that leads elsewhere (`..%2Fname`) is refused
    overwrite : download although the file is there; it is downloaded in any case if it has another SHA-1
    sha1_hash : of the whole file, in hexadecimal digits
    retries : how often to try again; verify_ssl : check the certificate of the server
    The file appears when it is complete and has the right SHA-1. Raises DownloadError otherwise, and FileError if it
    cannot be written.
    """
    check_switches("download", overwrite=overwrite, verify_ssl=verify_ssl)
    if urlsplit(url).scheme not in ("http", "https", "file"):
        raise SettingError(f"download: {url!r} must begin with http://, https:// or file://")
    if retries < 0:
        raise SettingError(f"download: retries={retries} must be at least 0")
    target = _target(url, path)
    if os.path.exists(target) and not overwrite and (sha1_hash is None or check_sha1(target, sha1_hash)):
        return target
    with writing(target):
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    check_writable(target)
    if not verify_ssl:
        logger.warning(f"{url} is downloaded without checking the server's certificate (verify_ssl=False)")
    context = None
    if not verify_ssl:
        import ssl

        context = ssl._create_unverified_context()  # noqa: SLF001 - Python's only name for it
    for left in range(retries, -1, -1):
        logger.info(f"downloading {url} to {target}")
        try:
            _fetch(url, target, sha1_hash, context)
            return target
        except FileError:
            raise  # another try would find the same disk
        except (OSError, ValueError, http.client.HTTPException, HybridLabError) as error:
            if not left:
                raise DownloadError(f"{url} could not be downloaded: {error}") from error
            logger.warning(f"{url} could not be downloaded, {left} more tries: {error}")
    raise AssertionError("unreachable")


def _get_repo_url() -> str:
    """The URL, with a slash at its end, below which MXNet keeps data sets and weights; libraries take it from here.

    The environment variable MXNET_GLUON_REPO replaces it.
    """
    url = os.environ.get("MXNET_GLUON_REPO", "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/")
    return url.rstrip("/") + "/"


def _get_repo_file_url(namespace: str, filename: str) -> str:
    """The URL of a file there. namespace : its folder"""
    return f"{_get_repo_url()}{namespace}/{filename}"


def _target(url: str, path: str | os.PathLike[str] | None) -> str:
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    given = "" if path is None else os.path.expanduser(os.fspath(path))
    if given and not os.path.isdir(given):
        return given
    if name in ("", os.curdir, os.pardir) or any(sign in name for sign in "/\\\0") or os.path.splitdrive(name)[0]:
        raise SettingError(f"download: {url!r} does not end with the name of a file; give the path")
    return os.path.join(given, name)


def _fetch(url: str, target: str, sha1_hash: str | None, context: ssl.SSLContext | None) -> None:
    """Download to the target, which changes only if all bytes came. Raises OSError, DownloadError."""
    digest = hashlib.sha1(usedforsecurity=False)
    with urllib.request.urlopen(url, context=context) as source, atomic_write(target) as file:  # noqa: S310
        expected = source.headers.get("Content-Length")
        while block := _received(source):
            digest.update(block)
            file.write(block)
            if expected is not None and file.tell() > int(expected):
                raise DownloadError(f"more than {expected} bytes came")  # as of a file:// URL of a device
        if expected is not None and file.tell() != int(expected):
            raise DownloadError(f"the connection ended after {file.tell()} of {expected} bytes")
        if sha1_hash is not None and digest.hexdigest() != sha1_hash.lower():
            raise DownloadError(f"the file has the SHA-1 {digest.hexdigest()}, not {sha1_hash}")


def _received(source: IO[bytes]) -> bytes:
    """The next bytes of a connection, none at its end. Raises DownloadError: its errors are none of the disk's."""
    try:
        return source.read(1 << 16)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DownloadError(f"the connection broke: {error or type(error).__name__}") from None
