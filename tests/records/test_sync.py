"""Records of a team: append-only, checked by digests, whoever comes first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.tuning.records.database import Database
from tensorc_dsl.tuning.records.exchange import Place, identity, sync
from tensorc_dsl.tuning.records.trial import Subject, Trial, digest, facts_text

FACTS = facts_text({"cores": 1, "machine": "node7"})
SUBJECT = Subject("t", "program t() {\n}\n", digest(FACTS), FACTS)


def trials(first: int, count: int) -> list[Trial]:
    one = Trial(
        "t", "k", "t", "random", 0, 0, "ok", {"a": 1}, "trace", "p", 1e-3, (1e-3,), fingerprint=SUBJECT.fingerprint
    )
    return [
        replace(one, trial=n, program_key=f"p{n}", created=1.0 + n, version="1") for n in range(first, first + count)
    ]


def held(path: Path) -> set[str]:
    with Database.open(path) as db:
        return {identity(k.trial) for k in db.all() if isinstance(k.trial, Trial)}


def test_everybody_has_all_in_the_end_and_nothing_twice(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.sqlite" for n in range(3)]
    for n, path in enumerate(paths):
        with Database.open(path) as db:
            db.add_all(trials(4 * n, 5), [SUBJECT])  # one of each is the next one's, too
    url = str(tmp_path / "team")
    counts: list[tuple[int, int]] = []
    for path in (*paths, *paths, *paths):
        with Database.open(path) as db:
            done = sync(db, url)
            counts.append((done.added, done.sent))
    assert counts == [(0, 5), (4, 4), (8, 4), (8, 0), (4, 0), (0, 0), (0, 0), (0, 0), (0, 0)]
    assert held(paths[0]) == held(paths[1]) == held(paths[2]) and len(held(paths[0])) == 13
    with Database.open(paths[2]) as db:
        assert db.machines()[SUBJECT.fingerprint] == FACTS
    assert len(Place.at(url).names()) == 3


def test_what_two_write_at_the_same_time_is_one_record(tmp_path: Path) -> None:
    for n in range(2):
        with Database.open(tmp_path / f"{n}.sqlite") as db:
            db.add_all(trials(0, 3), [SUBJECT])
    for n, place in enumerate(("a", "b")):  # neither sees the other's
        with Database.open(tmp_path / f"{n}.sqlite") as db:
            sync(db, str(tmp_path / place))
    (one,) = (tmp_path / "a").iterdir()
    (other,) = (tmp_path / "b").iterdir()
    assert one.name == other.name and one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("how", ["cut", "changed", "empty", "strange"])
def test_damaged_files_are_left_out_and_told(tmp_path: Path, how: str) -> None:
    with Database.open(tmp_path / "a.sqlite") as db:
        db.add_all(trials(0, 3), [SUBJECT])
        name = sync(db, str(tmp_path / "team")).wrote
    at = tmp_path / "team" / name
    data = at.read_bytes()
    (tmp_path / "team" / "notes.txt").write_text("not ours")
    at.write_bytes(
        {"cut": data[:-9], "changed": data.replace(b'"p1"', b'"p7"'), "empty": b"", "strange": b"\0" * 99}[how]
    )
    with Database.open(tmp_path / "b.sqlite") as db:
        done = sync(db, str(tmp_path / "team"))
    assert [d.code for d in done.damaged] == ["E0881"] and done.added == done.files == 0
    at.unlink()
    with Database.open(tmp_path / "a.sqlite") as db:
        assert sync(db, str(tmp_path / "team")).wrote == name  # as it was


def test_other_file_systems_and_none(tmp_path: Path) -> None:
    with Database.open(tmp_path / "a.sqlite") as db:
        db.add_all(trials(0, 2), [SUBJECT])
        assert sync(db, "memory://team/records").sent == 2
        for url in ("nowhere://x", f"file://{tmp_path}/a.sqlite/below"):
            with pytest.raises(TschedError, match="E0880"):
                sync(db, url)
    with Database.open(tmp_path / "b.sqlite") as db:
        assert sync(db, "memory://team/records").added == 2
