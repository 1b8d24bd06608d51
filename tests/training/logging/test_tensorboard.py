import pytest
from train_stand_in import train

from qkv.training.logging.tensorboard import TensorBoard


@pytest.fixture
def nothing_installed(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("name", ["wandb", "tensorboard"])
def test_what_is_not_installed_is_a_clear_error(tmp_path, name):
    with pytest.raises(
        ValueError, match=f"{name} is asked for but not installed: pip install {name}, or set training.{name}=false"
    ):
        train(tmp_path / "run", **{name: True})
    assert not (tmp_path / "run").exists()


def test_tensorboard_when_it_is_installed(tmp_path):
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path / "tb")
    board.write("train", 1, {"loss": 1.0})
    board.close()
    assert any(path.name.startswith("events") for path in (tmp_path / "tb").iterdir())
