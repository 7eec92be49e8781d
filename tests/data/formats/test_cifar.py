from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.data import Dataset
from remuda.data.formats.cifar_pickle import read_pickle
from remuda.errors import DataError
from tests.data.samples import CIFAR_PIXELS, cifar_record, load, random_bytes, write_pickle

PIXELS = random_bytes(2, CIFAR_PIXELS)
GOOD = {"data": PIXELS, "labels": [3, 9], "filenames": ["a.png", "b.png"]}


def _cifar10_python(folder: Path) -> None:
    for number in range(1, 6):
        write_pickle(folder / f"data_batch_{number}", GOOD)
    write_pickle(folder / "test_batch", GOOD)


def _cifar10_binary(folder: Path) -> None:
    folder.mkdir(parents=True)
    content = cifar_record((3,), PIXELS[0]) + cifar_record((9,), PIXELS[1])
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(content)


def _cifar100_python(folder: Path) -> None:
    for name in ("train", "test"):
        write_pickle(
            folder / name, {"data": PIXELS, "fine_labels": [3, 99], "coarse_labels": [1, 2]}
        )


def _cifar100_binary(folder: Path) -> None:
    folder.mkdir(parents=True)
    content = cifar_record((1, 3), PIXELS[0]) + cifar_record((2, 99), PIXELS[1])
    for name in ("train.bin", "test.bin"):
        (folder / name).write_bytes(content)


FORMS = [
    ("cifar10", "cifar-10-batches-py", _cifar10_python, 10),
    ("cifar10", "cifar-10-batches-bin", _cifar10_binary, 10),
    ("cifar100", "cifar-100-python", _cifar100_python, 2),
    ("cifar100", "cifar-100-binary", _cifar100_binary, 2),
]


def _check(dataset: Dataset, count: int, second_label: int) -> None:
    assert dataset.items.shape == (count, 3, 32, 32)
    raw = dataset.items[:2] * 0.5 + 0.5
    assert np.allclose(raw, PIXELS.reshape(2, 3, 32, 32) / 255, atol=1e-6)
    assert dataset.labels is not None
    assert dataset.labels[:2].tolist() == [3, second_label]
    assert len(dataset.label_names) == second_label + 1


@pytest.mark.parametrize(("source", "name", "write", "count"), FORMS)
def test_both_forms_are_found_by_name_and_by_path(
    tmp_path: Path, source: str, name: str, write: object, count: int
) -> None:
    assert callable(write)
    parent = "cifar-10" if source == "cifar10" else "cifar-100"
    last = 9 if source == "cifar10" else 99
    for folder, base in (
        (tmp_path / "a" / name, tmp_path / "a"),
        (tmp_path / "b" / parent / name, tmp_path / "b"),
        (tmp_path / "c" / parent, tmp_path / "c"),
        (tmp_path / "d", tmp_path / "d"),
    ):
        write(folder)
        _check(load(source, dir=str(base)), count, last)
        _check(load(source, dir=str(base), split="test"), 2, last)
        _check(load(folder), count, last)
    assert load(source, dir=str(tmp_path / "a")).label_names[1] == "1"


@pytest.mark.parametrize(("source", "name", "write", "count"), FORMS)
def test_label_names_are_read_where_they_are_given(
    tmp_path: Path, source: str, name: str, write: object, count: int
) -> None:
    assert callable(write)
    write(tmp_path / name)
    names = [f"kind{number}" for number in range(10 if source == "cifar10" else 100)]
    if name == "cifar-10-batches-py":
        write_pickle(tmp_path / name / "batches.meta", {"label_names": names})
    elif name == "cifar-100-python":
        write_pickle(tmp_path / name / "meta", {"fine_label_names": names})
    else:
        text = "batches.meta.txt" if source == "cifar10" else "fine_label_names.txt"
        (tmp_path / name / text).write_text("\n".join(names) + "\n\n")
    assert load(tmp_path / name).label_names == tuple(names)


def test_a_path_may_hold_some_batches_but_a_named_set_must_be_whole(tmp_path: Path) -> None:
    _cifar10_python(tmp_path)
    (tmp_path / "data_batch_4").unlink()
    assert len(load(tmp_path)) == 8
    with pytest.raises(DataError, match="incomplete; missing: data_batch_4"):
        load("cifar10", dir=str(tmp_path))


@pytest.mark.parametrize(
    ("source", "files"), [("cifar10", "data_batch_5.bin"), ("cifar100", "cifar-100-python/ with")]
)
def test_without_files_it_says_what_to_put_where(tmp_path: Path, source: str, files: str) -> None:
    with pytest.raises(DataError, match=rf"{source}: not found. Put .*{files}.*REMUDA_DATA"):
        load(source, dir=str(tmp_path))


class _Reduced:
    """Pickled as the call of a function with arguments, and a state to set on what it returns."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\x80\x02}", "damaged"),
        (b"not a pickle", "damaged"),
        (pickle.dumps(GOOD, protocol=2)[:-2000], "damaged"),
        (pickle.dumps([1, 2]), "holds a list"),
        (
            pickle.dumps(_Reduced(os.system, ("echo this must never run",)), protocol=2),
            r"asks for (posix|nt).system, which is refused",
        ),
        (pickle.dumps(DataError, protocol=2), "asks for remuda.errors.DataError"),
        (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "'rot13'; allowed: latin1"),
        (pickle.dumps(GOOD | {"data": np.array([{}])}, protocol=2), "allowed: integers"),
        (pickle.dumps({"labels": [1]}), "no entry 'data'; found: labels"),
        (pickle.dumps({"data": PIXELS}, protocol=2), "no entry 'labels'"),
        (pickle.dumps(GOOD | {"data": [1]}, protocol=2), "not an array of bytes"),
        (
            pickle.dumps(GOOD | {"data": PIXELS.astype(np.int32)}, protocol=2),
            "not an array of bytes",
        ),
        (pickle.dumps(GOOD | {"data": PIXELS[:, :-1]}, protocol=2), r"shape \(2, 3071\)"),
        (pickle.dumps(GOOD | {"data": PIXELS[:0], "labels": []}, protocol=4), r"shape \(0, 3072\)"),
        (pickle.dumps(GOOD | {"labels": [1]}, protocol=2), "1 labels for 2 items"),
        (pickle.dumps(GOOD | {"labels": [1, 10]}, protocol=2), "label 10 of item 1"),
        (pickle.dumps(GOOD | {"labels": ["a", "b"]}, protocol=2), "is a str; expected integers"),
        (pickle.dumps(GOOD | {"labels": 3}, protocol=2), "labels are a int; expected a list"),
        (pickle.dumps(GOOD | {"labels": [[1], [2, 3]]}, protocol=2), "a label is a list"),
    ],
)
def test_a_wrong_pickle_is_named_with_what_is_wrong(
    tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        load(tmp_path)
    assert str(tmp_path / "data_batch_1") in str(caught.value)


_reconstruct = np.empty(0).__reduce__()[0]
POINTERS = b"A" * 8
OBJECTS = (3, "|", None, None, None, 8, 8, 63)  # the state of numpy's type of Python objects


def _array(*state: Any, kind: Any = np.ndarray) -> _Reduced:
    """An array's pickle as numpy writes it, with a state of our choice."""
    return _Reduced(_reconstruct, (kind, (0,), b"b"), state)


def _bytes_type(*state: Any) -> _Reduced:
    return _Reduced(np.dtype, ("u1", False, True), state or (3, "|", None, None, None, -1, -1, 0))


# Each was, or could have been, read as pointers, sizes or code of the pickle's choice.
ATTACKS: dict[str, tuple[Any, str]] = {
    "objects over bytes": (_Reduced(np.ndarray, ((1,), "O", POINTERS)), "not callable"),
    "array without reconstruct": (_Reduced(np.ndarray, ((1,), "u1", b"A")), "not callable"),
    "reconstructed objects": (_Reduced(_reconstruct, (np.ndarray, (1,), "O")), "name is not text"),
    "object type": (_Reduced(np.dtype, ("O8", False, True)), "'O8'; allowed: integers"),
    "structured type": (_Reduced(np.dtype, ([("a", "O")],)), "allowed: integers"),
    "type by its class": (_Reduced(np.dtype, (_Reduced(np.dtype, ("u1",)),)), "allowed: integers"),
    "type made objects": (_bytes_type(*OBJECTS), "more than a byte order"),
    "type with fields": (
        _bytes_type(3, "|", None, ("a",), {"a": (_bytes_type(), 0)}, -1, -1, 0),
        "more than a byte order",
    ),
    "type with no order": (_bytes_type(3, "O", None, None, None, -1, -1, 0), "more than a byte"),
    "type with short state": (_bytes_type(3), "more than a byte order"),
    "array of a made type": (
        _array(1, (1,), _bytes_type(*OBJECTS), False, POINTERS),
        "more than a byte order",
    ),
    "array of no type": (_array(1, (1,), "O", False, POINTERS), "something other than numbers"),
    "array of a list": (_array(1, (1,), _bytes_type(), False, [1]), "something other than numbers"),
    "array of a bytearray": (
        _array(1, (1,), _bytes_type(), False, bytearray(1)),
        "asks for builtins.bytearray|asks for __builtin__.bytearray",
    ),
    "array larger than its bytes": (
        _array(1, (2**40,), _bytes_type(), False, b"A"),
        "1 bytes for an array of shape",
    ),
    "array of negative size": (_array(1, (-1,), _bytes_type(), False, b"A"), "sizes from 0"),
    "array of text size": (_array(1, ("1",), _bytes_type(), False, b"A"), "sizes from 0"),
    "array with short state": (_array(1, (1,)), "without its five parts"),
    "array of another kind": (_array(kind=np.dtype), "allowed: numpy.ndarray"),
    "type with another state": (_Reduced(np.dtype, ("u1",), {}), "more than a byte order"),
}
# What `pickle` never writes: BUILD on a function, on a class; NEWOBJ of them.
OPCODES: dict[str, tuple[bytes, str]] = {
    "state of a function": (b"cnumpy\ndtype\n}b", "changes what is no array"),
    "state of the codec": (b"c_codecs\nencode\n(NN}tb", "changes what is no array"),
    "slots of a class": (b"cnumpy\nndarray\n(N(Vx\nVy\ndtb", "changes what is no array"),
    "new array": (b"cnumpy\nndarray\n((I1\ntVO\nt\x81", "instruction 0x81"),
    "new type": (b"cnumpy\ndtype\n(VO\nt\x81", "instruction 0x81"),
}


def _attack_files(folder: Path) -> dict[str, tuple[Path, str]]:
    """Every attack as the label names of a sound data set: text is made of each of them."""
    found = {}
    for number, (name, (attack, says)) in enumerate((ATTACKS | OPCODES).items()):
        home = folder / str(number)
        write_pickle(home / "data_batch_1", GOOD)
        if isinstance(attack, bytes):
            content = b"\x80\x02}Vlabel_names\n](" + attack + b"es."
        else:
            content = pickle.dumps({"label_names": [attack] * 10}, protocol=2)
        (home / "batches.meta").write_bytes(content)
        found[name] = (home, says)
    return found


@pytest.mark.slow
def test_no_pickle_reaches_into_memory(tmp_path: Path) -> None:
    """In a process of its own, whose crash is seen; without the checks, the first one kills it."""
    files = _attack_files(tmp_path)
    code = """
import json, sys
from tests.data.samples import load
for name, folder in json.loads(sys.argv[1]).items():
    try:
        print(json.dumps([name, "loaded", str(load(folder).label_names)]), flush=True)
    except Exception as error:
        print(json.dumps([name, type(error).__name__, str(error)]), flush=True)
"""
    folders = json.dumps({name: str(home) for name, (home, _) in files.items()})
    command = [sys.executable, "-c", code, folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, (done.returncode, list(said)[-1:], done.stderr)
    assert said.keys() == files.keys()
    for name, (home, says) in files.items():
        kind, message = said[name]
        assert kind == "DataError", name
        assert message.startswith(f"{home / 'batches.meta'}: "), name
        assert re.search(says, message), (name, message)


def test_arrays_in_either_order_and_of_every_integer_type_come_back(tmp_path: Path) -> None:
    plain = np.arange(-3, 3).reshape(2, 3)
    wanted = {
        f"{code}{order}{number}": array.astype(order + code)
        for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
        for order in "<>"
        for number, array in enumerate((plain, np.asfortranarray(plain), np.array(5)))
    }
    write_pickle(tmp_path / "a", wanted)
    found = read_pickle(tmp_path / "a")
    assert found.keys() == wanted.keys()
    for name, before in wanted.items():
        assert found[name].dtype == before.dtype
        assert np.array_equal(found[name], before)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_plain_values_come_back_and_shared_ones_stay_shared(tmp_path: Path, protocol: int) -> None:
    shared = ["é", "\u2028", b"\xff" * 300, -1, 255, 65536, 2**31, -(2**70), 1.5, True, False, None]
    content: dict[str, Any] = {"deep": ({"a": shared}, shared, (1, 2), (1, 2, 3, 4), [], (), {})}
    content["itself"] = [content]
    (tmp_path / "a").write_bytes(pickle.dumps(content, protocol))
    found: dict[Any, Any] = read_pickle(tmp_path / "a")
    assert found["deep"] == content["deep"]
    assert found["deep"][0]["a"] is found["deep"][1]
    assert found["itself"][0] is found


def test_containers_that_share_their_parts_cost_no_more_than_they_are(tmp_path: Path) -> None:
    doubled: Any = ()
    for _ in range(60):
        doubled = (doubled, doubled)
    write_pickle(tmp_path / "a", {"doubled": doubled})
    assert len(read_pickle(tmp_path / "a")["doubled"]) == 2


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_pickles_written_anew_with_a_later_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(GOOD, protocol=protocol))
    assert len(load(tmp_path)) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (bytes(3072), "not a whole number of 3073-byte records"),
        (cifar_record((10,), PIXELS[0]), "label 10 of item 0; allowed: 0 to 9"),
    ],
)
def test_a_wrong_binary_file_is_named_with_what_is_wrong(
    tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(content)
    with pytest.raises(DataError, match=f"data_batch_1.bin: .*{says}"):
        load(tmp_path)


def test_too_few_label_names_are_an_error(tmp_path: Path) -> None:
    _cifar10_python(tmp_path)
    write_pickle(tmp_path / "batches.meta", {"label_names": ["cat"]})
    with pytest.raises(DataError, match=r"batches.meta: expected the names of 10 classes"):
        load(tmp_path)


@pytest.mark.parametrize("name", [1, None, PIXELS, b"\xff"])
def test_a_class_is_named_by_text(tmp_path: Path, name: object) -> None:
    _cifar10_python(tmp_path)
    write_pickle(tmp_path / "batches.meta", {"label_names": [*"abcdefghi", name]})
    with pytest.raises(DataError, match=r"batches.meta: (a class name is not text|damaged)"):
        load(tmp_path)
    write_pickle(tmp_path / "batches.meta", {"label_names": [*"abcdefghi", "ö".encode()]})
    assert load(tmp_path).label_names == tuple("abcdefghiö")


@pytest.mark.slow
@pytest.mark.real_data
def test_the_real_cifar_10_is_read(real_cifar10: Path) -> None:
    train = load("cifar10", dir=str(real_cifar10))
    assert train.items.shape == (50_000, 3, 32, 32)
    assert train.labels is not None
    assert train.labels.bincount().tolist() == [5000] * 10
    assert [train.label_names[label] for label in train.labels[:2]] == ["frog", "truck"]
    assert len(load("cifar10", dir=str(real_cifar10), split="test")) == 10_000
