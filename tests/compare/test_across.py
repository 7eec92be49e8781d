"""Arms ranked over data sets, from five comparisons up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.compare import session
from remuda.compare.across import rank, write_ranking
from remuda.compare.prepare import Wish
from remuda.errors import ConfigError
from tests.compare.test_session import ARMS, Inline, compare, short


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Comparisons of the same arms on five data sets."""
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Runner", Inline)
        for limit in range(60, 65):
            out = tmp_path_factory.mktemp("compare") / str(limit)
            words = [word.replace("data.limit=60", f"data.limit={limit}") for word in ARMS]
            compare(out, short(words, 1), Wish(seeds=(0,), score="high_quality"))
            made.append(out)
    return made


@pytest.mark.slow
def test_arms_are_ranked_by_their_medians(folders: list[Path], tmp_path: Path) -> None:
    found = rank(folders)
    ranks = found.found.mean_ranks
    assert sum(ranks.values()) == pytest.approx(3.0)
    wins = sum(one["gap"] > one["alone"] for one in found.medians.values())
    ties = sum(one["gap"] == one["alone"] for one in found.medians.values())
    assert ranks["alone"] == pytest.approx(1 + (wins + ties / 2) / 5)
    assert "over 5 data sets" in found.lines()[0]
    write_ranking(found, tmp_path / "ranks")
    names = {path.name for path in (tmp_path / "ranks").iterdir()}
    assert names == {"ranking.json", "critical-difference.png", "critical-difference.pdf"}
    assert json.loads((tmp_path / "ranks" / "ranking.json").read_text())["score"] == "high_quality"


@pytest.mark.slow
def test_four_data_sets_are_too_few_and_one_counts_once(folders: list[Path]) -> None:
    with pytest.raises(ConfigError, match="4 data sets; ranks over data sets need at least 5"):
        rank(folders[:4])
    with pytest.raises(ConfigError, match="are on the same data"):
        rank([*folders[:4], folders[0]])
