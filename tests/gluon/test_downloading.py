"""gluon.utils.download: files come whole with the right SHA-1, or not at all."""

import hashlib
import http.server
import sys
import threading

import pytest

from hybrid_lab import test_utils
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.gluon.files import downloading
from hybrid_lab.gluon.model_zoo import model_store
from hybrid_lab.gluon.utils import DownloadError, check_sha1, download

CONTENT = b"weights" * 1000
SHA1 = hashlib.sha1(CONTENT).hexdigest()


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "there" / "net v1.params"
    file.parent.mkdir()
    file.write_bytes(CONTENT)
    return file


def test_a_file_url(source, tmp_path):
    target = download(source.as_uri(), tmp_path / "here" / "net.params", sha1_hash=SHA1)
    assert target == str(tmp_path / "here" / "net.params")
    assert (tmp_path / "here" / "net.params").read_bytes() == CONTENT
    assert check_sha1(target, SHA1.upper()) and not check_sha1(target, "0" * 40)


def test_the_name_comes_from_the_url(source, tmp_path, monkeypatch):
    assert download(source.as_uri(), tmp_path) == str(tmp_path / "net v1.params")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    assert download(source.as_uri()) == "net v1.params"


def test_an_existing_file_is_kept_unless_it_is_another_one(source, tmp_path):
    target = tmp_path / "net.params"
    target.write_bytes(b"old")
    download(source.as_uri(), target)
    assert target.read_bytes() == b"old"
    download(source.as_uri(), target, sha1_hash=SHA1)
    assert target.read_bytes() == CONTENT
    source.write_bytes(b"new")
    download(source.as_uri(), target, overwrite=True)
    assert target.read_bytes() == b"new"


def test_another_file_than_expected_leaves_nothing(source, tmp_path):
    target = tmp_path / "net.params"
    target.write_bytes(b"old")
    with pytest.raises(DownloadError, match="SHA-1"):
        download(source.as_uri(), target, sha1_hash="0" * 40, retries=0)
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.params", "there"]


class _Cut(http.server.BaseHTTPRequestHandler):
    """Announces more bytes than it sends, once; then the whole file."""

    requests = 0

    def do_GET(self):
        type(self).requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:100] if self.requests == 1 else CONTENT)

    def log_message(self, *args):
        pass


def test_a_broken_connection_is_tried_again(tmp_path, caplog):
    _Cut.requests = 0
    server = http.server.HTTPServer(("127.0.0.1", 0), _Cut)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/net.params"
    try:
        with pytest.raises(DownloadError, match="100"):
            download(url, tmp_path / "a", retries=0)
        assert not (tmp_path / "a").exists()
        _Cut.requests = 0
        assert (tmp_path / "a").samefile(download(url, tmp_path / "a", retries=1))
    finally:
        server.shutdown()
        server.server_close()
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert "1 more tries" in caplog.text


def test_wrong_arguments(tmp_path):
    with pytest.raises(SettingError, match="http"):
        download("ftp://host/file")
    with pytest.raises(SettingError, match="name of a file"):
        download("https://host/")
    with pytest.raises(SettingError, match="retries"):
        download("https://host/file", retries=-1)
    with pytest.raises(DownloadError, match="nothing.bin"):
        download((tmp_path / "nothing.bin").as_uri(), tmp_path / "x", retries=0)


OUTSIDE = [
    *("..%2F..%2Fevil.params", "%2Fetc%2Fevil.params", "..%2fevil", "..", ".", "%2e%2e", "a%2F..%2F..%2Fb", "x%00y"),
    *("..%5Cevil.params", "C%3A%5Cevil", "a%5Cb", "%2F", "", "?file=../../evil", "#../../evil", "..%2Fevil?query=1"),
]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("download_to", [download, test_utils.download])
def test_the_name_in_a_url_leads_to_no_other_folder(source, tmp_path, monkeypatch, name, download_to):
    """Neither into a folder that is named nor into the current one; nothing is fetched."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for scheme in ("http://127.0.0.1:9/x/", "file:///x/"):
        with pytest.raises(SettingError, match="does not end with the name of a file"):
            download_to(scheme + name)
        with pytest.raises(SettingError, match="does not end with the name of a file"):
            download_to(scheme + name, **{"path" if download_to is download else "dirname": str(folder)})
    assert sorted(tmp_path.rglob("*")) == sorted([source.parent, source, folder.parent, folder])


def test_queries_are_no_part_of_the_name(source, tmp_path):
    for end in ("?x=../../y", "#../../y", "?a/b"):
        assert downloading._target(f"https://host/folder/net.params{end}", tmp_path) == str(tmp_path / "net.params")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/zero never ends")
def test_a_file_without_an_end_is_not_fetched(tmp_path):
    with pytest.raises(DownloadError, match="more than 0 bytes came"):
        download("file:///dev/zero", tmp_path / "zeros", retries=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/b", "..", "", "a\\b", "x\0y"])
def test_names_of_networks_lead_to_no_other_folder(tmp_path, name):
    (tmp_path / "x.params").touch()
    with pytest.raises(SettingError, match="not the name of a network"):
        model_store.get_model_file(name, tmp_path / "root")
