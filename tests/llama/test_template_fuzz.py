"""Hostile templates end in an error or a text, in bounded time and memory; SPECLI_FUZZ=N tries N of them."""

from __future__ import annotations

import os
import random

import pytest
from test_templates import rendered

from specli.errors import TemplateError
from specli.llama import templates

PIECES = (
    "{{% for a in range({n}) %}}{{% for b in range({n}) %}}{{% for c in range({n}) %}}"
    "x{{% endfor %}}{{% endfor %}}{{% endfor %}}",
    "{{{{ {n}**({n}**{n}) }}}}",
    "{{{{ 'a'*{n}*{n} }}}}",
    "{{{{ ([1]*{n}*{n})|length }}}}",
    "{{{{ 'a\\nb'|indent({n}*{n}) }}}}",
    "{{{{ '%{n}0000d'|format(1) }}}}",
    "{{{{ 'a'|center({n}*{n}) }}}}",
    "{{% macro f(n) %}}{{{{ f(n+1) }}}}{{{{ f(n+1) }}}}{{% endmacro %}}{{{{ f({n}) }}}}",
    "{{% for a in range({n}) %}}{{{{ 'a'*{n} }}}}{{% endfor %}}",
    "{{{{ range({n})|list|tojson }}}}",
    "{{{{ messages|map(attribute='content')|join('b'*{n}) }}}}",
    "{{{{ strftime_now('%Y'*{n}) }}}}",
    "{{{{ {n} // 0 }}}}",
)


@pytest.mark.parametrize("seed", range(int(os.environ.get("SPECLI_FUZZ", 20))))
def test_hostile_templates(seed, monkeypatch):
    monkeypatch.setattr(templates, "_SECONDS", 1)
    rng = random.Random(seed)
    chosen = rng.sample(PIECES, rng.randint(1, 3))
    template = "".join(piece.format(n=rng.choice([9, 1000, 30_000, 99_999])) for piece in chosen)
    try:
        assert len(rendered(template + "{{ messages[0].content }}", "hello")) < 10_000_000
    except TemplateError as error:
        assert "chat template" in error.message
        assert "\n" not in error.message


@pytest.mark.parametrize("template", ["{{ 9**(9**9) }}", "{{ 'a'*2000000000 }}", "a" * 10_000_000])
def test_limits(template, monkeypatch):
    monkeypatch.setattr(templates, "_SECONDS", 1)
    with pytest.raises(TemplateError, match=r"takes longer|needs more than 1 GiB|at most"):
        rendered(template, "a")
