"""A run's directory with its model card: one of the directory's name, or one that is given."""

from __future__ import annotations

from pathlib import Path

from run_untrained import of, words

from qkv.runs.inference.publish.directory import write


def test_the_hubs_format_has_a_card_under_the_name_of_the_directory(tmp_path: Path) -> None:
    run = of("gpt2", words(), "continue", max_positions=32)
    folder = write(run, tmp_path / "cats", "hub")
    assert "\n# cats\n" in (folder / "README.md").read_text() and (folder / "model.safetensors").is_file()
    write(run, folder, "hub", lambda target: f"---\nlicense: mit\n---\n# Of {target.parent.name}\n", overwrite=True)
    assert f"# Of {tmp_path.name}" in (folder / "README.md").read_text()


def test_a_directory_may_be_written_without_weights(tmp_path: Path) -> None:
    folder = write(of("gpt2", words(), "continue", max_positions=32), tmp_path / "sizes", "qkv", with_weights=False)
    assert (folder / "config.json").is_file() and not list(folder.glob("*.safetensors"))
