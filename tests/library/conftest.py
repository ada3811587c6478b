from __future__ import annotations

@pytest.fixture(autouse=True)
def surroundings(home, monkeypatch, tmp_path):
    """Nothing of this machine's settings: proxies, tokens, package indexes."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy") or name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()


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
    monkeypatch.setattr("specli.library.hub.ANSWER_SECONDS", 0.4)


