"""Damages files in the ways that find bugs in readers: pure, and the same for the same generator.

What a checksum protects is damaged inside and sealed again, or the checksum would reject it all.
"""

from __future__ import annotations

import gzip
import io
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence

_MOST_BYTES = 2**18  # of a mutant: more costs time and finds nothing
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_ZIP_MAGIC = b"PK\x03\x04"
_GZIP_MAGIC = b"\x1f\x8b"
_EXTREMES = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    65535,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63,
    2**64 - 1,
)
_WORDS = (
    *(
        b"NaN",
        b"nan",
        b"inf",
        b"-inf",
        b"Infinity",
        b"1e400",
        b"-0",
        b"0x10",
        b"null",
        b"true",
        b"",
    ),
    *(b"9" * 20, b"9" * 400, b"-" + b"1" * 5000, b"0." + b"3" * 5000, b"1e-400", b"1_0", b"+"),
    *(b"[" * 3000, b"{" * 3000, b'{"a":' * 1500, b"(" * 300, b"- " * 2000, b"]" * 50, b"\\" * 50),
    *(b"\x1b[2J\x1b]0;x\x07", b"\x00", b"\r", b"\n\n", b"\x7f", b"\x9b31m", b"\xe2\x80\xae"),
    *("\u2028\u0661\ufeff".encode(), b"\xff\xfe", b"\xed\xa0\x80", b"../../../etc/passwd", b"%s%n"),
)

Mutation = Callable[[bytes, Sequence[bytes], random.Random], bytes]


def mutated(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """One of the seeds, damaged in one to six places."""
    seed = rng.choice(seeds)
    inside = _opener(seed)
    if inside is not None and rng.random() < 0.8:
        return inside(seed, seeds, rng)[:_MOST_BYTES]
    return _damaged(seed, seeds, rng)


def _damaged(content: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    kinds = _BINARY + _TEXT if _is_text(content) or rng.random() < 0.1 else _BINARY
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        content = rng.choice(kinds)(content, seeds, rng)[:_MOST_BYTES]
    return content


def _is_text(content: bytes) -> bool:
    head = content[:200]
    return sum(byte < 9 or byte > 126 for byte in head) * 10 <= len(head)


# ---------------------------------------------------------------------------- any bytes


def _span(content: bytes, rng: random.Random) -> tuple[int, int]:
    """A random part, more often near the start, where headers are, and more often short."""
    most = rng.choice((1, 4, 16, 64, 4096))
    end = len(content) if rng.random() < 0.5 else min(len(content), 128)
    start = rng.randrange(end + 1)
    return start, min(len(content), start + rng.randint(1, most))


def _flip(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    if not content:
        return b"\x00"
    place = min(_span(content, rng)[0], len(content) - 1)
    changed = content[place] ^ (1 << rng.randrange(8))
    return content[:place] + bytes([changed]) + content[place + 1 :]


def _insert(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    place = _span(content, rng)[0]
    return content[:place] + rng.randbytes(rng.choice((1, 2, 4, 8, 100))) + content[place:]


def _delete(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    start, end = _span(content, rng)
    return content[:start] + content[end:]


def _truncate(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _repeat(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    start, end = _span(content, rng)
    return content[:end] + content[start:end] * rng.choice((1, 2, 10, 1000)) + content[end:]


def _splice(content: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    other = rng.choice(seeds)
    return content[: rng.randrange(len(content) + 1)] + other[rng.randrange(len(other) + 1) :]


def _overwrite(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    start, end = _span(content, rng)
    return content[:start] + rng.randbytes(end - start) + content[end:]


def _integer(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    size = rng.choice((1, 2, 4, 8))
    value: int = rng.choice(_EXTREMES) % 256**size
    if rng.random() < 0.2:
        value = rng.randrange(256**size)
    place = _span(content, rng)[0]
    written = value.to_bytes(size, rng.choice(("little", "big")))
    return content[:place] + written + content[place + size :]


# ---------------------------------------------------------------------------- text


def _number(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    return _in_place_of(rb"-?\d+(\.\d+)?", content, rng)


def _word(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    return _in_place_of(rb"\w+|[^\w\s]", content, rng)


def _in_place_of(pattern: bytes, content: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(pattern, content[:20_000]))
    if not found:
        return content
    start, end = rng.choice(found).span()
    word = rng.choice(_WORDS)
    if rng.random() < 0.2:
        word = str(rng.choice(_EXTREMES) * rng.choice((-1, 1))).encode()
    return content[:start] + word + content[end:]


def _wrap(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    opening, closing = rng.choice(((b"[", b"]"), (b"{", b"}"), (b'{"a":', b"}"), (b"(", b")")))
    start, end = _span(content, rng)
    depth = rng.choice((1, 50, 5000))
    return content[:start] + opening * depth + content[start:end] + closing * depth + content[end:]


def _shuffle_lines(content: bytes, _: Sequence[bytes], rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    return b"".join(lines)


_BINARY: tuple[Mutation, ...] = (
    *(_flip, _insert, _delete, _truncate, _repeat, _splice, _overwrite, _integer, _integer),
)
_TEXT: tuple[Mutation, ...] = (_number, _number, _word, _word, _wrap, _shuffle_lines)

# ---------------------------------------------------------------------------- containers


def _opener(content: bytes) -> Mutation | None:
    """How to damage the inside of a container, if the content is one."""
    kinds: dict[bytes, Mutation] = {_GZIP_MAGIC: _gzip, _ZIP_MAGIC: _zip, _PNG_MAGIC: _png}
    return next((change for magic, change in kinds.items() if content.startswith(magic)), None)


def _gzip(content: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    inside = _damaged(gzip.decompress(content), seeds, rng)
    sealed = gzip.compress(inside, 1, mtime=0)
    return sealed * 2 if rng.random() < 0.05 else sealed


def _zip(content: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(member.filename, archive.read(member)) for member in archive.infolist()]
    number = rng.randrange(len(members))
    name, inside = members[number]
    match rng.choice(("content", "content", "content", "content", "name", "drop", "sizes")):
        case "content":
            members[number] = name, _damaged(inside, [member for _, member in members], rng)
        case "name":
            changed = _damaged(name.encode(), [b"x.npy", b"y.npy"], rng)[:1000]
            members[number] = changed.decode("latin1").replace("\0", "") or "x", inside
        case "drop":
            del members[number]
        case _:
            return _wrong_sizes(_zipped(members, zipfile.ZIP_DEFLATED), rng)
    kinds = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
    return _zipped(members, rng.choice(kinds))


def _zipped(members: Sequence[tuple[str, bytes]], kind: int) -> bytes:
    sealed = io.BytesIO()
    with zipfile.ZipFile(sealed, "w", kind) as archive:
        for name, inside in dict(members).items():
            archive.writestr(zipfile.ZipInfo(name), inside, kind)
    return sealed.getvalue()


def _wrong_sizes(content: bytes, rng: random.Random) -> bytes:
    """A zip whose directory lies about the sizes, number or place of its members."""
    for magic, offsets in ((b"PK\x01\x02", (10, 20, 24, 28, 42)), (b"PK\x05\x06", (8, 10, 12, 16))):
        start = content.find(magic)
        if start >= 0 and rng.random() < 0.7:
            place = start + rng.choice(offsets)
            value = struct.pack("<I", rng.choice(_EXTREMES) % 2**32)[: rng.choice((2, 4))]
            content = content[:place] + value + content[place + len(value) :]
    return content


def _png(content: bytes, seeds: Sequence[bytes], rng: random.Random) -> bytes:
    chunks = _png_chunks(content)
    number = rng.randrange(len(chunks))
    kind, inside = chunks[number]
    if kind == b"IDAT" and rng.random() < 0.7:
        inside = zlib.compress(_damaged(zlib.decompress(inside), seeds, rng), 1)
    elif rng.random() < 0.1:
        kind = rng.choice((b"tEXt", b"zTXt", b"iTXt", b"iCCP", b"PLTE", b"tRNS", b"acTL", b"fdAT"))
    else:
        inside = _damaged(inside, seeds, rng)
    chunks[number] = kind, inside
    if rng.random() < 0.1:
        chunks.insert(rng.randrange(len(chunks)), rng.choice(chunks))
    return _PNG_MAGIC + b"".join(
        struct.pack(">I", len(inside))
        + kind
        + inside
        + struct.pack(">I", zlib.crc32(kind + inside))
        for kind, inside in chunks
    )


def _png_chunks(content: bytes) -> list[tuple[bytes, bytes]]:
    chunks, place = [], len(_PNG_MAGIC)
    while place < len(content):
        (size,) = struct.unpack_from(">I", content, place)
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    return chunks
