"""What becomes of errors that no command expected."""

from __future__ import annotations

import pytest

from specli.terminal import app


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/some/file"), "cannot use /some/file: Permission denied."),
        (MemoryError(), "there is not enough memory."),
    ],
)
def test_an_error_of_the_system_is_one_line_with_a_hint(error, message, monkeypatch, capfd):
    def fails(*_arguments, **_options):
        raise error

    monkeypatch.setattr(app, "app", fails)
    assert app.run([]) == 1
    shown = capfd.readouterr().err
    assert shown.startswith(f"Error: {message}\nHint: ")
    assert "Traceback" not in shown
