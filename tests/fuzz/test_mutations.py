from __future__ import annotations

import gzip
import io
import random
import zipfile
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from PIL import Image

from tests.fuzz.mutations import mutated


def _all(seed: bytes, count: int = 300) -> list[bytes]:
    return [mutated([seed], random.Random(number)) for number in range(count)]


def test_the_same_generator_makes_the_same_mutant() -> None:
    assert _all(b"1, 2\n3, 4\n") == _all(b"1, 2\n3, 4\n")
    assert len(set(_all(b"1, 2\n3, 4\n"))) > 200


def test_most_mutants_of_what_has_a_checksum_keep_it_right() -> None:
    archive, picture = io.BytesIO(), io.BytesIO()
    np.savez_compressed(archive, x=np.arange(50), y=np.arange(5))
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    checks: list[tuple[bytes, Callable[[bytes], object], int]] = [
        (gzip.compress(bytes(range(100)) * 3, mtime=0), gzip.decompress, 200),
        (archive.getvalue(), lambda mutant: zipfile.ZipFile(io.BytesIO(mutant)).testzip(), 150),
        (picture.getvalue(), lambda mutant: Image.open(io.BytesIO(mutant)).load(), 50),
    ]
    for seed, check, least in checks:
        sound = 0
        for mutant in _all(seed):
            with suppress(Exception):
                check(mutant)
                sound += 1
        assert sound > least
