"""Alignment error rates computed by hand, and invalid files."""

import json
import types

import pytest

from jaxsyn import score as command
from jaxsyn.errors import InputError
from jaxsyn.scoring import alignments

# Sure: 0-0 1-1 | 0-0 | (empty). Also possible: 1-2 | 0-1 | 0-0.
GOLD = ("0-0 1-1 1?2", "0p1 0-0", "0?0")


def written(path, lines):
  path.write_text("".join(f"{line}\n" for line in lines))
  return str(path)


@pytest.mark.parametrize(
  ("lines", "aer", "precision", "recall", "links"),
  [
    # All sure links and a possible one.
    (["0-0 1-1 1-2", "0-0", ""], 0.0, 1.0, 1.0, 4),
    # |A| = 5, |S| = 3: A ∩ S is 0-0 of both lines, A ∩ P has 1-2 and 0-1 too.
    # AER 1 - (2 + 4) / (5 + 3), precision 4/5, recall 2/3.
    (["0-0 1-2 1-0", "0-0 0-1", ""], 0.25, 0.8, 2 / 3, 5),
    (["1-0", "3-3", "1-1"], 1.0, 0.0, 0.0, 3),
    (["", "", ""], 1.0, 1.0, 0.0, 0),
    # A repeated link counts once.
    (["0-0 0-0 1-1", "0-0", ""], 0.0, 1.0, 1.0, 3),
    (["0-0", "", "0-0"], 1 - 3 / 5, 1.0, 1 / 3, 2),
  ],
)
def test_rates_by_hand(tmp_path, lines, aer, precision, recall, links, capsys):
  reference = written(tmp_path / "gold", GOLD)
  path = written(tmp_path / "found", lines)
  result = alignments.run(reference, [path])
  rates = (result[path].aer, result[path].precision, result[path].recall)
  assert rates == pytest.approx((aer, precision, recall))
  assert result[path].links == links
  table = alignments.as_text(result).splitlines()[1].split()
  assert table[1:] == [*(f"{100 * rate:.2f}" for rate in rates), str(links)]
  values = {"force": False, "aer": True, "json": True, "hypothesis": [path]}
  command._main(types.SimpleNamespace(**values, reference=[reference]))
  assert json.loads(capsys.readouterr().out) == {path: vars(result[path])}


@pytest.mark.parametrize(
  ("gold", "lines", "message"),
  [
    (GOLD, ["0-0", "0-0"], r"found has 2 lines, but .*gold has 3"),
    (GOLD, ["0-0", "0?0", ""], r"found:2: '0\?0'"),
    (GOLD, ["0-0", "0-0", "x"], r"found:3: 'x'"),
    (GOLD, [], "found is empty"),
    (["0?0"], [""], r"has no links, and .* no sure ones"),
  ],
)
def test_rejects_invalid_files(tmp_path, gold, lines, message):
  files = (written(tmp_path / "gold", gold), written(tmp_path / "found", lines))
  with pytest.raises(InputError, match=message):
    alignments.run(files[0], files[1:])
