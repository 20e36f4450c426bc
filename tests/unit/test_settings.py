"""Settings: names, spellings, errors."""

from __future__ import annotations

import re

import pytest

from mray._common import settings


def test_every_setting_is_complete_and_named_ours() -> None:
    assert settings.ALL
    for name, setting in settings.ALL.items():
        assert setting.name == name
        assert name.startswith("MRAY_")
        assert setting.doc.endswith(".")
        assert setting.kind in {"flag", "names", "JSON object", "int", "float", "text"}


def test_names_of_ray_stand_once() -> None:
    theirs = [setting.ray for setting in settings.ALL.values() if setting.ray]
    assert len(theirs) == len(set(theirs))


def test_default_without_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MRAY_DEDUP_LOGS", raising=False)
    monkeypatch.delenv("RAY_DEDUP_LOGS", raising=False)
    monkeypatch.delenv("MRAY_LOG_TO_DRIVER", raising=False)
    monkeypatch.delenv("RAY_LOG_TO_DRIVER", raising=False)
    assert settings.LOG_TO_DRIVER.get() is True
    assert settings.DEDUP_LOGS.get() is None
    assert not settings.DEDUP_LOGS.is_set()


@pytest.mark.parametrize(("text", "value"), [("0", False), ("1", True), ("false", False), ("True", True), ("", False), ("off", False)])
def test_flags(monkeypatch: pytest.MonkeyPatch, text: str, value: bool) -> None:
    monkeypatch.setenv("MRAY_DEDUP_LOGS", text)
    assert settings.DEDUP_LOGS.get() is value


def test_rays_name_works_and_ours_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MRAY_TMPDIR", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", "/theirs")
    assert settings.TMPDIR.get() == "/theirs"
    assert settings.TMPDIR.is_set()
    monkeypatch.setenv("MRAY_TMPDIR", "/ours")
    assert settings.TMPDIR.get() == "/ours"


def test_values_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_TASK_MAX_RETRIES", "5")
    assert settings.TASK_MAX_RETRIES.get() == 5
    monkeypatch.setenv("MRAY_TASK_MAX_RETRIES", "6")
    assert settings.TASK_MAX_RETRIES.get() == 6


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("TASK_MAX_RETRIES", "many", "invalid literal"),
        ("OVERRIDE_RESOURCES", "[1]", "expected a JSON object"),
        ("OVERRIDE_RESOURCES", "{", "Expecting property name"),
        ("NULL_DEVICES", "2,colour=red", "expected memory=BYTES, .*, not 'colour=red'"),
        ("NULL_DEVICES", "2,peer=2", "expected 0 or 1 for peer"),
    ],
)
def test_the_error_of_a_wrong_value_names_the_variable(monkeypatch: pytest.MonkeyPatch, name: str, text: str, reason: str) -> None:
    setting = getattr(settings, name)
    monkeypatch.setenv(setting.name, text)
    with pytest.raises(ValueError, match=f"^environment variable {setting.name}='{re.escape(text)}': {reason}"):
        setting.get()


def test_objects_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 3}')
    assert settings.OVERRIDE_RESOURCES.get() == {"CPU": 3}
    monkeypatch.setenv("MRAY_PRELOAD", "torch, numpy")
    assert settings.PRELOAD.get() == ("torch", "numpy")


def test_preload_everywhere_adds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_PRELOAD", "one")
    settings.preload_everywhere("two")
    settings.preload_everywhere("two")
    assert settings.PRELOAD.get() == ("one", "two")
