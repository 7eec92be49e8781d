"""Files of strangers: what they declare, or can be inflated to, is not what they cost."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from remuda.data import dataset_from_array
from remuda.errors import DataError
from tests.data.costs import Cost, cost_of
from tests.data.samples import (
    CIFAR_PIXELS,
    idx_bytes,
    load,
    random_bytes,
    write_mnist,
    write_pickle,
)

pytestmark = pytest.mark.slow
MB = 2**20
ALLOWED = 50 * MB
LARGE = 200 * MB  # four times of what is allowed
GOOD_BATCH = {"data": random_bytes(2, CIFAR_PIXELS), "labels": [3, 9]}


@pytest.fixture(autouse=True)
def _fifty_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_MEMORY", "50M")


def _cost(path: Path, **settings: Any) -> Cost:
    return cost_of(lambda: load(path, **settings))


def _zeros(size: int) -> Iterator[bytes]:
    while size > 0:
        yield bytes(min(MB, size))
        size -= MB


def _gzipped(path: Path, head: bytes, size: int) -> Path:
    with gzip.open(path, "wb", 1) as file:
        file.write(head)
        file.writelines(_zeros(size))
    return path


def _idx_head(*shape: int) -> bytes:
    return struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape)


def _npy_head(shape: tuple[int, ...], kind: str = "|u1") -> bytes:
    header = io.BytesIO()
    about = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    return header.getvalue()


def _npz(path: Path, head: bytes, size: int) -> Path:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(head)
        for part in _zeros(size):
            member.write(part)
    return path


# ---------------------------------------------------------------------------- arrays and text


def _npz_bomb(folder: Path) -> Path:
    return _npz(folder / "a.npz", _npy_head((LARGE // 100, 10, 10)), LARGE)


def _npy_of_nothing(folder: Path) -> Path:
    (folder / "a.npy").write_bytes(_npy_head((2**40, 10, 10)))
    return folder / "a.npy"


def _npy_with_a_hole(folder: Path) -> Path:
    path = folder / "a.npy"
    path.write_bytes(_npy_head((LARGE // 100, 10, 10)))
    os.truncate(path, path.stat().st_size + LARGE)
    return path


def _npy_of_a_huge_header(folder: Path) -> Path:
    path = folder / "a.npy"
    path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", LARGE))
    os.truncate(path, LARGE)
    return path


def _npz_of_words(folder: Path) -> Path:
    return _npz(folder / "a.npz", _npy_head((1, LARGE // 4), "<U1"), LARGE)


def _idx_bomb(folder: Path) -> Path:
    return _gzipped(folder / "a-idx3-ubyte.gz", _idx_head(LARGE // 100, 10, 10), LARGE)


def _idx_of_nothing(folder: Path) -> Path:
    return _gzipped(folder / "a-idx3-ubyte.gz", _idx_head(2**31, 2**20, 10), 10)


def _idx_labels_bomb(folder: Path) -> Path:
    _gzipped(folder / "a-labels-idx1-ubyte.gz", _idx_head(LARGE), LARGE)
    (folder / "a-images-idx3-ubyte").write_bytes(idx_bytes(random_bytes(4, 5, 5)))
    return folder / "a-images-idx3-ubyte"


def _long_text(folder: Path) -> Path:
    path = folder / "a.csv"
    path.write_text("1,2\n" * 2_000_000)
    return path


def _long_line(folder: Path) -> Path:
    path = folder / "a.csv"
    path.write_text("1," * 10_000_000)
    return path


# ---------------------------------------------------------------------------- pickles


def _pickled(folder: Path, code: bytes) -> Path:
    (folder / "data_batch_1").write_bytes(code)
    return folder


def _memo_bomb(folder: Path) -> Path:
    return _pickled(folder, b"\x80\x02}r" + struct.pack("<I", 2**25) + b".")


def _encode_bomb(folder: Path) -> Path:
    """A text of a megabyte that is encoded two hundred times."""
    text = b"X" + struct.pack("<I", MB) + b"a" * MB + b"q\x01"
    call = b"c_codecs\nencode\n(h\x01X\x06\x00\x00\x00latin1tR"
    return _pickled(folder, b"\x80\x02}X\x04\x00\x00\x00data](" + text + call * 200 + b"es.")


def _array_bomb(folder: Path) -> Path:
    """Bytes of a megabyte that two hundred arrays are made of."""
    raw = b"B" + struct.pack("<I", MB) + b"a" * MB + b"q\x01"
    kind = b"cnumpy\ndtype\n(X\x02\x00\x00\x00u1tRq\x02"
    state = b"(K\x01J" + struct.pack("<i", MB) + b"\x85h\x02\x89h\x01tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85Vb\ntR" + state
    return _pickled(folder, b"\x80\x03}X\x04\x00\x00\x00data](" + raw + kind + array * 200 + b"es.")


def _many_lists(folder: Path) -> Path:
    return _pickled(folder, b"\x80\x02(" + b"]" * 700_000 + b"t.")


def _nested_labels(folder: Path) -> Path:
    """Lists of a hundred lists of a hundred lists: a hundred million numbers in a kilobyte."""
    labels: Any = 1
    for _ in range(4):
        labels = [labels] * 100
    write_pickle(folder / "data_batch_1", GOOD_BATCH | {"labels": labels})
    return folder


def _key_of_keys(folder: Path) -> Path:
    """A key whose hash takes two to the sixtieth steps."""
    return _pickled(folder, b"\x80\x02})" + b"q\x01h\x01\x86" * 60 + b"K\x01s.")


def _names_bomb(folder: Path) -> Path:
    record = bytes([0]) + bytes(CIFAR_PIXELS)
    (folder / "data_batch_1.bin").write_bytes(record)
    (folder / "batches.meta.txt").write_bytes(b"a " * 5_000_000)
    return folder


# ---------------------------------------------------------------------------- images


def _image(folder: Path, name: str, content: bytes, count: int = 1) -> Path:
    (folder / "a").mkdir()
    for number in range(count):
        (folder / "a" / f"{number}{name}").write_bytes(content)
    return folder


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _large_png(folder: Path) -> Path:
    return _image(folder, ".png", _saved(Image.new("L", (8000, 8000)), "PNG"))


def _one_bit_tiff(folder: Path) -> Path:
    content = _saved(Image.new("1", (9000, 9000)), "TIFF", compression="group4")
    return _image(folder, ".tiff", content)


def _tiff_of_one_tile(folder: Path) -> Path:
    """An image of one pixel, in a tile of 64 million."""
    side, packed = 8192, zlib.compress(bytes(8192**2), 1)
    tags = [
        *((256, 1), (257, 1), (258, 8), (259, 8), (262, 1), (277, 1)),
        *((322, side), (323, side), (324, 8), (325, len(packed))),
    ]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    head = b"II*\0" + struct.pack("<I", 8 + len(packed))
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    return _image(folder, ".tiff", head + packed + directory)


def _large_webp_canvas(folder: Path) -> Path:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    content = _saved(frames[0], "WEBP", save_all=True, append_images=frames[1:])
    assert content[12:16] == b"VP8X"
    return _image(folder, ".webp", content[:24] + b"\x00\x2e\x00" * 2 + content[30:])


def _skipping_bmp(folder: Path) -> Path:
    """A packed bitmap of one long row that skips 255 rows."""
    width = 1_000_000
    info = struct.pack("<IiiHHIIiiII", 40, width, 1, 1, 8, 1, 4, 0, 0, 256, 0)
    head = struct.pack("<2sIHHI", b"BM", 0, 0, 0, 14 + 40 + 1024)
    return _image(folder, ".bmp", head + info + bytes(1024) + b"\x00\x02\x00\xff")


def _many_images(folder: Path) -> Path:
    return _image(folder, ".png", _saved(Image.new("RGB", (1000, 1000)), "PNG"), 20)


BOMBS: list[tuple[Callable[[Path], Path], str]] = [
    (_npz_bomb, r"a.npz: x: would take 209.7 MB .*; allowed: 52.4 MB \(REMUDA_MEMORY=SIZE"),
    (_npy_of_nothing, "a.npy: truncated: shape .* needs"),
    (_npy_with_a_hole, "a.npy: would take 209.7 MB"),
    (_npy_of_a_huge_header, "a.npy: a header of 209715200 bytes; allowed: 10000"),
    (_npz_of_words, "a.npz: x: would take 209.7 MB"),
    (_idx_bomb, r"a-idx3-ubyte.gz: would take 209.7 MB for items of shape"),
    (_idx_of_nothing, "truncated"),
    (_idx_labels_bomb, "a-labels-idx1-ubyte.gz: 209715200 labels for 4 items"),
    (_long_text, "a.csv: would take 5.* MB for .* points"),
    (_long_line, "a.csv: line 1 has over 1048575 letters"),
    (_memo_bomb, "data_batch_1: no entry 'data'"),
    (_encode_bomb, "data_batch_1: no entry 'labels'"),
    (_array_bomb, "data_batch_1: no entry 'labels'"),
    (_many_lists, "data_batch_1: would take"),
    (_nested_labels, "data_batch_1: a label is a list; expected integers"),
    (_key_of_keys, "data_batch_1: damaged .*: a key that is not text"),
    (_names_bomb, "batches.meta.txt: expected the names of 10 classes"),
    (_large_png, r"0.png: would take .* for an image of 8000x8000"),
    (_one_bit_tiff, r"0.tiff: would take .* for an image of 9000x9000"),
    (_tiff_of_one_tile, r"0.tiff: would take .* for an image of 8192x8192"),
    (_large_webp_canvas, r"0.webp: would take .* for an image of 11777x11777"),
    (_skipping_bmp, r"0.bmp: would take .* for an image of 1000000x1"),
    (_many_images, ": would take 60.0 MB for 20 images"),
]


@pytest.mark.parametrize(("make", "says"), BOMBS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_bomb_is_refused_and_takes_no_memory(
    tmp_path: Path, make: Callable[[Path], Path], says: str
) -> None:
    cost = _cost(make(tmp_path))
    assert cost.bytes < ALLOWED, cost
    assert re.match(f"DataError: .*{says}", cost.error), cost
    assert cost.cpu_seconds < 20, cost


def test_no_more_of_an_idx_file_is_inflated_than_the_limit_needs(tmp_path: Path) -> None:
    path = _idx_bomb(tmp_path)
    cost = _cost(path, limit=10)
    assert cost.error == ""
    assert cost.bytes < 20 * MB
    assert load(path, limit=10).items.shape == (10, 1, 10, 10)


def test_labels_of_a_limited_idx_file_keep_the_names_of_all(tmp_path: Path) -> None:
    images = write_mnist(tmp_path, count=12)
    dataset = load(tmp_path / "train-images-idx3-ubyte.gz", limit=3)
    assert np.array_equal(dataset.items.stored[:, 0].numpy(), images[:3])
    assert dataset.label_names == tuple("0123456789")
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [0, 1, 2]


def test_a_folder_of_very_many_files_is_refused_before_all_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_MEMORY", "1M")
    _image(tmp_path, ".png", b"", 3000)
    with pytest.raises(DataError, match=r"a: would take 2.0 MB for over 2000 names"):
        load(tmp_path)


def test_what_a_png_promises_is_not_allocated(tmp_path: Path) -> None:
    """Found by fuzzing: Pillow asks for all of a chunk, which declares four gigabytes."""
    content = _saved(Image.new("L", (8, 8), 7), "PNG")
    start = content.index(b"IDAT")
    promised = content[: start - 4] + struct.pack(">I", 2**32 - 9) + content[start:]
    cost = _cost(_image(tmp_path, ".png", promised))
    assert cost.error == ""


# ---------------------------------------------------------------------------- hangs


def _exif_parts() -> bytes:
    """A JPEG in whose header Pillow adds byte to byte, copying all before each."""
    plain = _saved(Image.new("L", (8, 8)), "JPEG")
    return plain[:2] + b"\xff\xe1\x00\x09Exif\0\0a" * 400_000 + plain[2:]


def _comments() -> bytes:
    """A text image whose comments Pillow cuts out one by one, copying all after each."""
    return b"P2\n2 2\n255\n" + b"#\n" * 500_000 + b"1 2 3 4\n"


def _scans() -> bytes:
    """A JPEG that goes over the whole picture again and again, in 46 bytes each time."""
    plain = _saved(Image.new("L", (3000, 3000)), "JPEG", progressive=True)
    start = plain.index(b"\xff\xc4", plain.index(b"\xff\xda"))  # behind the first scan
    end = plain.index(b"\xff\xc4", plain.index(b"\xff\xda", start))
    return plain[:end] + plain[start:end] * 20_000 + plain[end:]


@pytest.mark.parametrize(
    ("name", "make", "says"),
    [
        (".jpg", _exif_parts, "0.jpg: damaged .*: over 100000 parts before the pixels"),
        (".pgm", _comments, "0.pgm: over 1000 comments"),
        (".jpg", _scans, "0.jpg: a JPEG of over 100 scans"),
    ],
)
def test_a_picture_that_takes_for_ever_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    make: Callable[[], bytes],
    says: str,
) -> None:
    monkeypatch.setenv("REMUDA_MEMORY", "1G")
    cost = _cost(_image(tmp_path, name, make()))
    assert re.match(f"DataError: .*{says}", cost.error), cost
    assert cost.cpu_seconds < 3


# ---------------------------------------------------------------------------- code


def test_no_picture_starts_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args, **_: called.append(args))
    monkeypatch.setattr(EpsImagePlugin, "has_ghostscript", lambda: True)
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n"
    with pytest.raises(DataError, match=r"0\.png: damaged or in another format"):
        load(_image(tmp_path, ".png", eps))
    assert called == []


@pytest.mark.parametrize("name", ["\udcff", "a\udc80b"])
def test_a_class_has_a_name_that_can_be_written_down(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "1.png").write_bytes(_saved(Image.new("L", (8, 8)), "PNG"))
    with pytest.raises(DataError, match=r"class name '.*udc.*' is not text"):
        load(tmp_path)


# ---------------------------------------------------------------------------- no files


def _sound(folder: Path) -> dict[str, Path]:
    """What is loaded in a sound folder, by the file in it that is to be replaced."""
    write_pickle(folder / "cifar" / "data_batch_1", GOOD_BATCH)
    write_mnist(folder / "idx")
    _image(folder / "images", ".png", _saved(Image.new("L", (8, 8)), "PNG"), 2)
    files = {name: folder / name for name in ("a.npy", "a.npz", "a.csv", "a-idx3-ubyte.gz")}
    return files | {
        "cifar/data_batch_1": folder / "cifar",
        "cifar/batches.meta": folder / "cifar",
        "idx/train-labels-idx1-ubyte.gz": folder / "idx" / "train-images-idx3-ubyte.gz",
        "images/a/1.png": folder / "images",
    }


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / "images").mkdir()
    for name, source in _sound(tmp_path).items():
        path = tmp_path / name
        kept = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
        cost = _cost(source)
        assert cost.error == f"DataError: {path}: is not a regular file; expected a file"
        path.unlink()
        if kept is not None:
            path.write_bytes(kept)


def test_data_may_be_links_to_files_elsewhere(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", random_bytes(3, 4, 5))
    (tmp_path / "b.npy").symlink_to(tmp_path / "a.npy")
    assert len(load(tmp_path / "b.npy")) == 3
    _image(tmp_path, ".png", _saved(Image.new("L", (8, 8)), "PNG"))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "linked").symlink_to(tmp_path / "a")
    assert len(load(tmp_path / "more")) == 1


# ---------------------------------------------------------------------------- honest files


def test_a_fingerprint_of_large_images_converts_few_at_a_time() -> None:
    dataset = dataset_from_array(random_bytes(40, 1000, 1000))
    assert cost_of(lambda: dataset.fingerprint).bytes < 2 * dataset.items.nbytes


def _honest_npy(folder: Path) -> Path:
    np.save(folder / "a.npy", random_bytes(40_000, 32, 32))
    return folder / "a.npy"


def _honest_floats(folder: Path) -> Path:
    np.savez(folder / "a.npz", x=random_bytes(10_000, 32, 32).astype(np.float32) / 255)
    return folder / "a.npz"


def _honest_idx(folder: Path) -> Path:
    content = idx_bytes(random_bytes(20_000, 32, 32))
    (folder / "a-idx3-ubyte.gz").write_bytes(gzip.compress(content, 1, mtime=0))
    return folder / "a-idx3-ubyte.gz"


def _honest_cifar(folder: Path) -> Path:
    pixels, labels = random_bytes(5000, CIFAR_PIXELS), [number % 10 for number in range(5000)]
    for number in (1, 2, 3):
        # As the published files are: bytes written by Python 2.
        batch = pickle.dumps({"data": pixels, "labels": labels}, protocol=3)
        (folder / f"data_batch_{number}").write_bytes(batch)
    return folder


def _honest_folder(folder: Path) -> Path:
    return _image(folder, ".png", _saved(Image.fromarray(random_bytes(512, 512, 3)), "PNG"), 30)


def _honest_text(folder: Path) -> Path:
    (folder / "a.csv").write_text("0.25,1.75\n" * 400_000)
    return folder / "a.csv"


@pytest.mark.parametrize(
    ("make", "times"),
    [
        (_honest_npy, 1.5),
        (_honest_floats, 2.5),
        (_honest_idx, 1.5),
        (_honest_cifar, 2.5),
        (_honest_folder, 1.5),
        (_honest_text, 4),  # float64 while it is read, twice the float32 that are kept
    ],
)
def test_honest_data_take_little_more_than_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Path], times: float
) -> None:
    monkeypatch.setenv("REMUDA_MEMORY", "1G")
    path = make(tmp_path)
    cost = _cost(path)
    assert cost.error == ""
    assert cost.bytes < times * load(path).items.nbytes + 8 * MB
