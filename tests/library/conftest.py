from __future__ import annotations

import os

import pytest
from fakes import FakeHub


@pytest.fixture
def hub(home, monkeypatch):
    """A hub of our own, which the client library takes for the real one."""
    import huggingface_hub
    from huggingface_hub import constants

    server = FakeHub()
    monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
    template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    huggingface_hub.close_session()
    yield server
    server.close()
    huggingface_hub.close_session()


@pytest.fixture
def wheelhouse(home, tmp_path, monkeypatch):
    """A folder that is the only place where pip looks."""
    folder = tmp_path / "wheelhouse"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder
