"""Where specli keeps its files: under SPECLI_HOME if that is set, else where the system wants them."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_state_path


def _home() -> Path | None:
    home = os.environ.get("SPECLI_HOME")
    return Path(home) if home else None


def models_directory() -> Path:
    """Return the folder of the model files that specli downloads itself."""
    return (_home() or user_cache_path("specli")) / "models"


def costs_path() -> Path:
    """Return the file of all measured costs."""
    return (_home() or user_cache_path("specli")) / "costs.json"


def user_registry_path() -> Path:
    """Return where the user's own models.toml is, whether it exists or not."""
    return (_home() or user_config_path("specli")) / "models.toml"


def sessions_directory() -> Path:
    """Return the folder of all chat sessions."""
    return _state_directory() / "sessions"


def history_path() -> Path:
    """Return the file of what was typed in chats."""
    return _state_directory() / "history"


def _state_directory() -> Path:
    home = _home()
    return home / "state" if home else user_state_path("specli")
