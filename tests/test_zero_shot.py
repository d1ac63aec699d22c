"""Extrapolation and stitching, as commands: what is played, what is written, and that it goes on where it stopped."""

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from efmdp import recipes, zero_shot
from efmdp.domains import make_env
from efmdp.evaluate import TEST, load_policy, play_episodes, stream_seed
from efmdp.recipes import fast
from efmdp.stats import success_rate
from efmdp.tables import Row
from efmdp.tasks import FAMILIES, STITCHED, parse_task
from efmdp.zero_shot import FIELDS, SUMMARY, extrapolation, findings, show, stitching, summarise

Efmdp = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, write_run: Callable[..., Path]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        "sets 0": write_run(folder / "sets-0", "2-Switch", seed=0),
        "sets 1": write_run(folder / "sets-1", "2-Switch", seed=1),
        "mlp": write_run(folder / "mlp", "2-Switch", "mlp", seed=3, places=4),
        "stitch": write_run(folder / "stitch", "2-Push|Stack", "self-attention"),
        "push": write_run(folder / "push", "1-Push"),
        "push 1": write_run(folder / "push-1", "1-Push", seed=1),
    }


def read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_extrapolation(efmdp: Efmdp, runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "table.csv"
    bare = runs["sets 1"] / "policy-best.safetensors"
    command = ("evaluate", "extrapolation", runs["sets 0"], bare, runs["mlp"], "--episodes", "3", "--out", out)
    code, said, _ = efmdp(*command)
    assert code == 0
    rows = read(out)
    assert tuple(rows[0]) == FIELDS
    assert [(row["task"], row["network"], row["seed"]) for row in rows] == [
        (f"{n}-Switch", *who)
        for n in range(1, 7)
        for who in (("deep-set", "0"), ("deep-set", "1"), ("mlp-4", "3"), ("oracle", ""))
    ]
    for row in rows:
        assert row["role"] == ("train" if row["task"] == "2-Switch" else "test")
        assert (row["trained_on"], row["layout"], row["collisions"], row["gripper"]) == (
            *("2-Switch", "paper"),
            *("False", "False"),
        )
        assert row["entities"] == row["task"][0]
        assert len(row["sha256"]) == 12
        if row["network"] == "mlp-4" and int(row["entities"]) > 4:
            assert row["success_once"] == row["success_end"] == ""
            assert row["reason"] == f"{row['entities']} entities: this MLP was made for at most 4"
        else:
            assert row["reason"] == ""
            rate = success_rate(round(3 * float(row["success_once"])), 3)
            assert [float(row[name]) for name in ("success_once", "low", "high")] == [round(x, 4) for x in rate]
            assert float(row["success_end"]) <= float(row["success_once"])
    assert all(row["recipe"] == ("scripted" if row["network"] == "oracle" else "fast") for row in rows)
    best = {f"{run}/policy-best.safetensors" for run in ("sets-0", "sets-1", "mlp")}
    assert {row["policy"] for row in rows if row["network"] != "oracle"} == best
    assert {row["success_once"] for row in rows if row["network"] == "oracle"} == {"1.0"}
    assert "2-Switch (trained on)" in said
    assert "mlp-4 cannot play 6-Switch: 6 entities: this MLP was made for at most 4" in said
    assert "over 1-Switch, 3-Switch, 4-Switch (bootstrap" in said


def test_what_the_table_holds_is_not_played_again(
    efmdp: Efmdp, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(trial: zero_shot.Trial, entrant: zero_shot.Entrant, episodes: int) -> Row:
        played.append((trial.task.name, entrant.about["network"], entrant.about["seed"]))
        if len(played) == stop_after:
            raise KeyboardInterrupt
        return dict(zip(zero_shot.HOW_WELL, ("0.5", "0.1", "0.9", "0.5", "0.5", ""), strict=True))

    played: list[tuple[str, str, str]] = []
    stop_after = 6
    monkeypatch.setattr(zero_shot, "_answer", answer)
    out = tmp_path / "table.csv"

    def extrapolate(*arguments: str | Path) -> int:
        played.clear()
        return efmdp("evaluate", "extrapolation", *arguments, "--out", out)[0]

    assert extrapolate(runs["sets 0"]) == 130  # stopped in the middle
    assert len(read(out)) == 5
    stop_after = 100
    assert extrapolate(runs["sets 0"]) == 0
    assert len(played) == 12 - 5
    once = out.read_bytes()
    assert extrapolate(runs["sets 0"]) == 0
    assert played == []
    assert out.read_bytes() == once
    assert extrapolate(runs["sets 0"], runs["sets 1"], runs["sets 1"] / "policy-best.safetensors") == 0
    assert played == [(f"{n}-Switch", "deep-set", "1") for n in range(1, 7)]  # once, although it is named twice
    assert out.read_bytes().startswith(once)
    assert extrapolate(runs["sets 0"], "--episodes", "7") == 0
    assert len(played) == 12
    assert len({zero_shot._identity(row) for row in read(out)}) == len(read(out)) == 12 + 6 + 12
    assert extrapolate(runs["sets 0"], "--wide") == 0
    assert played == [
        (f"{n}-Switch", who, "0" * (who != "oracle")) for n in range(7, 11) for who in ("deep-set", "oracle")
    ]
    assert [row["layout"] for row in read(out)[-8:]] == ["wide"] * 8
    assert not list(tmp_path.glob("*.tmp"))


def test_what_another_process_adds_meanwhile_is_not_played(
    efmdp: Efmdp, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, played = tmp_path / "table.csv", list[str]()
    others = b""

    def answer(trial: zero_shot.Trial, entrant: zero_shot.Entrant, episodes: int) -> Row:
        played.append(trial.task.name)
        if others:
            out.write_bytes(others)
        return dict(zip(zero_shot.HOW_WELL, ("0.5", "0.1", "0.9", "0.5", "0.5", ""), strict=True))

    monkeypatch.setattr(zero_shot, "_answer", answer)
    assert efmdp("evaluate", "extrapolation", runs["sets 0"], "--out", out)[0] == 0
    assert len(played) == 12
    others = out.read_bytes()
    out.unlink()
    assert efmdp("evaluate", "extrapolation", runs["sets 0"], "--out", out)[0] == 0
    assert len(played) == 13
    assert out.read_bytes() == others


TRAINED = Path(__file__).parents[1] / "results" / "policies"


def test_success_is_that_of_the_test_episodes(efmdp: Efmdp, tmp_path: Path) -> None:
    """With a policy that succeeds sometimes: the stored one on up to six switches."""
    policy, out, episodes = TRAINED / "3-switch" / "deep-set.safetensors", tmp_path / "table.csv", 20
    code, _, errors = efmdp("evaluate", "extrapolation", policy, "--episodes", episodes, "--out", out)
    assert code == 0, errors
    rows = [row for row in read(out) if row["network"] == "deep-set"]
    assert [row["seed"] for row in rows] == ["0"] * 6
    found = []
    for row in rows:
        env = make_env(row["task"], episodes)
        outcome = play_episodes(env, load_policy(policy), episodes, stream_seed(0, TEST))
        found.append(outcome.success_once.mean())
        assert float(row["success_once"]) == found[-1]
        assert float(row["success_end"]) == outcome.success_end.mean()
        assert float(row["entities_solved"]) == pytest.approx(outcome.solved.mean(), abs=1e-4)
    assert found[2] > 0.9
    assert min(found) < 1  # else this shows nothing


def test_an_oracle_of_trained_policies(efmdp: Efmdp) -> None:
    push, switch = "zoo:1-push/deep-set", "zoo:3-switch/deep-set"
    command = ("evaluate", "oracle", "--task", "2-Switch+2-Push", "--episodes", "40")
    code, said, errors = efmdp(*command, "--oracle", f"push={push}", f"switch={switch}")
    assert code == 0, errors
    assert float(re.search(r"success once\s+([\d.]+) %", said)[1]) >= 60  # type: ignore[index]


def test_two_policies_of_one_seed_are_no_two_seeds(efmdp: Efmdp, runs: dict[str, Path]) -> None:
    code, _, errors = efmdp(
        "evaluate", "extrapolation", runs["sets 0"], runs["sets 0"] / "policy-last.safetensors", "--episodes", "1"
    )
    assert (code, errors.count("\n")) == (2, 1)
    assert "are both deep-set fast, seed 0: name one of them" in errors


def test_statistics_of_other_studies_stay(efmdp: Efmdp, runs: dict[str, Path], tmp_path: Path) -> None:
    out, summary = tmp_path / "table.csv", tmp_path / "table-summary.csv"

    def extrapolate(names: list[str], episodes: int) -> list[tuple[str, str]]:
        named = [runs[name] for name in names]
        assert efmdp("evaluate", "extrapolation", *named, "--episodes", episodes, "--out", out)[0] == 0
        return list(dict.fromkeys((row["trained_on"], row["episodes"]) for row in read(summary)))

    switches, cubes = ["sets 0", "sets 1"], ["push", "push 1"]
    assert extrapolate(switches, 1) == [("2-Switch", "1")]
    rows = len(read(summary))
    assert extrapolate(cubes, 1) == [("2-Switch", "1"), ("1-Push", "1")]
    assert extrapolate(switches, 1) == [("2-Switch", "1"), ("1-Push", "1")]
    assert len(read(summary)) == 2 * rows
    assert extrapolate(switches, 2) == [("2-Switch", "1"), ("1-Push", "1"), ("2-Switch", "2")]
    whole = summary.read_bytes()
    extrapolate(["sets 0"], 1)  # one policy has none, and does not replace those of both
    assert summary.read_bytes() == whole
    summary.write_text("a,b\n")
    code, _, errors = efmdp("evaluate", "extrapolation", *(runs[c] for c in cubes), "--episodes", "1", "--out", out)
    assert (code, errors.count("\n")) == (2, 1)
    assert summary.read_text() == "a,b\n"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """`efmdp train ddpg` with little of everything."""
    little: dict[str, Any] = {"num_envs": 2, "rounds_per_epoch": 1, "updates_per_round": 2, "batch_size": 8}
    little |= {"selection_episodes": 2, "replay_capacity": 10_000}
    monkeypatch.setattr(recipes, "fast", lambda *asked: replace(fast(*asked), **little))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("network", "name"), [("mlp", "mlp-4"), ("deep-set", "deep-set"), ("self-attention",) * 2])
def test_from_training_to_stitching(network: str, name: str, efmdp: Efmdp, tmp_path: Path) -> None:
    """The MLP gets room for the task that needs both skills."""
    run, out = tmp_path / "run", tmp_path / "table.csv"
    train = ("train", "ddpg", "--task", "2-Push|2-Switch", "--network", network, "--epochs", "1", "--out", run)
    code, _, errors = efmdp(*train)
    assert code == 0, errors
    code, _, errors = efmdp("evaluate", "stitching", run, "--episodes", "2", "--out", out)
    assert code == 0, errors
    rows = [row for row in read(out) if row["network"] != "oracle"]
    assert [(row["network"], row["task"], row["reason"]) for row in rows] == [
        (name, task, "") for task in ("2-Push", "2-Switch", "2-Switch+2-Push")
    ]


@pytest.mark.usefixtures("quick")
def test_from_training_with_collisions_to_extrapolation(efmdp: Efmdp, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "table.csv"
    train = ("train", "ddpg", "--task", "1-Push", "--collisions", "True", "--epochs", "1", "--out", run)
    code, _, errors = efmdp(*train)
    assert code == 0, errors
    assert efmdp("evaluate", "extrapolation", run, "--episodes", "1", "--out", out)[0] == 0
    assert {row["collisions"] for row in read(out)} == {"True"}


def test_stitching_with_the_physics_of_stacking(efmdp: Efmdp, runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    oracle = ("--oracle", f"push={runs['push']}", "stack=scripted")
    code, said, errors = efmdp("evaluate", "stitching", runs["stitch"], "--episodes", "2", "--out", out, *oracle)
    assert code == 0, errors
    rows = read(out)
    assert [(row["task"], row["role"], row["network"]) for row in rows] == [
        (task, role, network)
        for task, role in (("2-Push", "train"), ("Stack", "train"), ("Push+Stack", "test"))
        for network in ("self-attention", "oracle")
    ]
    assert {(row["collisions"], row["gripper"]) for row in rows} == {("True", "True")}
    assert {row["recipe"] for row in rows if row["network"] == "oracle"} == {"partly scripted"}
    assert {row["policy"] for row in rows if row["network"] == "oracle"} == {f"push={runs['push']} stack=scripted"}
    assert "Push+Stack" in said
    assert str(out) in said.replace("\n", "")


def test_extrapolation_with_collisions_to_ten_cubes(
    efmdp: Efmdp, write_run: Callable[..., Path], tmp_path: Path
) -> None:
    run, out = write_run(tmp_path / "run", "3-Push", "deep-set-large", collisions=True), tmp_path / "table.csv"
    code, said, errors = efmdp("evaluate", "extrapolation", run, "--wide", "--episodes", "1", "--out", out)
    assert code == 0, errors
    rows = [row for row in read(out) if row["network"] == "deep-set-large"]
    assert [(row["entities"], row["layout"]) for row in rows] == [
        *((str(n), "paper") for n in range(1, 7)),
        *((str(n), "wide") for n in range(7, 11)),
    ]
    assert {(row["collisions"], row["reason"]) for row in rows} == {("True", "")}
    assert "10-Push (wide)" in said


@pytest.mark.parametrize(
    ("mixture", "network", "tested"),
    [
        ("2-Switch|2-Push", "mlp", ["2-Switch", "2-Push", "2-Switch+2-Push"]),
        ("2-Switch&2-Push", "deep-set", ["2-Switch&2-Push", "2-Switch+2-Push"]),
        ("Stack&2-Push", "deep-set-large", ["Stack&2-Push", "Push+Stack"]),
    ],
)
def test_stitching_of_every_mixture(
    mixture: str, network: str, tested: list[str], efmdp: Efmdp, write_run: Callable[..., Path], tmp_path: Path
) -> None:
    """In whichever order its tasks are named, and with networks that cannot play the test task."""
    run, out = write_run(tmp_path / "run", mixture, network), tmp_path / "table.csv"
    code, said, errors = efmdp("evaluate", "stitching", run, "--episodes", "2", "--out", out)
    assert code == 0, errors
    rows = [row for row in read(out) if row["network"] != "oracle"]
    assert [row["task"] for row in rows] == tested
    assert [bool(row["reason"]) for row in rows] == [False] * (len(tested) - 1) + [network == "mlp"]
    assert ("cannot play 2-Switch+2-Push" in said) == (network == "mlp")


def test_the_oracle_plays_any_task(efmdp: Efmdp, runs: dict[str, Path], tmp_path: Path) -> None:
    for task in ("1-Switch+1-Push", "2-Push|Stack", "2-Switch&2-Push"):
        code, said, errors = efmdp("evaluate", "oracle", "--task", task, "--episodes", "20")
        assert code == 0, errors
        assert float(re.search(r"success once\s+([\d.]+) %", said)[1]) >= 80  # type: ignore[index]
    code, said, _ = efmdp(
        "evaluate", "oracle", "--task", "2-Push", "--episodes", "20", "--oracle", f"push={runs['push']}"
    )
    assert code == 0
    assert "success once  0.0 %" in said  # that policy was never trained
    video = tmp_path / "film.mp4"
    code, said, errors = efmdp("watch", "oracle", "--task", "1-Switch", "--episodes", "1", "--out", video)
    assert code == 0, errors
    assert "1 of 1 episodes of 1-Switch solved" in said
    assert video.stat().st_size > 1000
    code, _, errors = efmdp("evaluate", "oracle")
    assert (code, errors.count("\n")) == (2, 1)
    assert "say which with --task" in errors


def test_timing_command(efmdp: Efmdp, runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "timing.csv"
    code, said, errors = efmdp("evaluate", "timing", runs["sets 0"], runs["mlp"], "--out", out)
    assert code == 0, errors
    assert "deep-set" in said
    assert [(row["network"], row["task"]) for row in read(out)] == [
        *(("deep-set", f"{n}-Switch") for n in (1, 2, 3)),
        *(("mlp-4", f"{n}-Switch") for n in (1, 2, 3)),
    ]


def test_every_family_and_mixture_has_its_trials() -> None:
    for family in FAMILIES:
        for trained_on in family.members:
            trials = extrapolation(trained_on, {}, wide=True)
            assert [trial.task.name for trial in trials] == [*family.members, *family.wide]
            assert [trial.task.name for trial in trials if trial.role == "train"] == [trained_on]
            assert [trial.task.entities for trial in trials if trial.task.layout == "wide"][-1] == 10
            assert trials[: len(family.members)] == extrapolation(trained_on, {}, wide=False)
    for mixture, test in STITCHED.items():
        *train, last = stitching(mixture, {"collisions": "Stack" in mixture, "gripper": "Stack" in mixture})
        assert [trial.task.name for trial in train] == mixture.split("|")
        assert (last.task, last.role) == (parse_task(test), "test")
        assert {trial.task.gripper for trial in train} == {last.task.gripper}
    assert extrapolation("3-Push", {"collisions": True, "gripper": False}, wide=False)[5].task.collisions


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("extrapolation",), "no run is named: name at least one"),
        (("extrapolation", "absent"), "there is no policy at absent"),
        (("extrapolation", "sets 0", "--episodes", "0"), "--episodes is 0: play at least one"),
        (("extrapolation", "sets 0", "push"), "push on 1-Push (collisions off, gripper off): compare like"),
        (("extrapolation", "stitch"), "2-Push|Stack has no family to extrapolate to: name runs trained on one of"),
        (("stitching", "sets 0"), "2-Switch has no skills to stitch: name runs trained on 2-Switch|2-Push or 2-Push|"),
        (("extrapolation", "sets 0", "--oracle", "push=scripted"), "in 1-Switch the oracle must switch"),
        (("extrapolation", "sets 0", "--oracle", "pull=scripted"), "unknown subtask 'pull'"),
        (("extrapolation", "sets 0", "--oracle", "switch=push"), "was trained on 1-Push, not to switch"),
        (("extrapolation", "sets 0", "--out", "other.csv"), "other.csv holds something else, not a table"),
        (("extrapolation", "sets 0", "--out", "other.csv/x.csv"), "cannot write to other.csv: "),
        (("timing", "absent"), "there is no policy at absent"),
        (("timing", "sets 0", "--out", "other.csv/x.csv"), "cannot write to other.csv: "),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...],
    said: str,
    efmdp: Efmdp,
    runs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.csv").write_text("task,network\n3-Push,mlp\n")
    words = [str(runs.get(word, word)).replace("switch=push", f"switch={runs['push']}") for word in arguments]
    code, _, errors = efmdp("evaluate", *words)
    assert code == 2
    assert said in errors
    assert len(errors.strip().splitlines()) == 1


def test_evaluate_still_takes_a_run(
    efmdp: Efmdp, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said, _ = efmdp("evaluate", runs["sets 0"], "--episodes", "2")
    assert code == 0
    assert "success once" in said
    monkeypatch.chdir(tmp_path)
    (tmp_path / "extrapolation").symlink_to(runs["sets 0"])
    assert "success once" in efmdp("evaluate", "./extrapolation", "--episodes", "2")[1]
    assert "extrapolation --help" in efmdp("evaluate", "--help")[1]
    for study in ("extrapolation", "stitching", "timing"):
        assert f"efmdp evaluate {study}" in efmdp("evaluate", study, "--help")[1]


def made_up(
    network: str, seed: int, task: str, success: float | None, role: str = "test", layout: str = "paper"
) -> Row:
    reason = "" if success is not None else "too many entities"
    numbers = ("", "", "") if success is None else map(str, (success, success - 0.1, success + 0.1))
    known = dict(zip(("success_once", "low", "high"), numbers, strict=True))
    return dict.fromkeys(FIELDS, "") | known | {
        "network": network,
        "recipe": "fast",
        "sha256": f"{network} {seed}",
        "task": task,
        "layout": layout,
        "role": role,
        "episodes": "100",
        "reason": reason,
    }  # fmt: skip


ROWS = [
    *(made_up("sets", seed, "3-Push", 1.0, role="train") for seed in range(3)),
    made_up("mlp", 0, "3-Push", 0.5, role="train"),
    *(made_up("sets", seed, "4-Push", success) for seed, success in enumerate((0.8, 0.9, 1.0))),
    made_up("mlp", 0, "4-Push", 0.85),
    *(made_up("sets", seed, "5-Push", 0.6) for seed in range(3)),
    made_up("mlp", 0, "5-Push", None),
    *(made_up("sets", seed, "7-Push", 0.0, layout="wide") for seed in range(3)),
    made_up("mlp", 0, "7-Push", None, layout="wide"),
]


def test_the_table_has_means_over_seeds_and_single_seeds_with_their_own_interval() -> None:
    table = show(ROWS, "made up")
    tasks, sets, mlp = ([str(cell) for cell in column.cells] for column in table.columns)
    assert tasks == ["3-Push (trained on)", "4-Push", "5-Push", "7-Push (wide)"]
    # where seeds agree, Wilson's interval of 300 episodes, n / (n + z^2) and beyond; of 80, 90 and 100 % Student's t
    assert sets == ["100.0 (99 to 100)", "90.0 (65 to 100)", "60.0 (54 to 65)", "0.0 (0 to 1)"]
    assert mlp == ["50.0 (40 to 60)", "85.0 (75 to 95)", "-", "-"]
    assert [str(column.header) for column in table.columns][1:] == ["sets\nfast\nseeds: 3", "mlp\nfast\nseeds: 1"]


def test_summary_has_every_statistic_as_a_tidy_row() -> None:
    rows = summarise(ROWS)
    assert all(tuple(row) == SUMMARY for row in rows)
    numbers = ("statistic", "network", "against", "task", "layout", "seeds", "value", "low", "high")
    assert [[row[name] for name in numbers] for row in rows if row["task"] == "4-Push"] == [
        ["mean", "sets", "", "4-Push", "paper", "3", "0.9", "0.6516", "1.0"],
        ["mean", "mlp", "", "4-Push", "paper", "1", "0.85", "0.75", "0.95"],
        ["interquartile mean", "sets", "", "4-Push", "paper", "3", "0.9", "0.8", "1.0"],
        ["interquartile mean", "mlp", "", "4-Push", "paper", "1", "0.85", "nan", "nan"],
        ["probability of improvement", "sets", "mlp fast", "4-Push", "paper", "1", "0.6667", "nan", "nan"],
    ]
    assert len(rows) == 6 + 3


def test_a_seed_that_was_not_tested_everywhere_is_left_out_of_what_is_over_all_tasks() -> None:
    rows = [made_up("sets", seed, task, 0.5) for task in ("4-Push", "5-Push") for seed in range(3)]
    over = [row for row in summarise(rows[:-1]) if row["statistic"] == "interquartile mean"]
    assert [(row["task"], row["seeds"]) for row in over] == [("4-Push 5-Push", "2")]
    in_any_order = [
        row for row in summarise([rows[3], *rows[:3], *rows[4:]]) if row["statistic"] == over[0]["statistic"]
    ]
    assert [row["seeds"] for row in in_any_order] == ["3"]


def test_findings_compare_on_what_all_can_play() -> None:
    """On 4-Push, for the MLP cannot play 5-Push, 3-Push is no test, and the wide layout is another shift."""
    assert list(findings(ROWS, summarise(ROWS))) == [
        "mlp cannot play 5-Push: too many entities",
        "mlp cannot play 7-Push: too many entities",
        "over 4-Push (bootstrap intervals over seeds):",
        "  sets fast: interquartile mean 90.0 % (80.0 to 100.0)",
        "  mlp fast: interquartile mean 85.0 %",
        "  sets fast better than mlp fast: in 66.7 % of all pairs of seeds",
    ]
