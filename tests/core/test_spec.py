"""A spec is a frozen value: JSON there and back, changed by path, and errors that say what exists."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from qkv.core.spec import SCHEMA, Cost, Spec, counted, nearest, with_article
from qkv.nn.patterns.basic import Pattern
from qkv.training.optimizers.adamw import AdamW
from qkv.training.optimizers.lion import Lion


class Shape(Spec, role="shape"):
    """A role of this test's own."""


class Circle(Shape, kind="circle"):
    radius: float = Field(default=1.0, gt=0)


class Square(Shape, kind="square"):
    side: float = 1.0
    corner: Shape = Circle()


class Drawing(Spec):
    title: str = "untitled"
    shapes: tuple[Shape, ...] = (Circle(), Square())
    frame: Shape | None = None
    scale: float = Field(default=1.0, gt=0)


def test_json_there_and_back_is_the_same_value() -> None:
    drawing = Drawing(shapes=(Square(side=2, corner=Square()), Circle(radius=3)), frame=Circle())
    again = Drawing.from_json(drawing.to_json())
    assert again == drawing and hash(again) == hash(drawing)
    assert drawing.to_dict()["shapes"][0]["corner"]["corner"] == {"kind": "circle", "radius": 1.0}
    assert f'"schema": {SCHEMA}' in drawing.to_json()


@pytest.mark.parametrize("form", ["circle", {"kind": "circle"}, Circle(), {"kind": "circle", "radius": 1.0}])
def test_a_role_takes_instance_dict_or_bare_kind(form: object) -> None:
    assert Drawing(frame=form).frame == Circle()  # type: ignore[arg-type]
    assert Drawing.from_dict({"frame": form}).frame == Circle()


def test_equal_fields_of_different_kinds_are_different_values() -> None:
    class Ball(Shape, kind="ball"):
        radius: float = 1.0

    assert Ball() != Circle()
    assert Shape.from_json(Ball().to_json()) == Ball()


def test_a_spec_is_frozen() -> None:
    with pytest.raises(ValidationError):
        Circle().radius = 2.0  # type: ignore[misc]


def test_a_class_defined_anywhere_joins_its_role() -> None:
    class Star(Shape, kind="star"):
        points: int = 5

    assert Drawing.from_dict({"frame": {"kind": "star", "points": 7}}).frame == Star(points=7)
    with pytest.raises(ValueError, match="shape kind 'circle' is already"):

        class Other(Shape, kind="circle"):
            pass


@pytest.mark.parametrize(
    "data, said",
    [
        ({"frame": "cirle"}, "frame: there is no shape 'cirle'; did you mean 'circle'"),
        ({"frame": {}}, "frame: a shape needs a kind: .*circle, square"),
        ({"titel": "x"}, "titel: no such field; did you mean 'title'"),
        ({"frame": {"kind": "circle", "radius": -1}}, "frame.*radius: input should be greater than 0, not -1"),
        ({"frame": {"kind": "circle", "raduis": 1}}, "raduis: no such field"),
        ({"schema": 99}, "schema 99 is not known here; this version of qkv reads schema 1"),
        ({"scale": "wide"}, "scale: input should be a valid number.* not 'wide'"),
    ],
)
def test_wrong_data_is_one_sentence_that_names_the_field(data: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        Drawing.from_dict(data)
    assert not isinstance(caught.value, ValidationError) and "\n" not in str(caught.value)


@pytest.mark.parametrize("text, said", [("{", "not valid JSON"), ("[1]", "is a JSON object, not list")])
def test_text_that_is_no_spec(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Drawing.from_json(text)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"kind": {"kind": "causal"}}, "a pattern's kind is a name"),
        ({"kind": ["causal"]}, "a pattern's kind is a name"),
        ({"kind": "window", "size": 10**40}, "size has to be less than 2\\^63"),
    ],
)
def test_strange_kinds_and_numbers_are_value_errors(data: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Pattern.from_dict(data)


def test_json_nested_beyond_reason_is_a_value_error() -> None:
    deep = '{"kind": "square", "corner": ' * 20_000 + '"circle"' + "}" * 20_000
    with pytest.raises(ValueError):
        Shape.from_json(deep)


def test_replace_at_paths_lists_and_stars() -> None:
    drawing = Drawing(shapes=(Square(), Square(), Circle()))
    assert drawing.replace(title="new").title == "new"
    assert drawing.replace({"shapes.1.corner.radius": 5}).shapes[1] == Square(corner=Circle(radius=5))
    stars = drawing.replace({"shapes": (Square(), Square())}).replace({"shapes.*.side": 4, "frame": "circle"})
    assert stars.shapes == (Square(side=4), Square(side=4)) and stars.frame == Circle()
    assert drawing == Drawing(shapes=(Square(), Square(), Circle())), "the original changed"


def test_parts_given_as_dictionaries_are_changed_below() -> None:
    changed = Drawing().replace(
        {"frame": {"kind": "square"}, "frame.side": 4, "shapes": [{"kind": "circle"}], "shapes.0.radius": 3}
    )
    assert changed.frame == Square(side=4) and changed.shapes == (Circle(radius=3),)
    with pytest.raises(ValueError, match="'frame' has no 'corner'; there is: kind"):
        Drawing().replace({"frame": {"kind": "square"}, "frame.corner.side": 4})


def test_a_star_is_every_part_that_has_the_rest() -> None:
    drawing = Drawing(shapes=(Square(), Square()), frame=Square(corner=Square()))
    assert drawing.replace({"*.side": 4}) == drawing.replace({"frame.side": 4})
    assert drawing.replace({"*.*.side": 4}).shapes == (Square(side=4), Square(side=4))
    frame = drawing.replace({"*.corner.side": 3}).frame
    assert frame == Square(corner=Square(side=3))


@pytest.mark.parametrize(
    "path, value, said",
    [
        ("shape.0", 1, "a Drawing has no 'shape'; did you mean 'shapes'"),
        ("shapes.7.side", 1, "'shapes' has no '7'; there is: 0, 1"),
        ("shapes.1.corner.radus", 1, "'shapes.1.corner' has no 'radus'; did you mean 'radius'"),
        ("title.length", 1, "nothing below 'title' .it is 'untitled'., so 'length'"),
        ("*.side", 1, "no part of a Drawing has 'side'; it has: title, shapes, frame, scale"),
        ("*", 1, r"no part of a Drawing has a path, which '\*' has to be followed by; it has: title"),
        ("shapes.1.*.radus", 1, "no part of 'shapes.1' has 'radus'; it has: side, corner"),
        ("scale", -2, "scale: input should be greater than 0, not -2"),
        ("frame", "cirkle", "there is no shape 'cirkle'; did you mean 'circle'"),
    ],
)
def test_replace_says_what_exists(path: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Drawing().replace({path: value})


def test_replace_drops_no_change_silently() -> None:
    """A part and something below it in one call: both count, or the call is refused."""
    changes = {"frame": Circle(), "frame.radius": 3}
    try:
        changed = Drawing().replace(changes)
    except ValueError:
        return
    assert changed.frame == Circle(radius=3)


def test_diff_gives_paths_with_both_values() -> None:
    a, b = Drawing(), Drawing(title="other", shapes=(Circle(), Square(corner=Circle(radius=2))))
    assert a.diff(b) == {"title": ("untitled", "other"), "shapes.1.corner.radius": (1.0, 2.0)}
    assert a.diff(a) == {}
    assert a.replace({path: theirs for path, (_, theirs) in a.diff(b).items()}) == b


def test_walk_lists_every_spec_once() -> None:
    paths = [path for path, _ in Drawing(frame=Circle()).walk()]
    assert paths == ["", "shapes.0", "shapes.1", "shapes.1.corner", "frame"]


def test_costs_add_up() -> None:
    assert sum([Cost(1, 2, 3), Cost(10, 20, 30)]) == Cost(11, 22, 33)


@pytest.mark.parametrize(
    "given, known, said",
    [
        ("gpt-2", ["gpt2", "llama"], "did you mean 'gpt2'? (also there: llama)"),
        ("zzz", ["gpt2", "llama"], "there is: gpt2, llama"),
        ("zzz", [], "there is nothing"),
    ],
)
def test_nearest_names_what_was_meant(given: str, known: list[str], said: str) -> None:
    assert nearest(given, known) == said


def test_a_number_and_its_noun() -> None:
    assert [counted(n, "step") for n in (0, 1, 2, 1200)] == ["0 steps", "1 step", "2 steps", "1,200 steps"]


def test_an_article_fits_its_noun() -> None:
    assert with_article("attention") == "an attention" and with_article("norm") == "a norm"


def test_specs_with_dictionaries_are_hashed_by_their_values() -> None:
    plain, other = AdamW(), AdamW(rates={"encoder.*": 0.5, "head.*": 2})
    assert hash(other) == hash(AdamW(rates={"head.*": 2.0, "encoder.*": 0.5})) and hash(plain) == hash(AdamW())
    assert len({plain, other, AdamW(rates={"encoder.*": 0.5, "head.*": 2}), Lion()}) == 3
