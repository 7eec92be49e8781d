"""Ensembles that can be asked for a label: one generator per label, or a conditional one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from remuda.config import ClassDcganSettings, MlpSettings
from remuda.data import Scaling
from remuda.errors import ConfigError, StoreError
from remuda.gan.networks import build_generator
from remuda.runs.ensemble import Ensemble, Labels, Member
from remuda.runs.loading import load_ensemble

NAMES = ("cat", "dog", "cow")
TOY = MlpSettings(latent=2, hidden=(3,))


def constant(value: float) -> dict[str, torch.Tensor]:
    """The weights of a generator that makes one number whatever its noise."""
    state = build_generator(TOY, (1,), torch.Generator().manual_seed(0)).state_dict()
    empty = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    last = [name for name in empty if name.endswith("bias")][-1]
    empty[last] = torch.full_like(empty[last], float(np.arctanh(value)))
    return empty


@pytest.fixture
def by_label() -> Ensemble:
    """Label k makes 0.1 · (k + 1)."""
    shares = (0.5, 0.3, 0.2)
    members = tuple(
        Member(7 + label, share, constant(0.1 * (label + 1)), label=label)
        for label, share in enumerate(shares)
    )
    return Ensemble(TOY, (1,), members, Scaling((1.0,), (0.0,)), labels=Labels(NAMES, shares))


@pytest.mark.parametrize(("label", "value"), [("dog", 0.2), (1, 0.2), ("2", 0.3), ("cat", 0.1)])
def test_a_label_by_name_or_number_gets_its_generator(
    by_label: Ensemble, label: int | str, value: float
) -> None:
    assert np.allclose(by_label.sample(20, label=label), value)


def test_without_a_label_they_come_in_their_shares_and_are_told(by_label: Ensemble) -> None:
    samples, labels = by_label.draw_labelled(4000)
    assert labels is not None
    assert torch.allclose(samples[:, 0], 0.1 * (labels + 1))
    found = labels.bincount() / 4000
    assert torch.allclose(found, torch.tensor([0.5, 0.3, 0.2]), atol=0.03)
    assert torch.equal(samples, by_label.draw(4000))


def test_the_labels_that_can_be_asked_for_are_those_that_members_make(by_label: Ensemble) -> None:
    assert by_label.known_labels == dict(enumerate(NAMES))
    last = dataclasses.replace(by_label.members[-1], weight=1.0)
    alone = dataclasses.replace(by_label, members=(last,))
    assert list(alone.known_labels) == [last.label]
    assert dataclasses.replace(by_label, labels=None).known_labels == {}


def test_labels_survive_the_file_and_the_card_lists_them(
    by_label: Ensemble, tmp_path: Path
) -> None:
    by_label.save(tmp_path)
    again = load_ensemble(tmp_path)
    assert again.labels == by_label.labels
    assert [member.label for member in again.members] == [0, 1, 2]
    assert np.array_equal(again.sample(9, label="cow"), by_label.sample(9, label="cow"))
    card = (tmp_path / "README.md").read_text()
    assert "| 1 | dog | 0.3000 | 8 |" in card


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda entry: entry.pop("labels"), "labels without names"),
        (lambda entry: entry["labels"]["names"].pop(), "2 labels do not go"),
        (lambda entry: entry["labels"].update(shares=[0.5, 0.6, -0.1]), "do not go with shares"),
        (lambda entry: entry["members"][0].update(label=3), "not in 0 to 2"),
    ],
)
def test_damaged_labels_are_refused(
    by_label: Ensemble, tmp_path: Path, change: object, says: str
) -> None:
    by_label.save(tmp_path)
    path = tmp_path / "config.json"
    entry = json.loads(path.read_text())
    assert callable(change)
    change(entry)
    path.write_text(json.dumps(entry))
    with pytest.raises(StoreError, match=says):
        load_ensemble(tmp_path)


def test_an_unknown_label_is_named_with_those_there_are(by_label: Ensemble) -> None:
    with pytest.raises(ConfigError, match=r"label=catt is not a label .*did you mean cat\?"):
        by_label.sample(1, label="catt")
    plain = Ensemble(TOY, (1,), (Member(0, 1.0, constant(0.1)),), Scaling((1.0,), (0.0,)))
    with pytest.raises(ConfigError, match="knows no labels"):
        plain.sample(1, label=0)


def test_a_generator_that_is_told_the_label_gets_it() -> None:
    network = ClassDcganSettings(latent=4, condition="projection", classes=3)
    shape = (1, 8, 8)
    generator = build_generator(network, shape, torch.Generator().manual_seed(0))
    member = Member(0, 1.0, generator.state_dict())
    labels = Labels(NAMES, (0.2, 0.0, 0.8))
    ensemble = Ensemble(network, shape, (member,), labels=labels)
    drawn, told = ensemble.draw_labelled(50)
    assert told is not None
    assert set(told.tolist()) == {0, 2}
    _, asked = ensemble.draw_labelled(50, label="dog")
    assert asked is not None
    assert set(asked.tolist()) == {1}
    # The noise is the same, so what differs is what the label did.
    other = ensemble.draw(50, label="dog")
    assert not torch.allclose(other, drawn)
    assert torch.equal(ensemble.draw(50, label=1), other)


@pytest.mark.parametrize("names", [None, NAMES[:2]])
def test_a_conditional_network_without_its_labels_is_refused(
    names: tuple[str, ...] | None, tmp_path: Path
) -> None:
    network = ClassDcganSettings(width=4, latent=2, condition="projection", classes=3)
    state = build_generator(network, (1, 8, 8), torch.Generator().manual_seed(0)).state_dict()
    labels = Labels(NAMES, (0.5, 0.3, 0.2))
    member = Member(0, 1.0, state)
    Ensemble(network, (1, 8, 8), (member,), Scaling((0.5,), (0.5,)), labels=labels).save(tmp_path)
    assert load_ensemble(tmp_path).sample(2, label="dog").shape == (2, 1, 8, 8)
    path = tmp_path / "config.json"
    description = json.loads(path.read_text())
    description["labels"] = names and {"names": names, "shares": [0.5, 0.5]}
    path.write_text(json.dumps(description))
    with pytest.raises(StoreError, match="a network for 3 labels beside"):
        load_ensemble(tmp_path)
