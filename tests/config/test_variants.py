"""Methods, networks, objectives and metrics that are defined outside the package.

For a method or a network, the settings class below is all that `config` needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from remuda.config import (
    METRICS,
    OBJECTIVES,
    PENALTIES,
    ClassParallelSettings,
    Config,
    MethodSettings,
    MetricFacts,
    MlpSettings,
    NetworkSettings,
    ObjectiveFacts,
    PenaltyFacts,
    load_config,
    render,
    validate,
)
from remuda.config.methods import InnerMethodSettings, RunPlan
from remuda.errors import ConfigError


def refusal(values: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(values)
    return str(caught.value)


@pytest.fixture(autouse=True)
def _own_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    for base in (MethodSettings, NetworkSettings):
        monkeypatch.setattr(base, "kinds", dict(base.kinds))


@pytest.fixture
def toy_method() -> type[MethodSettings]:
    class ToyMethodSettings(InnerMethodSettings):
        name: Literal["toy"] = Field("toy", description="a method for this test")
        turns: int = Field(2, ge=1, le=9, description="how long a round is")

        def check(self, plan: RunPlan) -> None:
            if plan.data.view != "all":
                raise ValueError(f"data.view={plan.data.view}: toys see everything; allowed: all")

        def check_replicas(self, plan: RunPlan, replicas: int) -> None:
            if replicas % 2:
                raise ValueError(f"method.replicas={replicas} is odd; allowed: even numbers")

        def round_batches(self, epoch: int, given: int | None) -> int:
            return self.turns * super().round_batches(epoch, given)

    return ToyMethodSettings


@pytest.fixture
def toy_network() -> type[NetworkSettings]:
    class ToyNetworkSettings(NetworkSettings):
        family: Literal["toy"] = Field("toy", description="networks for this test")
        knob: int = Field(3, ge=1, description="the one thing to turn")

        @property
        def num_classes(self) -> int:
            return 4 if self.knob == 4 else 0

        @property
        def discriminator_has_batch_norm(self) -> bool:
            return self.knob > 10

    return ToyNetworkSettings


# ---------------------------------------------------------------------------------- loading


def test_new_kinds_load_by_their_names(
    toy_method: type[MethodSettings], toy_network: type[NetworkSettings]
) -> None:
    config = load_config("cellular-digits", ["method=toy", "network=toy", "network.knob=5"])
    assert type(config.method) is toy_method
    assert type(config.network) is toy_network
    assert config.network == toy_network.model_validate({"knob": 5})
    assert config.network.noise_size == 100
    assert config.round_batches(1000) == 2 * (config.training.batches_per_round or 10)


def test_new_kinds_come_back_from_every_written_form(
    tmp_path: Path, toy_method: type[MethodSettings], toy_network: type[NetworkSettings]
) -> None:
    config = validate(
        {
            "method": {"name": "toy", "turns": 7},
            "network": "toy",
            "members": [{"network": {"family": "toy", "knob": 9}}, {"network": "mlp"}],
        }
    )
    path = tmp_path / "config.yaml"
    path.write_text(render(config))
    assert load_config(str(path)) == config
    assert Config.model_validate(config.model_dump()) == config
    assert Config.model_validate(config.model_dump(mode="json")) == config
    assert Config.model_validate_json(config.model_dump_json()) == config
    assert config.with_grid_change(3, neighbourhood="moore").method == config.method


def test_new_kinds_are_printed_with_their_help(
    toy_method: type[MethodSettings], toy_network: type[NetworkSettings]
) -> None:
    lines = render(validate({"method": "toy", "network": "toy"})).splitlines()
    for key, help in (
        ("name: toy", "a method for this test"),
        ("turns: 2", "how long a round is"),
        ("family: toy", "networks for this test"),
        ("knob: 3", "the one thing to turn"),
    ):
        assert any(line.startswith(f"  {key} ") and line.endswith(f"# {help}") for line in lines)


def test_a_new_method_can_be_used_within_a_label(toy_method: type[MethodSettings]) -> None:
    method = {"name": "class_parallel", "replicas": 2, "within": {"name": "toy", "turns": 3}}
    config = validate({"method": method, "training": {"batches_per_round": 5}})
    assert isinstance(config.method, ClassParallelSettings)
    assert type(config.method.within) is toy_method
    assert config.round_batches(1000) == 15
    said = refusal({"method": {**method, "replicas": 3}})
    assert said == "method.replicas=3 is odd; allowed: even numbers"


def test_a_network_alone_is_read_as_its_kind(toy_network: type[NetworkSettings]) -> None:
    """As ensembles do it: without a Config around it."""
    adapter = TypeAdapter(NetworkSettings)
    assert type(adapter.validate_python({"family": "toy"})) is toy_network
    assert type(NetworkSettings.model_validate({"family": "mlp"})) is MlpSettings


# ---------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"method": "tooy"}, "method.name=tooy: unknown; did you mean toy? allowed: cellular, "),
        ({"network": "tooy"}, "network.family=tooy: unknown; did you mean toy? allowed: mlp, "),
        (
            {"method": {"name": "toy", "turn": 3}},
            "method.turn=3: unknown key; did you mean method.turns? allowed under method: "
            "name, turns",
        ),
        (
            {"method": {"name": "toy", "turns": 10}},
            "method.turns=10: not allowed; allowed: a whole number at least 1 at most 9",
        ),
        (
            {"members": [{"network": {"family": "toy", "knob": 0}}]},
            "members[0].network.knob=0: not allowed; allowed: a whole number at least 1",
        ),
        ({"knob": 3}, "knob=3: unknown key; did you mean network.knob?"),
        ({"network": {"family": "toy", "knob": True}}, "true and false are not allowed here"),
        (
            {"method": {"name": "class_parallel", "replicas": 2, "within": {"name": "toyy"}}},
            "method.within.name=toyy: unknown; did you mean toy? allowed: cellular, gap, toy",
        ),
        ({"method": "toy", "data": {"view": "share"}}, "data.view=share: toys see everything"),
        (
            {"network": {"family": "toy", "knob": 11}, "training": {"objective": "relativistic"}},
            "needs a discriminator without batch norm, and network.family=toy has it",
        ),
        (
            {"network": {"family": "toy", "knob": 4}, "data": {"validation": 5}},
            "held-out items are used without their labels",
        ),
    ],
)
def test_mistakes_in_new_kinds_are_explained_like_any_other(
    toy_method: type[MethodSettings],
    toy_network: type[NetworkSettings],
    values: dict[str, Any],
    says: str,
) -> None:
    said = refusal(values)
    assert says in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("name", ["independent", "class_parallel", "gapp", None])
def test_only_methods_made_for_it_are_used_within_a_label(name: str | None) -> None:
    said = refusal({"method": {"name": "class_parallel", "replicas": 2, "within": {"name": name}}})
    assert said.startswith(f"method.within.name={name or 'null'}: unknown; ")
    assert said.endswith("allowed: cellular, gap")


@pytest.mark.parametrize("value", [None, 5, "gap", ["gap"]])
def test_what_is_not_a_section_is_told_what_one_looks_like(value: Any) -> None:
    with pytest.raises(ValidationError, match="expected a section"):
        Config.model_validate({"method": value})
    if value is None:
        assert refusal({"method": value}) == (
            "method=null: not allowed; allowed: a section with name: cellular, independent, gap, "
            "averaging, class_parallel"
        )


KEYS = st.sampled_from(["name", "family", "within", "network", "losses", "steps", "swap", "x"])
WORDS = st.sampled_from(["gap", "cellular", "class_parallel", "mlp", "gran", "minimax", ""])
NONSENSE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@example("method", {"name": "class_parallel", "within": {"swap": "none"}})
@example("network", {"family": ["mlp"]})
@example("members", [{"network": {"family": {}}}])
@given(
    st.sampled_from(["method", "network", "members", "training", "score"]),
    NONSENSE,
)
def test_nonsense_is_refused_by_naming_its_section(section: str, value: Any) -> None:
    said = section
    try:
        validate({section: value})
    except ConfigError as error:
        said = str(error)
    assert all(line.startswith((section, "method.")) for line in said.splitlines())


def test_two_kinds_cannot_have_one_name(toy_network: type[NetworkSettings]) -> None:
    with pytest.raises(TypeError, match="family=toy is already ToyNetworkSettings"):

        class AnotherSettings(NetworkSettings):
            family: Literal["toy"] = "toy"


def test_kinds_of_one_section_are_not_kinds_of_another(toy_method: type[MethodSettings]) -> None:
    assert "toy" in MethodSettings.kinds
    assert "toy" not in NetworkSettings.kinds
    assert refusal({"network": "toy"}).startswith("network.family=toy: unknown")


# ---------------------------------------------------------------------------------- names


def test_a_new_objective_is_allowed_wherever_objectives_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(OBJECTIVES, "margin", ObjectiveFacts("margin", "a margin"))
    config = validate(
        {
            "training": {"objective": "margin"},
            "method": {"fitness_loss": "margin", "losses": ["margin", "minimax"]},
        }
    )
    assert config.training.objective == "margin"
    said = refusal({"training": {"objective": "margi"}})
    assert said == (
        "training.objective=margi: not allowed; did you mean margin? allowed: minimax, heuristic, "
        "least_squares, wasserstein, relativistic, hinge, margin"
    )


def test_a_new_critic_is_compared_under_its_own_loss_only(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = ObjectiveFacts("energy", "energy distance", is_classifier=False, is_critic=True)
    monkeypatch.setitem(OBJECTIVES, "energy", facts)
    validate({"training": {"objective": "energy"}})
    assert "method.losses[0]=energy: not allowed" in refusal({"method": {"losses": ["energy"]}})
    for values in (
        {"training": {"objective": "energy"}, "method": {"fitness_loss": "wasserstein"}},
        {"training": {"objective": "minimax"}, "method": {"fitness_loss": "energy"}},
    ):
        assert "allowed: null (the objective itself)" in refusal(values)


def test_a_new_penalty_applies_and_asks_for_no_batch_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = PenaltyFacts(
        "r1",
        applies=lambda training: training.objective == "minimax",
        weight=lambda training: 2 * training.gamma,
    )
    monkeypatch.setitem(PENALTIES, "r1", facts)
    training = validate({"training": {"objective": "minimax", "gamma": 3}}).training
    assert [(penalty.name, penalty.weight(training)) for penalty in training.penalties] == [
        ("r1", 6)
    ]
    assert "needs a discriminator without batch norm" in refusal(
        {"training": {"objective": "minimax"}, "network": "dcgan"}
    )


def test_a_new_metric_can_rank_mixtures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "recall", MetricFacts("Recall", higher_is_better=True))
    config = validate({"score": {"metric": "recall"}})
    assert METRICS[config.score.metric].title == "Recall"
    assert "did you mean recall? allowed: fid, fid_logits, is, tvd, recall" in refusal(
        {"score": {"metric": "recal"}}
    )
