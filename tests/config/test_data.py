"""Which views of the data make sense."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.config import DataSettings
from remuda.config.networks import MlpSettings, ResnetSettings


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"view": "label"}, "data.view=label needs data.label"),
        ({"label": 3}, "data.label=3 needs data.view=label, not all"),
        ({"view": "label", "label": 3, "validation": 2}, "does not go with data.view=label"),
        ({"share": 0.3}, "data.share=0.3 needs data.view=share, not all"),
    ],
)
def test_settings_of_another_view_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DataSettings.model_validate(values)


def test_disjoint_shares_must_fit_into_the_data() -> None:
    data = DataSettings(view="share", share=0.25, overlap=False)
    data.check_cells(4)
    with pytest.raises(ValueError, match=r"on 5 cells; allowed: at most 0\.2, or data\.overlap"):
        data.check_cells(5)
    data.model_copy(update={"overlap": True}).check_cells(5)
    DataSettings(overlap=False).check_cells(5)


def test_conditional_networks_are_not_measured_on_held_out_items() -> None:
    conditional = ResnetSettings(condition="projection", classes=3)
    DataSettings().check_network(conditional)
    DataSettings(validation=5).check_network(MlpSettings())
    with pytest.raises(ValueError, match=r"data\.validation=5: .*allowed: 0, or network\.cond"):
        DataSettings(validation=5).check_network(conditional)
