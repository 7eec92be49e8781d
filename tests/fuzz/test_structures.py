"""Files whose fields are drawn one by one, which reaches further than damage to whole files."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.data.formats.cifar_pickle import read_pickle
from remuda.errors import DataError
from tests.data.samples import load

# Mostly small, so that some files are sound; and what overflows.
_SIZES = st.one_of(st.integers(0, 6), st.sampled_from([255, 2**16, 2**31, 2**32 - 1]))
_TYPES = st.sampled_from(
    ["|u1", "<u2", ">i8", "<f4", ">f8", "<f2", "<f16", "<i16", "<U3", "<U0", "|O", "<c8", "|S2", ""]
)
_BODIES = st.binary(max_size=300)


@pytest.fixture(autouse=True, scope="module")
def _sixty_four_megabytes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMUDA_MEMORY", "64M")
        yield


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bytes], None]:
    """Reads a file of this name, which may be refused in one line."""
    folder = tmp_path_factory.mktemp("structures")

    def read(name: str, content: bytes) -> None:
        path = folder / name
        path.write_bytes(content)
        said = str(path)
        try:
            read_pickle(path) if name == "pickle" else load(path)
        except DataError as error:
            said = str(error)
        assert said.startswith(str(path))
        assert said.isprintable()
        assert len(said) < 1000

    return read


@given(st.lists(_SIZES, max_size=4), st.integers(0, 4), _BODIES, st.booleans())
def test_idx_headers(
    check: Callable[[str, bytes], None], sides: list[int], count: int, body: bytes, packed: bool
) -> None:
    content = struct.pack(f">4B{len(sides)}I", 0, 0, 8, count, *sides) + body
    check("a.idx", gzip.compress(content, mtime=0) if packed else content)


@st.composite
def _npy(draw: st.DrawFn) -> bytes:
    shape = ", ".join(map(str, draw(st.lists(_SIZES, max_size=5))))
    order = draw(st.sampled_from(["False", "True", "None", "0"]))
    about = f"{{'descr': '{draw(_TYPES)}', 'fortran_order': {order}, 'shape': ({shape},), }}"
    version, kind = draw(st.sampled_from([(1, "<H"), (2, "<I"), (3, "<I"), (1, "<I")]))
    length = draw(st.sampled_from([len(about), len(about), len(about), 0, 2**15]))
    head = b"\x93NUMPY" + bytes([version, 0]) + struct.pack(kind, length) + about.encode()
    return head + draw(_BODIES)


@given(_npy())
def test_npy_headers(check: Callable[[str, bytes], None], content: bytes) -> None:
    check("a.npy", content)


@given(
    st.dictionaries(
        st.sampled_from(["x.npy", "y.npy", "labels", "arr_0.npy", "\x1b[2J.npy"]), _npy()
    )
)
def test_npz_members(check: Callable[[str, bytes], None], members: dict[str, bytes]) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    check("a.npz", file.getvalue())


_CODES = st.one_of(
    st.sampled_from(
        [
            *(b"N", b"\x88", b"(", b"0", b"1", b"]", b")", b"}", b"l", b"t", b"d", b"a", b"e"),
            *(b"s", b"u", b"R", b"b", b"\x85", b"\x86", b"\x87", b"\x94", b"\x93", b"."),
            *(b"K\x01", b"J\xff\xff\xff\xff", b"U\x01a", b"X\x02\x00\x00\x00u1", b"C\x01a"),
            *(
                b"I01\n",
                b"I5\n",
                b"F1e9\n",
                b"L12L\n",
                b"V\\u2028\n",
                b"S'\\x41'\n",
                b"\x8a\x01\xff",
            ),
            *(b"h\x00", b"q\x00", b"j\x00\x00\x00\x00", b"r\xff\xff\xff\xff", b"g0\n", b"p1\n"),
            *(b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", b"c_codecs\nencode\n", b"cos\nsystem\n"),
            b"cnumpy.core.multiarray\n_reconstruct\n",
            b"cnumpy\ndtype\n(X\x02\x00\x00\x00u1tR",
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR",
        ]
    ),
    st.binary(max_size=3),
)


@given(st.lists(_CODES, max_size=40))
def test_pickle_instructions(check: Callable[[str, bytes], None], codes: list[bytes]) -> None:
    check("pickle", b"\x80\x02" + b"".join(codes) + b".")


_WORDS = st.one_of(
    st.sampled_from(["1", "-2.5", "nan", "inf", "1e400", "x", "#", "٣", "1_0", "9" * 30, "0x1"]),
    st.text(max_size=5),
)


@given(st.lists(st.lists(_WORDS, max_size=4).map(",".join), max_size=5).map("\n".join))
def test_lines_of_text(check: Callable[[str, bytes], None], text: str) -> None:
    check("a.csv", text.encode("utf-8", "surrogatepass"))
