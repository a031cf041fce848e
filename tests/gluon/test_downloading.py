"""gluon.utils.download: files come whole with the right SHA-1, or not at all."""

import hashlib
import http.server
import threading

import pytest

from hybrid_lab.diagnostics.errors import SettingError
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
