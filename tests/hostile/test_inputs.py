"""What is given to `diagnose`, `triage` and `lint` in place of logs and launches, and files with odd names."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
import zipfile

import pytest

from readyonce.data import inputs
from readyonce.diagnose.inputs import diagnose
from readyonce.launches.reader import NESTED
from readyonce.triage import engine
from support.logs import ENGINE, RULES
from support.packed import tarred
from support.patience import PATIENCE
from support.project import ROOT

LAUNCH = "torchrun --nproc-per-node 2 train.py --gradient_checkpointing true --deepspeed zero3.json\n"


def run(*arguments, folder, **more):
    environment = os.environ | {"READYONCE_ROOT": str(ROOT), "PYTHONPATH": str(ROOT / "scripts")}
    call = [sys.executable, "-m", "readyonce.cli.main", *map(str, arguments)]
    told = subprocess.run(
        call, cwd=folder, env=environment, text=True, timeout=PATIENCE, **{"capture_output": True, "stdin": -3} | more
    )
    assert "Traceback" not in told.stderr, told.stderr
    return told


# ------------------------------------------------------------------------------ deep YAML


DEEP = {
    "lists in lists": ("s.yaml", lambda n: "- " * n + "x"),
    "keys in keys": ("s.yaml", lambda n: "".join(" " * i + "a:\n" for i in range(n)) if n < 3000 else "? " * n + "x"),
    "brackets": ("s.json", lambda n: "[" * n + "]" * n),
    "braces": ("s.yml", lambda n: "{a: " * n + "1" + "}" * n),
    "both": ("s.yaml", lambda n: "- [" * n),
    "below an anchor": ("s.yaml", lambda n: "a: &a\n  " + "- " * n + "x\nb: *a\n"),
    "a later document": ("s.yaml", lambda n: "a: 1\n---\n" + "- " * n + "x"),
}


@pytest.mark.parametrize("depth", [NESTED + 2, 1000, 19_000, 60_000])
@pytest.mark.parametrize("kind", DEEP)
def test_deep_yaml_is_refused_in_a_sentence_and_costs_no_other_file_its_answer(tmp_path, kind, depth):
    name, made = DEEP[kind]
    (tmp_path / name).write_text(made(depth), encoding="utf-8")
    (tmp_path / "train.sh").write_text(LAUNCH, encoding="utf-8")
    told = run("lint", name, "train.sh", folder=tmp_path)
    assert told.returncode == 2 and "1 launch" in told.stdout, told
    assert re.search(rf"readyonce: {re.escape(name)}:\d+: .*(nested|brackets|not YAML)", told.stderr), told.stderr


@pytest.mark.parametrize("how", ["--config s.yaml", "--deepspeed '{}'"])
def test_deep_yaml_that_a_script_names_is_refused_too(tmp_path, how):
    (tmp_path / "s.yaml").write_text("- " * 25_000 + "x", encoding="utf-8")
    text = f"torchrun --nproc-per-node 2 train.py --gradient_checkpointing true {how}\n"
    (tmp_path / "train.sh").write_text(text.replace("{}", '{"a": ' * 15_000 + "1" + "}" * 15_000), encoding="utf-8")
    told = run("lint", "train.sh", folder=tmp_path)
    assert told.returncode == 2 and "nested" in told.stderr, told


def test_yaml_that_holds_itself_is_refused(tmp_path):
    (tmp_path / "s.yaml").write_text("a: &a\n  - *a\n", encoding="utf-8")
    told = run("lint", "s.yaml", folder=tmp_path)
    assert told.returncode == 2 and "nested" in told.stderr, told


# ------------------------------------------------------------------------------ names that read as options


@pytest.mark.parametrize(
    "name", ["-", "--", "-h", "--help", "--all", "--with=transformers==1.0", "--lang=zh", "--format"]
)
@pytest.mark.parametrize("command", ["lint", "diagnose", "triage"])
def test_a_file_that_is_called_as_an_option_is_not_taken_for_one(tmp_path, command, name):
    """`readyonce lint *`, and a hook that names what changed: nothing may pass unread."""
    (tmp_path / name).write_text(LAUNCH, encoding="utf-8")
    (tmp_path / "train.sh").write_text(LAUNCH, encoding="utf-8")
    for arguments in ([name, "train.sh"], ["train.sh", name], [name]):
        told = run(command, *arguments, folder=tmp_path)
        assert told.returncode == 2 and not told.stdout and f"./{name}" in told.stderr, told
    assert run(command, "--help", folder=ROOT).returncode == 0
    assert name == "--" or "--" not in run("lint", "--", "torchrun", name, "train.py", folder=tmp_path).stderr


@pytest.mark.parametrize("folder", [".", "./a", "a/", "a"])
def test_of_a_folder_what_can_be_a_launch_is_judged_and_of_files_each_one(tmp_path, folder):
    (tmp_path / "a").mkdir()
    for name in ("a/train.sh", "a/notes.txt", "ab.txt"):
        (tmp_path / name).write_text(LAUNCH, encoding="utf-8")
    told = run("lint", folder, folder=tmp_path)
    assert told.returncode == 0 and not told.stderr and "1 launch in 1 file" in told.stdout, told
    told = run("lint", folder, "ab.txt", folder=tmp_path)  # its name begins as the folder's
    assert told.returncode == 2 and "ab.txt:1: it is no" in told.stderr and "1 launch in 1 file" in told.stdout, told


# ------------------------------------------------------------------------------ what never ends


@pytest.mark.parametrize("command", ["lint", "diagnose", "triage"])
def test_a_pipe_with_a_name_and_a_device_are_refused(tmp_path, command):
    os.mkfifo(tmp_path / "fifo.sh")
    (tmp_path / "link.sh").symlink_to("/dev/zero")
    (tmp_path / "train.sh").write_text(LAUNCH, encoding="utf-8")
    for name in ("fifo.sh", "link.sh", "/dev/zero"):
        told = run(command, "train.sh", name, folder=tmp_path)
        assert told.returncode == 2 and f"{name} is no file but a pipe or a device" in told.stderr, told
    assert "is no file" not in run(command, tmp_path, "/dev/null", folder=tmp_path).stderr


def test_what_a_shell_opened_is_read(tmp_path):
    (tmp_path / "a.log").write_text("RuntimeError: 'weight' must be 2-D\n", encoding="utf-8")
    for opened in ("<(cat a.log)", "/dev/stdin < a.log"):
        text = f"{sys.executable} -m readyonce.cli.main diagnose --format json {opened}"
        environment = os.environ | {"READYONCE_ROOT": str(ROOT), "PYTHONPATH": str(ROOT / "scripts")}
        call = ["bash", "-c", text]
        told = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        assert told.returncode == 0 and '"weight-not-2d"' in told.stdout, told


# ------------------------------------------------------------------------------ what grows without end


ERROR = b"RuntimeError: 'weight' must be 2-D\n"


def packed_gz(data):
    return "a.log.gz", gzip.compress(data)


def packed_zst(data):
    zstandard = pytest.importorskip("zstandard")
    return "a.log.zst", zstandard.ZstdCompressor().compress(data)


def packed_tar(data):
    return "a.tar.gz", tarred(dict.fromkeys(("a.log", "b.log"), data), "gz")


def packed_zip(data):
    """Two hundred names for the same bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.log", data)
        (first,) = archive.filelist
        archive.filelist += [first] * 200
    return "a.zip", made.getvalue()


def packed_twice(data):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.log.gz", gzip.compress(data))
        archive.filelist *= 50
    return "a.zip", made.getvalue()


@pytest.mark.parametrize("packed", [packed_gz, packed_zst, packed_tar, packed_zip, packed_twice])
def test_what_unpacks_without_end_is_stopped_and_says_so(tmp_path, monkeypatch, packed):
    most = 1 << 20
    monkeypatch.setattr(inputs, "UNPACKED", most)
    monkeypatch.setattr(inputs, "GROWN", 2)
    name, data = packed(ERROR + b"\n" * most * 2)
    (tmp_path / name).write_bytes(data)
    found = engine.each([str(tmp_path / name)], json.dumps(RULES), "en")
    assert sum(it.size for it in found) <= most + (1 << 18) and 1 <= len(found) <= 3
    assert f"stopped after {most:,} bytes" in found[-1].fault and "damaged" not in found[-1].fault
    assert found[0].streams[0].family == "weight-not-2d"  # what came before the end is read
    (tmp_path / name).write_bytes(packed(ERROR)[1])
    faults = [it.fault for it in engine.each([str(tmp_path / name)], json.dumps(RULES), "en") if it.fault]
    # Some releases of Python refuse two names for the same bytes.
    assert not faults or (packed in (packed_zip, packed_twice) and all("Overlapped entries" in it for it in faults))


def test_diagnose_stops_too(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "UNPACKED", 1 << 20)
    monkeypatch.setattr(inputs, "GROWN", 2)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(ERROR + b"\n" * (1 << 22)))
    faults = []
    answer = diagnose(ENGINE, str(tmp_path / "a.log.gz"), "en", faults)
    assert answer.json["error"] == "weight-not-2d"
    assert len(faults) == 1 and "is too large (stopped after 1,048,576 bytes" in faults[0]
