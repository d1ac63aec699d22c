"""The ablation takes out one piece at a time."""

import pytest

from benchmarks.ablation import VARIANTS, different, lengthened, main
from efmdp.recipes import fast, make_network


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_changes_the_recipe(variant: str) -> None:
    config = fast("3-Push", make_network("deep-set", 3), seed=0)
    changed = VARIANTS[variant](config)
    assert (changed == config) == (variant == "fast")
    assert (changed.task, changed.epochs, changed.seed) == (config.task, config.epochs, config.seed)


def test_variants_that_change_nothing_or_the_same_are_left_out() -> None:
    assert different("3-Push", make_network("deep-set", 3)) == list(VARIANTS)
    assert set(VARIANTS) - set(different("3-Push", make_network("mlp", 3))) == {"no subsets, no curriculum"}
    assert set(VARIANTS) - set(different("1-Push", make_network("deep-set", 1))) == {
        "averaged rewards",
        "no curriculum",
        "no subsets, no curriculum",
    }


def test_without_curriculum_there_is_one_stage() -> None:
    config = fast("3-Push", make_network("deep-set", 3), seed=0)
    changed = VARIANTS["no curriculum"](config)
    assert [stage.task for stage in config.stages] == ["1-Push", "2-Push", "3-Push"]
    assert [stage.task for stage in changed.stages] == ["3-Push"]


def test_more_epochs_than_the_recipe_has_go_to_the_task_itself() -> None:
    config = fast("3-Switch", make_network("mlp", 3), seed=0)
    assert [stage.epochs for stage in config.stages] == [4, 5]
    assert [stage.epochs for stage in lengthened(config, 100).stages] == [4, 96]
    assert lengthened(config, 5) == config


def test_what_cannot_be_trained_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["ablation", "--task", "3-Switch", "--network", "mlp", "--max-entities", "2"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err.splitlines()[-1].endswith("an mlp with room for 2 cannot learn it")
