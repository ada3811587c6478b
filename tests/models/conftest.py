from __future__ import annotations

import os

import pytest
from deliveries import CONTENT, pointed
from hub_server import Hub, serve


@pytest.fixture(autouse=True)
def surroundings(home, monkeypatch, tmp_path):
    """Nothing of this machine's settings: proxies, tokens, package indexes."""
    import huggingface_hub
    from huggingface_hub import constants

    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy") or name == "HF_TOKEN":
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    huggingface_hub.close_session()
    yield
    huggingface_hub.close_session()


@pytest.fixture
def hub(monkeypatch):
    hub = Hub({"toy.gguf": CONTENT})
    server = serve(hub)
    pointed(hub, monkeypatch)
    yield hub
    hub.released.set()
    if hub.hold:
        hub.hold.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("specli.models.hub.ANSWER_SECONDS", 0.8)
