"""The mixture of generators: its weights count, and its files are trusted in nothing."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from scipy.stats import chisquare

from remuda.config import (
    DcganSettings,
    GranSettings,
    MlpSettings,
    NetworkSettings,
    ResnetSettings,
)
from remuda.data import Scaling
from remuda.errors import ConfigError, NewerFormatError, StoreError
from remuda.files import digest
from remuda.gan.networks import build_generator, generator_skeleton
from remuda.runs.ensemble import Ensemble, Labels, Member
from remuda.runs.loading import load_ensemble

NETWORK = MlpSettings(latent=3, hidden=(4,))
SHAPE = (1, 4, 4)


def member(
    cell: int,
    weight: float,
    shape: tuple[int, ...] = SHAPE,
    network: MlpSettings | DcganSettings = NETWORK,
) -> Member:
    rng = torch.Generator().manual_seed(cell)
    return Member(cell, weight, build_generator(network, shape, rng).state_dict())


def constant(cell: int, weight: float, value: float) -> Member:
    """A generator that makes the same item whatever the noise."""
    state = {name: torch.zeros_like(value) for name, value in member(cell, weight).state.items()}
    last = [name for name in state if name.endswith("bias")][-1]
    state[last] += math.atanh(value)
    return Member(cell, weight, state)


@pytest.fixture
def ensemble() -> Ensemble:
    return Ensemble(
        NETWORK, SHAPE, (member(4, 0.25), member(2, 0.75)), about={"seed": 3, "data": "digits"}
    )


@pytest.fixture
def saved(ensemble: Ensemble, tmp_path: Path) -> Path:
    ensemble.save(tmp_path / "ensemble")
    return tmp_path / "ensemble"


# ---------------------------------------------------------------------------------- sampling


def test_images_are_floats_in_the_unit_range(ensemble: Ensemble) -> None:
    images = ensemble.sample(50, seed=1)
    assert images.shape == (50, *SHAPE)
    assert images.dtype == np.float32
    assert images.min() >= 0
    assert images.max() <= 1
    raw = ensemble.draw(50, seed=1)
    assert torch.allclose(raw * 0.5 + 0.5, torch.from_numpy(images))


def test_the_same_seed_draws_the_same_samples(ensemble: Ensemble) -> None:
    torch.manual_seed(1)
    first = ensemble.sample(40, seed=7)
    torch.manual_seed(2)
    assert np.array_equal(ensemble.sample(40, seed=7), first)
    assert not np.array_equal(ensemble.sample(40, seed=8), first)


def test_sampling_leaves_the_global_random_state_alone(ensemble: Ensemble) -> None:
    before = torch.random.get_rng_state()
    ensemble.sample(10)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("weights", [(0.5, 0.3, 0.2), (0.9, 0.05, 0.05), (0.4, 0.0, 0.6)])
def test_generators_are_asked_as_often_as_their_weights_say(weights: tuple[float, ...]) -> None:
    values = (-0.8, 0.0, 0.8)
    mixture = Ensemble(
        NETWORK,
        SHAPE,
        tuple(
            constant(cell, weight, value)
            for cell, (weight, value) in enumerate(zip(weights, values, strict=True))
        ),
    )
    count = 3000
    drawn = mixture.draw(count, seed=0)[:, 0, 0, 0]
    seen = [int((drawn - value).abs().lt(1e-3).sum()) for value in values]
    assert sum(seen) == count
    for times, weight in zip(seen, weights, strict=True):
        assert times > 0 or weight == 0
        assert times == 0 or weight > 0
    used = [place for place, weight in enumerate(weights) if weight > 0]
    found = chisquare([seen[i] for i in used], [count * weights[i] for i in used])
    assert found.pvalue > 0.001


def test_points_come_back_in_their_own_units() -> None:
    scaling = Scaling((10.0, 0.5), (100.0, -3.0))
    far = Ensemble(NETWORK, (2,), (member(0, 1.0, (2,)),), scaling)
    points = far.sample(200)
    assert points.shape == (200, 2)
    assert points.dtype == np.float32
    assert (np.abs(points - [100, -3]) <= [10, 0.5]).all()
    assert points[:, 0].min() > 1  # not clipped to pixels


@pytest.mark.parametrize(("count", "seed"), [(0, 0), (-5, 0), (1, -1)])
def test_an_impossible_request_is_refused(ensemble: Ensemble, count: int, seed: int) -> None:
    with pytest.raises(ConfigError, match="allowed: a whole number at least"):
        ensemble.sample(count, seed)


@pytest.mark.parametrize("weights", [(0.5, 0.4), (1.5, -0.5), (math.nan, 1.0), ()])
def test_weights_off_the_simplex_are_refused(weights: tuple[float, ...]) -> None:
    members = tuple(member(cell, weight) for cell, weight in enumerate(weights))
    with pytest.raises(ValueError, match="sum to 1"):
        Ensemble(NETWORK, SHAPE, members)


@pytest.mark.parametrize("network", [NETWORK, DcganSettings(latent=3, width=2)])
def test_sampling_neither_changes_nor_copies_the_members(
    network: MlpSettings | DcganSettings,
) -> None:
    shape = (1, 8, 8)
    mixture = Ensemble(
        network, shape, (member(1, 0.5, shape, network), member(2, 0.5, shape, network))
    )
    before = [
        {name: value.clone() for name, value in part.state.items()} for part in mixture.members
    ]
    first = mixture.sample(20)
    assert np.array_equal(mixture.sample(20), first)
    for part, kept, built in zip(mixture.members, before, mixture.networks(), strict=True):
        for name, value in built.state_dict().items():
            assert torch.equal(part.state[name], kept[name])
            assert value.data_ptr() == part.state[name].data_ptr()


# ---------------------------------------------------------------------------------- files


def test_what_is_saved_loads_back_the_same(ensemble: Ensemble, saved: Path) -> None:
    loaded = load_ensemble(saved)
    assert np.array_equal(loaded.sample(30, seed=5), ensemble.sample(30, seed=5))
    assert loaded.network == ensemble.network
    assert loaded.about == ensemble.about
    assert [(part.cell, part.weight) for part in loaded.members] == [(4, 0.25), (2, 0.75)]
    loaded.save(saved.with_name("again"))
    for path in saved.iterdir():
        assert (saved.with_name("again") / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("network", "shape", "scale"),
    [
        (DcganSettings(latent=3, width=2), (3, 8, 8), (0.5,)),
        (MlpSettings(latent=3, hidden=(4, 5), activation="leaky_relu"), (2,), (1.0, 2.0)),
        (MlpSettings(latent=3, hidden=(4,), spectral_norm=True), (1, 28, 28), (0.5,)),
    ],
)
def test_every_kind_of_network_comes_back(
    network: MlpSettings | DcganSettings,
    shape: tuple[int, ...],
    scale: tuple[float, ...],
    tmp_path: Path,
) -> None:
    scaling = Scaling(scale, scale)
    original = Ensemble(network, shape, (member(0, 1.0, shape, network),), scaling)
    original.save(tmp_path)
    assert np.array_equal(load_ensemble(tmp_path).sample(9), original.sample(9))


def test_nothing_in_the_files_can_be_executed(saved: Path) -> None:
    assert {path.name for path in saved.iterdir()} == {
        "model.safetensors",
        "config.json",
        "README.md",
    }
    # A JSON header and then, to the last byte, plain numbers: there is no room for code.
    model = (saved / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(model[:8], "little")
    tensors = json.loads(model[8:start])
    assert {"0.0.weight", "1.0.weight"} <= tensors.keys()
    assert {tensor["dtype"] for tensor in tensors.values()} == {"F32"}
    spans = sorted(tensor["data_offsets"] for tensor in tensors.values())
    assert [0, *(end for _, end in spans)] == [*(begin for begin, _ in spans), len(model) - start]
    json.loads((saved / "config.json").read_text())


def test_the_description_is_written_last(ensemble: Ensemble, tmp_path: Path) -> None:
    """It makes the folder an ensemble: whoever finds it finds the rest."""
    written: list[str] = []
    replace = os.replace

    def spied(source: Any, target: Any, **more: Any) -> None:
        written.append(Path(target).name)
        replace(source, target, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", spied)
        ensemble.save(tmp_path)
    assert sorted(written) == ["README.md", "config.json", "model.safetensors"]
    assert written[-1] == "config.json"


def test_the_card_tells_what_it_is_and_how_to_use_it(saved: Path) -> None:
    card = (saved / "README.md").read_text()
    for told in ("1x4x4", "mlp", "- seed: 3", '- data: "digits"', "| 2 | 0.7500 |", "remuda.load("):
        assert told in card


def test_labels_make_no_markup_on_the_card(tmp_path: Path) -> None:
    names = ("<script>x</script>", "[a](http://evil)|b\n# c\x1b[31m")
    labels = Labels(names, (0.5, 0.5))
    about = {"data": "<img src=x>", "run": "[x](y)"}
    Ensemble(NETWORK, SHAPE, (member(0, 1.0),), about=about, labels=labels).save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "&lt;script>x&lt;/script>" in card
    assert r"| [a\](http://evil)\|b\n# c\x1b[31m | 0.5000 |" in card
    assert not re.search(r"<[a-z/]|[^\\]\]\(|\x1b", card.partition("```")[0])


def test_the_card_calls_one_generator_no_mixture(saved: Path, tmp_path: Path) -> None:
    assert (saved / "README.md").read_text().startswith("# A mixture of generators trained by")
    whole = load_ensemble(saved)
    replace(whole, members=(replace(whole.members[0], weight=1.0),)).save(tmp_path)
    assert (tmp_path / "README.md").read_text().startswith("# A generator trained by remuda\n")


# ---------------------------------------------------------------------------------- tampering


def described(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change the description."""

    def tamper(folder: Path) -> None:
        path = folder / "config.json"
        description = json.loads(path.read_text())
        change(description)
        path.write_text(json.dumps(description))

    return tamper


def weighed(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    """Change the weights, with a digest that fits."""

    def tamper(folder: Path) -> None:
        tensors = safetensors.torch.load((folder / "model.safetensors").read_bytes())
        change(tensors)
        content = safetensors.torch.save(tensors)
        (folder / "model.safetensors").write_bytes(content)
        described(lambda description: description.update(sha256=digest(content)))(folder)

    return tamper


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def tamper(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return tamper


def unsafe(folder: Path) -> None:
    """A model file that is no safetensors, with a digest that fits."""
    content = b"\x80\x04cos\nsystem\n"
    (folder / "model.safetensors").write_bytes(content)
    described(lambda description: description.update(sha256=digest(content)))(folder)


def replaced_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Put something else in the place of the weights."""

    def tamper(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        make(folder / "model.safetensors")

    return tamper


TAMPERINGS: dict[str, tuple[Callable[[Path], None], str]] = {
    "flipped bit": (
        rewritten("model.safetensors", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        "model.safetensors: damaged or changed",
    ),
    "truncated model": (
        rewritten("model.safetensors", lambda data: data[:-10]),
        "model.safetensors: damaged or changed",
    ),
    "truncated description": (
        rewritten("config.json", lambda data: data[:50]),
        "config.json: not a remuda ensemble: Invalid JSON",
    ),
    "missing model": (
        lambda folder: (folder / "model.safetensors").unlink(),
        "model.safetensors: cannot be read: No such file",
    ),
    "missing description": (
        lambda folder: (folder / "config.json").unlink(),
        "config.json: cannot be read: No such file",
    ),
    "pickle": (unsafe, "model.safetensors: not a safetensors file"),
    "list": (rewritten("config.json", lambda _: b"[]"), "config.json: not a remuda ensemble"),
    "other kind": (described(lambda d: d.update(kind="cat")), "config.json: not a remuda ensemble"),
    "newer": (
        described(lambda d: d.update(format=2)),
        "config.json: format 2 was written by a newer remuda; known: 1; please upgrade",
    ),
    "no format": (described(lambda d: d.pop("format")), "ensemble: format is missing"),
    "unknown family": (
        described(lambda d: d["network"].update(family="transformer")),
        "config.json: not a remuda ensemble: network.*transformer",
    ),
    "extra setting": (
        described(lambda d: d["network"].update(hook="os.system")),
        "config.json: not a remuda ensemble: network.hook='os.system'",
    ),
    "bad setting": (
        described(lambda d: d["network"].update(latent=-1)),
        "config.json: not a remuda ensemble: network.latent=-1: Input should be greater",
    ),
    "huge network": (  # of terabytes: refused before anything is made of that size
        described(lambda d: d["network"].update(hidden=[2_000_000, 2_000_000])),
        "config.json: not a valid ensemble: tensor 0.[024].(weight|bias) does not fit",
    ),
    "endless network": (
        described(lambda d: d["network"].update(hidden=[2**62, 2**62])),
        "config.json: not a valid ensemble",
    ),
    "huge shape": (
        described(lambda d: d.update(shape=[1, 2**20, 2**20])),
        "config.json: would take 8.8 TB for a sample of 1x1048576x1048576; allowed:",
    ),
    "many layers": (
        described(lambda d: d["network"].update(hidden=[1] * 200_000)),
        "not a remuda ensemble: network.*hidden.*200,000 layers; allowed: at most 1,000",
    ),
    "negative shape": (described(lambda d: d.update(shape=[-1, 4, 4])), "ensemble: shape.0=-1"),
    "side beyond all": (described(lambda d: d.update(shape=[1, 10**4000, 4])), "shape.1=1000"),
    "pipe": (replaced_by(os.mkfifo), "model.safetensors: cannot be read: is not a regular file"),
    "link to a device": (
        replaced_by(lambda path: path.symlink_to("/dev/zero")),
        "model.safetensors: cannot be read: is not a regular file",
    ),
    "other shape": (
        described(lambda d: d.update(shape=[1, 5, 5])),
        "config.json: not a valid ensemble: tensor 0.2.(weight|bias) does not fit",
    ),
    "endless shape": (described(lambda d: d.update(shape=[1, math.inf])), "ensemble: shape.1=inf"),
    "empty shape": (described(lambda d: d.update(shape=[])), "ensemble: shape="),
    "text shape": (described(lambda d: d.update(shape="abc")), "ensemble: shape='abc'"),
    "weights off": (
        described(lambda d: d["members"][0].update(weight=0.9)),
        "config.json: not a valid ensemble: mixture weights",
    ),
    "weight NaN": (
        described(lambda d: d["members"][0].update(weight=math.nan)),
        "config.json: not a remuda ensemble: members.0.weight=nan",
    ),
    "member too few": (described(lambda d: d["members"].pop()), "belongs to no member"),
    "members a number": (described(lambda d: d.update(members=5)), "ensemble: members=5"),
    "members of text": (described(lambda d: d.update(members=["a", "b"])), "members.0='a'"),
    "cell a text": (described(lambda d: d["members"][0].update(cell="4")), "members.0.cell='4'"),
    "labels a list": (described(lambda d: d.update(labels=[])), "ensemble: labels="),
    "scale too long": (described(lambda d: d.update(scale=[1, 2, 3])), "scale=.* does not fit"),
    "offset NaN": (described(lambda d: d.update(offset=[math.nan])), "ensemble: offset.0=nan"),
    "no scale": (described(lambda d: d.pop("scale")), "ensemble: scale is missing"),
    "NaN": (weighed(lambda t: t["0.0.weight"].fill_(math.nan)), "0.0.weight holds NaN or infinity"),
    "infinity": (weighed(lambda t: t["1.2.bias"].fill_(math.inf)), "1.2.bias holds NaN or inf"),
    "extra tensor": (weighed(lambda t: t.update({"0.9.x": torch.zeros(1)})), "0.9.x does not fit"),
    "missing tensor": (weighed(lambda t: t.pop("1.0.bias")), "1.0.bias does not fit"),
    "stray tensor": (weighed(lambda t: t.update(x=torch.zeros(1))), "'x' belongs to no member"),
    "wrong type": (
        weighed(lambda t: t.update({"0.0.bias": t["0.0.bias"].double()})),
        "0.0.bias does not fit",
    ),
    "wrong size": (
        weighed(lambda t: t.update({"0.0.weight": torch.zeros(4, 9)})),
        "0.0.weight does not fit",
    ),
}


@pytest.mark.parametrize("case", TAMPERINGS)
def test_a_tampered_ensemble_is_refused_by_name(case: str, saved: Path) -> None:
    tamper, says = TAMPERINGS[case]
    tamper(saved)
    with pytest.raises(StoreError, match=says) as caught:
        load_ensemble(saved)
    said = str(caught.value)
    assert said.startswith(str(saved))
    assert len(said.splitlines()) == 1
    assert isinstance(caught.value, NewerFormatError) == (case == "newer")


def test_few_weights_that_make_huge_pictures_are_refused_before_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A residual network of one channel has as few weights for any side."""
    small = (1, 32, 32)
    network = ResnetSettings(latent=1, width=1)
    state = build_generator(network, small, torch.Generator().manual_seed(0)).state_dict()
    Ensemble(network, small, (Member(0, 1.0, state),)).save(tmp_path)
    load_ensemble(tmp_path).sample(2)
    huge = (1, 2**14, 2**14)
    blocks = generator_skeleton(network, huge).state_dict()
    tensors = {
        f"0.{name}": torch.zeros(value.shape).to(value.dtype) for name, value in blocks.items()
    }

    def put(found: dict[str, torch.Tensor]) -> None:
        found.clear()
        found.update(tensors)

    weighed(put)(tmp_path)
    described(lambda d: d.update(shape=list(huge)))(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size < 50_000
    monkeypatch.setenv("REMUDA_MEMORY", "1G")
    with pytest.raises(
        StoreError, match=r"config.json: would take 2\.1 GB for a sample of 1x16384"
    ):
        load_ensemble(tmp_path)
    monkeypatch.setenv("REMUDA_MEMORY", "3G")
    with pytest.raises(StoreError, match=r"would take 4\.3 GB for a sample of member 0; allowed"):
        load_ensemble(tmp_path)
    monkeypatch.setenv("REMUDA_MEMORY", "8G")
    with pytest.raises(
        ConfigError, match=r"count=64: would take 274.9 GB for samples of 1x16384x16"
    ):
        load_ensemble(tmp_path).sample(64)


@pytest.mark.parametrize("count", [10**12, 10**30])
def test_more_samples_than_fit_into_memory_are_refused(ensemble: Ensemble, count: int) -> None:
    with pytest.raises(ConfigError, match=rf"^count={count}: would take .*TB for samples of 1x4x4"):
        ensemble.sample(count)


def test_fields_of_a_later_version_are_ignored(ensemble: Ensemble, saved: Path) -> None:
    described(lambda d: d.update(licence="MIT", members=[{**m, "age": 3} for m in d["members"]]))(
        saved
    )
    assert np.array_equal(load_ensemble(saved).sample(5), ensemble.sample(5))


# ---------------------------------------------------------------------------------- members differ

HYBRID: dict[int, NetworkSettings] = {
    0: NETWORK,
    1: MlpSettings(latent=5, hidden=(3,), prior="uniform"),
    2: DcganSettings(latent=2, width=2),
    3: GranSettings(latent=2, width=2, steps=2),
}


def hybrid() -> Ensemble:
    members = []
    for cell, network in HYBRID.items():
        rng = torch.Generator().manual_seed(cell)
        state = build_generator(network, (1, 8, 8), rng).state_dict()
        members.append(Member(cell, 0.25, state, network))
    return Ensemble(NETWORK, (1, 8, 8), tuple(members))


def test_members_with_networks_of_their_own_are_sampled_saved_and_loaded(tmp_path: Path) -> None:
    mixture = hybrid()
    mixture.save(tmp_path)
    loaded = load_ensemble(tmp_path)
    assert [loaded.network_of(one) for one in loaded.members] == list(HYBRID.values())
    drawn = mixture.draw(60, seed=4)
    assert drawn.shape == (60, 1, 8, 8)
    assert torch.equal(loaded.draw(60, seed=4), drawn)
    assert "mlp, dcgan, gran" in (tmp_path / "README.md").read_text()
    entries = json.loads((tmp_path / "config.json").read_text())["members"]
    assert ["network" in entry for entry in entries] == [False, True, True, True]


def test_each_member_gets_noise_of_its_own_prior() -> None:
    """A generator that hands its noise through shows what it was given."""
    network = MlpSettings(latent=2, hidden=(4,), prior="uniform", output="linear")
    state = build_generator(network, (2,), torch.Generator().manual_seed(0)).state_dict()
    eye = torch.eye(2)
    # tanh(x) ≈ x for small x: two neurons carry the noise, scaled down and up again.
    state["0.weight"] = torch.cat((eye, torch.zeros(2, 2))) * 1e-3
    state["2.weight"] = torch.cat((eye, torch.zeros(2, 2)), dim=1) * 1e3
    state = {k: torch.zeros_like(v) if k.endswith("bias") else v for k, v in state.items()}
    for prior, largest in (("uniform", 1.0), ("gaussian", 3.0)):
        own = network.model_copy(update={"prior": prior})
        drawn = Ensemble(NETWORK, (2,), (Member(0, 1.0, state, own),)).draw(2000)
        assert (drawn.abs().max().item() > 1.01) == (prior == "gaussian")
        assert drawn.abs().max() > largest * 0.99


def test_the_same_generator_makes_the_same_samples_however_many_members_it_is_split_into() -> None:
    one = member(0, 1.0)
    parts = tuple(Member(cell, 0.25, one.state) for cell in range(4))
    alone, split = (Ensemble(NETWORK, SHAPE, members).draw(40) for members in ((one,), parts))
    assert torch.equal(alone, split)


def test_a_member_whose_weights_do_not_fit_its_network_is_refused(tmp_path: Path) -> None:
    hybrid().save(tmp_path)
    path = tmp_path / "config.json"
    description = json.loads(path.read_text())
    description["members"][2]["network"]["width"] = 3
    path.write_text(json.dumps(description))
    with pytest.raises(StoreError, match=r"tensor 2\..* does not fit a dcgan network"):
        load_ensemble(tmp_path)
    description["members"][2]["network"] = {"family": "nonsense"}
    path.write_text(json.dumps(description))
    with pytest.raises(StoreError, match=r"members\.2\.network=.*nonsense"):
        load_ensemble(tmp_path)
