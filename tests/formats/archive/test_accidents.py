"""Damage, interrupts and failed saves: an error, and nothing is half loaded or half written."""

from pathlib import Path

import pytest
import rfc_model

from hybrid_lab import gluon
from hybrid_lab.diagnostics import ArchiveError


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damage_is_an_error_and_nothing_is_half_loaded(damage, saved, tmp_path):
    other = rfc_model.called_net()
    before = rfc_model.values(other)
    data = saved.read_bytes()
    path = tmp_path / "bad.hlab"
    for position in range(0, len(data), len(data) // 40):
        bad = bytearray(data)
        bad[position] ^= 4
        path.write_bytes(bytes(bad) if damage == "flip" else data[:position])
        for load in (lambda: other.load(path), lambda: gluon.load(path)):
            with pytest.raises(ArchiveError, match=r"bad\.hlab"):
                load()
    assert rfc_model.equal(rfc_model.values(other), before)


def test_an_interrupt_while_values_are_set_leaves_all_of_them_set(net, saved, monkeypatch):
    other = rfc_model.called_net()
    for parameter in other.collect_params().values():
        if parameter._data is not None:
            parameter.set_data(parameter.data() + 1)
    calls, real = [], gluon.Parameter._load_init

    def interrupted(self, *args):
        calls.append(self)
        if len(calls) == 4:
            raise KeyboardInterrupt
        real(self, *args)

    monkeypatch.setattr(gluon.Parameter, "_load_init", interrupted)
    with pytest.raises(KeyboardInterrupt):
        other.load(saved)
    assert rfc_model.equal(rfc_model.values(other), rfc_model.values(net))


def test_a_failed_save_leaves_the_old_file(net, tmp_path, monkeypatch):
    path = Path(net.save(tmp_path / "m.hlab"))
    old = path.read_bytes()
    monkeypatch.setattr("hybrid_lab.formats.archive.container.ContainerWriter.finish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        net.save(path)
    assert path.read_bytes() == old and list(tmp_path.iterdir()) == [path]
