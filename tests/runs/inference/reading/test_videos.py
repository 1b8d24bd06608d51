"""Videos of Qwen2-VL, Qwen2.5-VL and Qwen3-VL beside transformers: pictures, ids, positions and generations.

transformers' processors of videos need torchvision; without it, worked numbers of theirs stand in their place.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hub_pictures
import numpy as np
import pytest
import torch
from hub_pictures import flattened, movie
from PIL import Image
from torch import Tensor

import qkv
from qkv.cli import main
from qkv.nn.models.joint import TimedVideo
from qkv.runs.inference.reading.beside import conversation, prompts, readers_of
from qkv.runs.tasks.media import TextWithFiles

av = pytest.importorskip("av")

PLACE = "<|vision_start|><|video_pad|><|vision_end|>"
PICTURE = "<|vision_start|><|image_pad|><|vision_end|>"
TEXT = f"what{PLACE} is\n\n{PICTURE}in it {PLACE}? "
OPTIONS: dict[str, Any] = {"max_new_tokens": 20, "min_new_tokens": 20, "num_beams": 1}
SIZES = {"qwen3_vl": {"shortest_edge": 64, "longest_edge": 9000}}
USUAL = {"shortest_edge": 64, "longest_edge": 1500}


@pytest.fixture(scope="module")
def movies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """31 pictures of 48 × 32 at 10 in a second, and 9 of 64 × 40 at 24."""
    folder = tmp_path_factory.mktemp("movies")
    return [
        movie(folder / "a.mp4", 31, 10, (48, 32)),
        movie(folder / "b.mp4", 9, 24, (64, 40)),
    ]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Any, Any]]:
    made: dict[str, tuple[Path, Any, Any]] = {}

    def of(kind: str, **settings: Any) -> tuple[Path, Any, Any]:
        name = f"{kind} {json.dumps(settings)}"
        if name not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[name] = (folder, *hub_pictures.save(kind, folder))
            size = {"patch_size": 4, "size": SIZES.get(kind, USUAL), "cap_pixels_per_frame": False, **settings}
            (folder / "video_preprocessor_config.json").write_text(json.dumps(size))
        return made[name]

    return of


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 24, 3), np.uint8))


def theirs_of(media: list[Any], ids: list[int], model: Any) -> dict[str, Tensor]:
    """Our numbers as their model takes them."""
    config, padded = model.config, torch.tensor([ids])
    types = (padded == config.image_token_id).int() + 2 * (padded == config.video_token_id).int()
    given: dict[str, Any] = {"input_ids": padded, "attention_mask": torch.ones_like(padded), "mm_token_type_ids": types}
    for kind, name, depth in (("", "image", 3), ("_videos", "video", 4)):
        several = [torch.as_tensor(one.values if isinstance(one, TimedVideo) else one) for one in media]
        cut = [
            flattened(one if depth == 4 else one.repeat(2, 1, 1, 1), config.vision_config)
            for one in several
            if one.ndim == depth
        ]
        given |= {f"pixel_values{kind}": torch.cat([flat for flat, _ in cut])}
        given |= {f"{name}_grid_thw": torch.tensor([grid for _, grid in cut])}
    if seconds := [one.seconds for one in media if isinstance(one, TimedVideo)]:
        given["second_per_grid_ts"] = torch.tensor(seconds)
    return given


WORKED = [
    ("qwen2_vl", {"do_sample_frames": True, "fps": 2}, [[3, 6, 10], [2, 6, 12]], None),
    ("qwen2_5_vl", {"do_sample_frames": True, "fps": 2}, [[3, 6, 10], [2, 6, 12]], [1.0333, 0.1875]),
    ("qwen2_5_vl", {}, [[16, 6, 10], [5, 6, 12]], [0.2, 0.0833]),
    ("qwen3_vl", {}, [[3, 6, 10], [2, 8, 14]], None),
]
"""Settings, and the grids and seconds that transformers' processors give the two videos."""


@pytest.mark.parametrize(
    ("kind", "settings", "grids", "seconds"),
    [pytest.param(*one, marks=[] if i in (1, 3) else pytest.mark.slow) for i, one in enumerate(WORKED)],
)
def test_videos_are_read_and_answered_as_in_transformers(
    kind: str,
    settings: dict[str, Any],
    grids: list[list[int]],
    seconds: list[float] | None,
    saved: Callable[..., tuple[Path, Any, Any]],
    movies: list[Path],
    picture: Image.Image,
) -> None:
    folder, theirs, _ = saved(kind, **settings)
    run = qkv.load(folder)
    (ids,), (media,) = prompts(run, [TextWithFiles(TEXT, {"video": tuple(movies), "image": (picture,)})])
    given = theirs_of(media["image"], ids, theirs)
    if kind == "qwen3_vl":  # each group of pictures is a medium here
        wanted = [[1, *grid[1:]] for grid in grids for _ in range(grid[0])]
        assert "<0.3 seconds><|vision_start|>" in run.words.raw.decode(ids, skip_special_tokens=False)
    else:
        wanted = grids
    assert given["video_grid_thw"].tolist() == wanted
    assert seconds is None or given["second_per_grid_ts"].tolist() == pytest.approx(seconds, abs=1e-4)
    made = theirs.generate(**given, **OPTIONS, do_sample=False)[0, -20:].tolist()
    assert run.generate(TEXT, images=picture, videos=movies, **OPTIONS) == run.words.decode(made)


def test_a_video_stands_before_a_text_and_in_a_message(
    saved: Callable[..., tuple[Path, Any, Any]], movies: list[Path]
) -> None:
    run = qkv.load(saved("qwen3_vl")[0])
    alone = run.generate("is it?", videos=str(movies[0]), max_new_tokens=5)
    assert alone == run.generate(f"{PLACE}is it?", videos=[movies[0].read_bytes()], max_new_tokens=5)
    part = {"type": "video", "path": str(movies[0])}
    said = [{"role": "user", "content": [part, {"type": "text", "text": "is it?"}]}]
    ids, media = conversation(run, said)
    assert len(media["image"]) == 3 and ids.count(readers_of(run)[1].token) == 3 * 15


def test_the_command_line_reads_videos(
    saved: Callable[..., tuple[Path, Any, Any]], movies: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved("qwen3_vl")[0]
    run, files = qkv.load(folder), [str(movie) for movie in movies]
    wanted = run.generate(["is it?"] * 2, videos=files, max_new_tokens=5)
    options = ("--video", files[0], "--video", files[1], "--max-new-tokens", "5")
    assert main(["generate", str(folder), *options, "is it?", "is it?"]) == 0
    assert capsys.readouterr().out == "".join(f"{one}\n" for one in wanted)
    reply = run.chat([{"role": "user", "content": "is it?"}], videos=files[0], max_new_tokens=5, do_sample=False)
    assert main(["chat", str(folder), *options[:2], *options[4:], "is it?", "--top-k", "1"]) == 0
    assert capsys.readouterr().out.strip() == reply.strip()
    assert main(["generate", str(folder), "--video", "none.mp4", "is it?"]) == 2
    assert "there is no file 'none.mp4'" in capsys.readouterr().err


def test_pictures_with_their_rate_are_a_video(saved: Callable[..., tuple[Path, Any, Any]], movies: list[Path]) -> None:
    with av.open(str(movies[0])) as file:
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])
    run = qkv.load(saved("qwen3_vl")[0])
    wanted = run.generate("is it?", videos=movies[0], max_new_tokens=5)
    assert run.generate("is it?", videos=(frames, 10), max_new_tokens=5) == wanted


def test_what_does_not_fit_is_one_sentence(
    saved: Callable[..., tuple[Path, Any, Any]],
    movies: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = qkv.load(saved("qwen3_vl")[0])
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "cut.mp4").write_bytes(movies[0].read_bytes()[:2000])
    movie(tmp_path / "one.mp4", 1, 10, (16, 16))
    movie(tmp_path / "narrow.mp4", 4, 10, (2002, 10))
    for given, said in (
        ("none.mp4", "there is no file"),
        ("text.mp4", "text.mp4' can't be read as a video: it is no video that can be read"),
        ("cut.mp4", "cut.mp4' can't be read as a video: it is truncated"),
        ("one.mp4", "a video of 1 picture is too short for this model, which reads 2 at a time"),
        ("narrow.mp4", "whose longer side is at most 200 times the shorter one"),
        ((np.zeros((0, 8, 8, 3), np.uint8), 10), "at least one picture"),
        ((np.zeros((4, 8, 8, 3), np.uint8), 0), "not 4 pictures and 0"),
        (3.5, "a video is a file, its bytes, or a pair"),
    ):
        with pytest.raises(ValueError, match=said):
            run.generate("is it?", videos=[given], max_new_tokens=1)
    with pytest.raises(ValueError, match=r"1 placeholder .* and 0 videos beside it; give one video for each"):
        run.generate(f"{PLACE}is it?", max_new_tokens=1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"patch_size": 14}, "has a patch_size of 14, and the model one of 4"),
        ({"temporal_patch_size": 1}, "has a temporal_patch_size of 1, and the model one of 2"),
        ({"num_frames": 4}, "needs one of fps and num_frames"),
        ({"fps": 0}, "fps is a number above 0, not 0"),
        ({"fps": None, "num_frames": 2.5}, "num_frames is a whole number above 0, not 2.5"),
        ({"size": {"shortest_edge": 9, "longest_edge": 4}}, "videos have 9 to 4 pixels"),
        ({"size": {"height": 9}}, "shortest_edge must be a whole number of at least 1, not None"),
        ({"resample": 1}, "resample is 1, and videos are resized by 0"),
        ({"do_resize": False}, "do_resize, do_rescale and do_normalize are true"),
    ],
)
def test_settings_that_are_not_valid_are_one_sentence(
    changes: dict[str, Any], said: str, saved: Callable[..., tuple[Path, Any, Any]], tmp_path: Path
) -> None:
    from qkv.runs.inference.reading.videos import TimedProcessor

    folder, _, _ = saved("qwen3_vl")
    run = qkv.load(folder)
    file = folder / "video_preprocessor_config.json"
    before = file.read_text()
    try:
        file.write_text(json.dumps({**json.loads(before), **changes}))
        with pytest.raises(ValueError, match=said):
            readers_of(run)
    finally:
        file.write_text(before)
    assert TimedProcessor.of(folder).depth == 2


VARIANTS: list[dict[str, Any]] = [
    {},
    {"do_sample_frames": True, "fps": 2},
    {
        "do_sample_frames": True,
        "fps": 1.5,
        "min_frames": 3,
        "max_frames": 7,
        "cap_pixels_per_frame": True,
        "max_video_tokens": 30,
    },
    {"do_sample_frames": True, "fps": None, "num_frames": 5, "resample": 2, "image_mean": [0.1, 0.2, 0.3]},
    {"do_sample_frames": False, "size": {"shortest_edge": 64, "longest_edge": 900}},
]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS[:4], ids=range(4))
@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_pixels_and_ids_are_those_of_their_processor(
    kind: str,
    variant: dict[str, Any],
    saved: Callable[..., tuple[Path, Any, Any]],
    movies: list[Path],
    picture: Image.Image,
) -> None:
    pytest.importorskip("torchvision")
    import transformers
    from transformers.video_utils import read_video_pyav

    folder, model, processor = saved(kind, **variant)
    name = "Qwen3VLVideoProcessor" if kind == "qwen3_vl" else "Qwen2VLVideoProcessor"
    videos = getattr(transformers, name).from_pretrained(folder)
    whole = type(processor)(processor.image_processor, processor.tokenizer, videos)

    def choose(metadata: Any) -> Any:
        settings = ("fps", "num_frames", "min_frames", "max_frames", "temporal_patch_size")
        every = np.arange(metadata.total_num_frames)
        own = {key: getattr(videos, key, None) for key in settings}
        return videos.sample_frames(metadata, **own) if videos.do_sample_frames else every

    decoded, metadata = zip(*(read_video_pyav(str(path), choose) for path in movies), strict=True)
    options = {"video_metadata": list(metadata), "videos_kwargs": {"do_sample_frames": False}}
    wanted = whole(text=TEXT, images=[picture], videos=list(decoded), return_tensors="pt", **options)
    (ids,), (media,) = prompts(qkv.load(folder), [TextWithFiles(TEXT, {"video": tuple(movies), "image": (picture,)})])
    assert ids == wanted.input_ids[0].tolist()
    given = theirs_of(media["image"], ids, model)
    assert torch.equal(given["pixel_values_videos"], wanted.pixel_values_videos)
    if kind == "qwen2_5_vl":
        assert torch.equal(given["second_per_grid_ts"], wanted.second_per_grid_ts)
