import mmap

import pytest

from qkv.io.hub.mapped_files import MappedFiles


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(256)) * (mmap.PAGESIZE // 64))
    return path


def test_writing_to_a_map_changes_no_file(path):
    files, before = MappedFiles(), path.read_bytes()
    files.map(path, len(before))[:3] = b"abc"
    assert files.map(path, 3)[:3] == b"abc" and path.read_bytes() == before


def test_a_file_that_was_cut_short_is_refused_each_time(path):
    files = MappedFiles()
    for _ in range(2):
        with pytest.raises(ValueError, match="numbers was cut short while it was read"):
            files.map(path, path.stat().st_size + 1)


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="needs madvise")
def test_forgetting_releases_whole_pages_only(path):
    files, page = MappedFiles(), mmap.PAGESIZE
    data = files.map(path, 3 * page)
    data[:] = b"x" * len(data)
    files.forget(path, 1, 3 * page - 1)  # a private page that is released is read from the file again
    assert data[:page] == b"x" * page and data[2 * page : 3 * page] == b"x" * page
    assert data[page : 2 * page] == path.read_bytes()[page : 2 * page]
