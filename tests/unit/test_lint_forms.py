"""One launch that fails, written in every form that people write: each is read, or named as not read. Never silence."""

import json

import pytest

from readyonce.launches import forms
from readyonce.lint import judge
from support.fleet import written
from support.launches import READER, RULES, linted

COMMAND = "swift rlhf --rlhf_type grpo --model m --train_type lora --dataset d --output_dir o"
EIGHT = "NPROC_PER_NODE=8"
WORDS = json.dumps(COMMAND.split())
KUBERNETES = f"""apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      containers:
        - name: train
          env:
            - name: NPROC_PER_NODE
              value: "8"
          command: ["/bin/bash", "-c"]
          args:
            - |
              pip install x
              {COMMAND}
"""
COMPOSE = f"""services:
  train:
    environment:
      NPROC_PER_NODE: "8"
    command:
      - bash
      - -c
      - {COMMAND}
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": [f"!{EIGHT} {COMMAND}\n"]},
        {"cell_type": "code", "source": ["import torch\n", f"!{EIGHT} swift rlhf \\\n", "  --model m"]},
    ]
}

# The file's name → its text, and the line in which the error is due.
READ = {
    "conda.sh": (f"export {EIGHT}\nconda run -n env {COMMAND}\n", 2),
    "wrap.sh": (f'sbatch -N1 --wrap="{EIGHT} {COMMAND}"\n', 1),
    "wrap-apart.sh": (f"sbatch -N1 \\\n  --wrap '{EIGHT} {COMMAND}'\n", 2),
    "document.sh": (f"bash <<EOF\nexport {EIGHT}\n{COMMAND}\nEOF\n", 3),
    "quoted-document.sh": (f"sbatch <<'EOF'\n#!/bin/bash\nexport {EIGHT}\n{COMMAND}\nEOF\necho it is 'over'\n", 4),
    "read-document.sh": (f"read -r -d '' x <<EOF\n{EIGHT} {COMMAND}\nEOF\nbash -c \"$x\"\n", 4),
    "written.sh": (f"cat > run.sh <<EOF\n{EIGHT} {COMMAND}\nEOF\nbash run.sh\n", 2),
    "quotes-in-document.sh": (f'bash <<EOF\necho "a \\"b\\""\n{EIGHT} {COMMAND} --x "y"\nEOF\n', 3),
    "train.zsh": (f"export {EIGHT}\n{COMMAND}\n", 2),
    "train.rst": (
        f"Train\n=====\n\n.. code-block:: bash\n   :caption: x\n\n   $ {EIGHT} {COMMAND}\n\nAnd no more.\n",
        7,
    ),
    "inline.md": (
        "Use `accelerate launch`, as in `accelerate launch --num_processes 8 -m swift.cli.rlhf --train_type lora --model m`.\n",
        1,
    ),
    "Dockerfile": (f"FROM i\nENV {EIGHT}\nRUN pip install \\\n  x\nCMD {COMMAND}\n", 5),
    "exec.Dockerfile": (
        f'FROM i\nENV NPROC_PER_NODE 8\nENTRYPOINT ["swift"]\nCMD {json.dumps(COMMAND.split()[1:])}\n',
        3,
    ),
    "job.yaml": (KUBERNETES, 15),
    "words.yaml": (f"spec:\n  env: [{{name: NPROC_PER_NODE, value: '8'}}]\n  command: {WORDS}\n", 3),
    "compose.yml": (COMPOSE, 8),
    "sky.yaml": (f"resources: {{accelerators: 'H100:8'}}\nrun: |\n  export {EIGHT}\n  {COMMAND}\n", 4),
    "workflow.yml": (f"jobs:\n  t:\n    env: {{NPROC_PER_NODE: 8}}\n    steps:\n      - run: {COMMAND}\n", 5),
    "dstack.yml": (
        f"type: task\nenv:\n  - NPROC_PER_NODE=8\ncommands:\n  - pip list\n  - {COMMAND}\nresources:\n  gpu: 80GB:8\n",
        6,
    ),
    "gitlab.yml": (f"t:\n  variables: {{NPROC_PER_NODE: '8'}}\n  script:\n    - pip list\n    - {COMMAND}\n", 5),
    "folded.yml": (f"run: >\n  {EIGHT} swift rlhf \\\n  --model m\n", 1),
    "train.ipynb": (json.dumps(NOTEBOOK, indent=1), 13),
    "one-line.ipynb": (json.dumps({"cells": [{"cell_type": "code", "source": f"%env {EIGHT}\n!{COMMAND}"}]}), 1),
    "bash.ipynb": (
        json.dumps({"cells": [{"cell_type": "code", "source": ["%%bash\n", f"export {EIGHT}\n", COMMAND]}]}),
        1,
    ),
    "run.py": (f'import subprocess\nsubprocess.run("{EIGHT} {COMMAND}", shell=True)\n', 2),
    "list.py": (
        f"import os, subprocess\ncmd = {WORDS}\nsubprocess.run(cmd, env={{**os.environ, 'NPROC_PER_NODE': '8'}})\n",
        3,
    ),
    "system.py": (f"import os\nos.environ['NPROC_PER_NODE'] = '8'\nos.system(f'{COMMAND} --seed {{1 + 1}}')\n", 3),
    "joined.py": (f"import os\nos.system('{EIGHT} ' + ' '.join({WORDS}))\n", 2),
    "module.sh": ("accelerate launch --num_processes 8 -m swift.cli.rlhf --train_type lora --model m\n", 1),
    "spelled.sh": ("accelerate-launch --num_processes 8 -m swift.cli.rlhf --train_type lora --model m\n", 1),
    "which.sh": ("python3 $(which torchrun) --nproc_per_node 8 -m swift.cli.rlhf --train_type lora --model m\n", 1),
    "empty.sh": (f"{EIGHT} {COMMAND} --deepspeed ''\n", 1),
}
# The same for what is not read: the word that is named.
NAMED = {
    "ssh.sh": (f"ssh node1 '{EIGHT} {COMMAND}'\n", 1, "`ssh`"),
    "ssh-lines.sh": (f'true\nssh node1 "\n{EIGHT} {COMMAND}\n"\n', 2, "`ssh`"),
    "ssh-document.sh": (f"ssh node1 bash <<EOF\n{EIGHT} {COMMAND}\nEOF\n", 1, "`ssh`"),
    "tmux.sh": (f"tmux new-session -d '{EIGHT} {COMMAND}'\n", 1, "`tmux`"),
    "ray.sh": (f"ray job submit \\\n  -- {COMMAND}\n", 1, "`ray job submit`"),
    "sky.sh": (f"sky launch -c c '{COMMAND}'\n", 1, "`sky launch`"),
    "train.ps1": (f"$env:NPROC_PER_NODE=8\n{COMMAND}\n", 1, "PowerShell"),
    "train.fish": (f"set -x NPROC_PER_NODE 8\n{COMMAND}\n", 1, "fish"),
    "train.bat": (f"set {EIGHT}\n{COMMAND}\n", 1, "a Windows batch file"),
    "pixi.toml": (f'[tasks]\ntrain = "{EIGHT} {COMMAND}"\n', 1, "TOML"),
    "ray.py": ("from ray.train.torch import TorchTrainer\nTorchTrainer(f).fit()\n", 2, "`TorchTrainer`"),
    "main.py": (
        "from swift.llm import RLHFArguments, rlhf_main\nrlhf_main(RLHFArguments(model='m'))\n",
        2,
        "`rlhf_main`",
    ),
}


@pytest.mark.parametrize("name", READ)
def test_a_launch_is_read_in_every_form(name, tmp_path):
    text, line = READ[name]
    (tmp_path / name).write_text(text)
    done = linted(tmp_path / name, "--with", "ms-swift==3.5.3", "--format", "json")
    (told,) = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, told["level"], told["code"], told["line"]) == (1, "error", "ddp-ready-twice", line)


@pytest.mark.parametrize("name", NAMED)
def test_what_is_not_read_is_named(name, tmp_path):
    text, line, word = NAMED[name]
    (tmp_path / name).write_text(text)
    for asked in (tmp_path / name, tmp_path):  # a folder's files by their names: a toml is nearly never a launch
        if asked == tmp_path and name.endswith(".toml"):
            continue
        done = linted(asked)
        assert done.returncode == 2 and f"{name}:{line}: " in done.stderr and word in done.stderr, done
        assert "readyonce lint -- COMMAND" in done.stderr
        assert "1 not read" in done.stdout and "nothing to judge" not in done.stdout


def _read(folder, name, text):
    (folder / name).write_text(text)
    return forms.file(READER, str(folder / name))


def test_what_only_speaks_of_ssh_or_a_launcher_is_not_named(tmp_path):
    for name, text in {
        "a.sh": f"# ssh node1 '{COMMAND}'\nssh node1 nvidia-smi\n{EIGHT} {COMMAND}\n",
        "a.ps1": "Write-Host hello\n",
        "a.py": "def sft_main():\n    pass\n\n\nsft_main()\n",
        "a.ipynb": '{"cells": []}',
    }.items():
        assert not _read(tmp_path, name, text).not_read


def test_a_document_that_starts_nothing_is_no_launch(tmp_path):
    found = _read(tmp_path, "a.sh", f"cat <<EOF > notes.txt\n{EIGHT} {COMMAND}\nEOF\n{EIGHT} {COMMAND}\n")
    assert [launch.line for launch in found.launches] == [4]


@pytest.mark.parametrize(
    "text, processes",
    [
        ("source env.inc\nswift sft --model m\n", 4),
        ('. "$(dirname "$0")/env.inc"\nswift sft --model m\n', 4),
        ("source elsewhere.inc\nswift sft --model m\n", None),
        ("source .venv/bin/activate\nswift sft --model m\n", 1),
        ("python mason.py --num_nodes 2 --gpus 8 -- python a.py --per_device_train_batch_size 1\n", None),
        ("python a.py --per_device_train_batch_size 1 --num_learners_per_node 6\n", None),
        ("python a.py --per_device_train_batch_size 1 --num_nodes 1\n", 1),
    ],
)
def test_a_count_of_processes_that_cannot_be_read_is_not_one(text, processes, tmp_path):
    (tmp_path / "env.inc").write_text("# of this cluster\nexport NPROC_PER_NODE=4  # GPUs\necho ready\n")
    (launch,) = _read(tmp_path, "a.sh", text).launches
    assert launch.processes == processes


@pytest.mark.parametrize(
    "text, word",
    [
        ("composer train.py a.yaml\n", "composer"),
        ("colossalai run --nproc_per_node 8 train.py\n", "colossalai run"),
        ("srun --cpu_bind=v python -m package.main --ddp-static-graph\n", "srun"),
        ("srun apptainer exec x.sif bash -c 'python $CMD'\n", "srun"),
        ("mpirun -np 8 python train.py\n", "mpirun"),
        (f"export {EIGHT}; python -m swift.cli.rlhf --model m\n", "python -m swift.cli.rlhf"),
    ],
)
def test_what_starts_processes_and_is_not_read_is_said(text, word, tmp_path):
    (launch,) = _read(tmp_path, "a.sh", text).launches
    assert launch.unseen == word


def test_a_page_shows_a_clusters_file(tmp_path):
    page = "# Train\n\n```yaml\ntype: task\ncommands:\n  - pip install x\n  - torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1\n```\n"
    (tmp_path / "train.md").write_text(page, encoding="utf-8")
    (launch,) = forms.file(READER, str(tmp_path / "train.md")).launches
    assert (launch.processes, launch.line) == (8, 7)


@pytest.mark.parametrize(
    "include, processes", [("localhost:0,1,2", 3), ("localhost:4", 1), ("worker-0@worker-1:0,2", None)]
)
def test_the_gpus_that_deepspeed_includes_are_counted(include, processes, tmp_path):
    (tmp_path / "train.sh").write_text(
        f"deepspeed --include {include} train.py --per_device_train_batch_size 1\n", "utf-8"
    )
    (launch,) = forms.file(READER, str(tmp_path / "train.sh")).launches
    assert launch.processes == processes


def test_releases_come_from_the_projects_own_requirements(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".git").mkdir()
    command = "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1 --gradient_checkpointing true\n"
    (tmp_path / "scripts/train.sh").write_text(command, encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("torch\ntransformers[torch]==4.57.6 # tried\nDeepSpeed>=0.16\n", "utf-8")
    (tmp_path.parent / "requirements.txt").write_text("deepspeed==0.1.0\n", encoding="utf-8")  # of another project
    (tmp_path / "requirements-docs.txt").write_text("transformers==4.1.0\n", encoding="utf-8")
    said = linted("scripts/train.sh", cwd=tmp_path).stdout
    assert "reentrant checkpointing, transformers 4.57.6 (from requirements.txt)" in said and "0.1.0" not in said
    said = linted("scripts/train.sh", "--with", "transformers==5.0.0", cwd=tmp_path).stdout
    assert "non-reentrant checkpointing" in said and "4.57.6" not in said


@pytest.mark.parametrize(
    "file, pins",
    [
        ("pyproject.toml", '[project]\ndependencies = ["torch", "transformers[torch]==4.57.6", "x"]\n'),
        ("pyproject.toml", '[project.optional-dependencies]\ntrain = ["ninja", "Transformers == 4.57.6"]\n'),
        ("setup.py", "setup(install_requires=[\n    'transformers==4.57.6',  # tried\n])\n"),
        ("environment.yml", "dependencies:\n  - python=3.10\n  - pip:\n      - transformers==4.57.6\n"),
        ("environment.yml", "dependencies:\n  - conda-forge::x\n  - transformers=4.57.6=pyhd8ed1ab_0\n"),
    ],
)
def test_releases_come_from_each_file_that_pins_them(file, pins, tmp_path):
    (tmp_path / "train.sh").write_text("torchrun --nproc_per_node 8 t.py --per_device_train_batch_size 1\n", "utf-8")
    (tmp_path / file).write_text(pins, encoding="utf-8")
    assert f"transformers 4.57.6 (from {file})" in linted("train.sh", cwd=tmp_path).stdout
    (tmp_path / file).write_text(f"# {pins}".replace("\n", "\n# "), encoding="utf-8")
    assert "(from " + file not in linted("train.sh", cwd=tmp_path).stdout
    (tmp_path / file).write_text(pins, encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("transformers==4.51.3\n", encoding="utf-8")  # the surest
    assert "transformers 4.51.3 (from requirements.txt)" in linted("train.sh", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "pins",
    [
        'transformers==4.46.3; python_version < "3.9"\n',
        "transformers==4.*\n",
        "transformers==4.46.3\ntransformers==5.1.0\n",
        "# transformers==4.46.3\n",
    ],
)
def test_a_pin_that_holds_at_times_is_none(pins, tmp_path):
    (tmp_path / "train.sh").write_text("torchrun --nproc_per_node 8 t.py --per_device_train_batch_size 1\n", "utf-8")
    (tmp_path / "requirements.txt").write_text(pins, encoding="utf-8")
    assert "(from requirements.txt)" not in linted("train.sh", cwd=tmp_path).stdout


def test_what_a_page_does_not_read_is_named(tmp_path):
    page = "```bash\nssh node1 torchrun --nproc_per_node 8 t.py\n```\n\n```yaml\nrun: torchrun --nproc_per_node 8 t.py\n```\n"
    (tmp_path / "train.md").write_text(page, encoding="utf-8")
    told = forms.file(READER, str(tmp_path / "train.md"))
    assert [it.line for it in told.launches] == [6] and [line for line, _ in told.not_read] == [2]


@pytest.mark.parametrize(
    "called",
    [
        '"${TORCHRUN_BIN}"',
        "$TORCHRUN",
        '"$PYTHON_BIN" -m torch.distributed.run',
        "${PYTHON} -m torch.distributed.run",
        "python3 -m accelerate.commands.launch --num_processes 8",
    ],
)
def test_a_launcher_in_a_variable_is_known_by_its_name(called, tmp_path):
    text = 'PYTHON_BIN="${PYTHON_BIN:-}"\nPYTHON_BIN="$(command -v python3 || command -v python)"\n'
    text += f'if [ -n "$HOME" ]; then TORCHRUN_BIN=$HOME/torchrun; fi\n{called} --nproc_per_node 8 train.py --per_device_train_batch_size 1\n'
    (tmp_path / "train.sh").write_text(text, encoding="utf-8")
    (launch,) = forms.file(READER, str(tmp_path / "train.sh")).launches
    assert (launch.processes, launch.line) == (8, 4)


def test_services_know_nothing_of_each_other(tmp_path):
    text = "services:\n" + "".join(
        f"  {name}:\n    environment: {{{variable}}}\n    command: swift sft --model m\n"
        for name, variable in {"one": "NPROC_PER_NODE: 4", "two": "A: 1"}.items()
    )
    assert [launch.processes for launch in _read(tmp_path, "a.yaml", text).launches] == [4, 1]


def _stage(name):
    return json.dumps({"zero_optimization": {"stage": int(name[-6])}})


def test_a_file_that_branches_choose_is_judged_in_each(tmp_path):
    for name in ("zero2.json", "zero3.json"):
        (tmp_path / name).write_text(_stage(name))
    text = (
        "if [ $1 = big ]; then\n  C=zero3.json\nelse\n  C='zero2.json'\nfi\n"
        "torchrun --nproc_per_node 4 t.py --per_device_train_batch_size 1 --deepspeed $C\n"
    )
    (tmp_path / "a.sh").write_text(text)
    said = linted("a.sh", "--with", "transformers==4.57.1", "--with", "deepspeed==0.19.8", cwd=tmp_path).stdout
    for strategy, file in (("ZeRO-3", "zero3.json"), ("ZeRO-2", "zero2.json")):
        assert f"4 processes, {strategy}, no checkpointing (where C={file})" in said
    assert "1 launch in 1 file" in said
    (tmp_path / "a.sh").write_text(text.replace("C=zero3.json", 'C="$2"'))  # one of them is not known
    assert "DeepSpeed of unknown stage" in linted("a.sh", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "text, does",
    [
        ('S=$2\nif [ "$S" == "" ]; then\n  S=3\nfi\n', "ZeRO-3, no checkpointing (where S=3)"),
        ('S="${2}"\nif [[ -z $S ]]; then\n  S=3\nfi\n', "ZeRO-3, no checkpointing (where S=3)"),
        ('S=$2\nif [ "$1" == "" ]; then\n  S=3\nfi\n', "DeepSpeed of unknown stage"),
        ('S=$2\nif [ -z "$S" ]; then\n  S=3\nelse\n  S=2\nfi\n', "DeepSpeed of unknown stage"),
    ],
)
def test_a_stage_that_an_argument_of_the_script_sets_is_its_default(text, does, tmp_path):
    """As DeepSpeed-Chat's scripts take it."""
    command = "torchrun --nproc_per_node 4 main.py --per_device_train_batch_size 1 --deepspeed --zero_stage $S\n"
    (tmp_path / "a.sh").write_text(text + command, encoding="utf-8")
    assert does in linted("a.sh", cwd=tmp_path).stdout


def test_a_release_that_one_extra_alone_pins_is_none(tmp_path):
    (tmp_path / "train.sh").write_text("torchrun --nproc_per_node 8 t.py --per_device_train_batch_size 1\n", "utf-8")
    pins = '[project]\ndependencies = ["transformers >= 4.50.0"]\n[project.optional-dependencies]\nold = ["transformers==4.40.0"]\n'
    (tmp_path / "pyproject.toml").write_text(pins, encoding="utf-8")
    assert "(from pyproject.toml)" not in linted("train.sh", cwd=tmp_path).stdout


def test_a_command_in_a_file_that_the_script_reads(tmp_path):
    files = {
        "pkg/base.sh": 'export head="torchrun --nproc_per_node 2 \\\n  -m pkg.train"\nexport base="--use_lora True \\\n  --per_device_train_batch_size 1"\n',
        "pkg/sh/a.sh": 'source pkg/base.sh\nargs="$base --output_dir $OUT"\neval "$head" "$args"\n',
    }
    written(tmp_path, files)
    assert "2 processes, DDP" in linted("pkg/sh/a.sh", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "options, code, does",
    [
        ("--train_engine torch_ddp --deepspeed_config z2.json", "", "4 processes, DDP,"),  # as WeNet takes it
        ("--train_engine torch_fsdp --deepspeed_config z2.json", "", "4 processes, FSDP of unknown version"),
        ("--train_engine deepspeed --deepspeed_config z2.json", "", "4 processes, ZeRO-2,"),
        ("--train_engine torch_ddp", "e = deepspeed.initialize()", "4 processes, DDP,"),
        ("--lr 1", "model = FSDP(model)", "4 processes, FSDP1,"),
        ("--lr 1", "fully_shard(model)", "4 processes, FSDP2,"),
        (
            "--lr 1",
            "if ds:\n    e = deepspeed.initialize()\nelse:\n    e = DDP(model)",
            "4 processes, DeepSpeed of unknown",
        ),
    ],
)
def test_the_strategy_of_a_loop_of_ones_own(options, code, does, tmp_path):
    command = f"torchrun --nproc_per_node 4 src/run.py {options}\n"
    written(tmp_path, {"src/run.py": code, "z2.json": _stage("z2.json"), "sh/a.sh": command})
    assert does in linted("sh/a.sh", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "files, does",
    [
        ({"own/runner.py": "model = DDP(model)"}, "DDP,"),
        ({"own/runner.py": "from .wrap import wrapped", "own/wrap.py": "model = FSDP(model)"}, "FSDP1,"),
        ({"own/runner.py": "for m in model: fully_shard(m)"}, "FSDP2,"),
        ({"own/runner.py": "e = deepspeed.initialize()"}, "DeepSpeed of unknown stage,"),
        ({"own/runner.py": "from own import wrap", "own/wrap.py": "model = DDP(model)"}, "DDP,"),
        # which of two decides is not known, nor what stands behind another's wrapper
        ({"own/runner.py": "DDP(m) if small else FSDP(m)"}, "a strategy that cannot be read,"),
        ({"own/runner.py": "model = DDP(model)\na = Accelerator()"}, "a strategy that cannot be read,"),
        ({"own/runner.py": "from transformers import Trainer"}, "a strategy that cannot be read,"),
        ({"other/runner.py": "model = DDP(model)"}, "a strategy that cannot be read,"),  # nothing imports it
    ],
)
@pytest.mark.parametrize("start", ["tools/train.py", "-m tools.train"])
def test_a_strategy_that_stands_in_the_scripts_own_package(start, files, does, tmp_path):
    script = {"tools/train.py": "import torch\nfrom own.runner import Runner\n", "own/__init__.py": ""}
    written(tmp_path, script | files | {"a.sh": f"torchrun --nproc_per_node 4 {start} --lr 1\n"})
    assert f"4 processes, {does}" in linted("a.sh", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "at, does",
    [
        (["src/ds/z3.json"], "ZeRO-3,"),  # as a page shows what is started from src
        (["src/ds/z3.json", "old/ds/z3.json"], "ZeRO-3 (by the name of its file"),  # which of them is not known
        ([], "ZeRO-3 (by the name of its file"),
    ],
)
def test_a_file_that_stands_once_below(at, does, tmp_path):
    written(tmp_path, dict.fromkeys(at, _stage("z3.json")))
    command = "torchrun --nproc_per_node 4 t.py --per_device_train_batch_size 1 --deepspeed ds/z3.json"
    (tmp_path / "a.md").write_text(f"```bash\ncd src\n{command}\n```\n", encoding="utf-8")
    assert f"4 processes, {does}" in linted("a.md", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "command, does",
    [
        ("torchrun t.py", "one process, unless torchrun is told how many, DDP,"),
        ("torchrun --standalone t.py", "one process, unless torchrun is told how many, DDP,"),
        ("torchrun $ARGS t.py", "an unknown number of processes, DDP,"),
        ("torchrun --standalone $ARGS t.py", "an unknown number of processes, DDP,"),
        ("torchrun --nproc_per_node gpu t.py", "an unknown number of processes, DDP,"),
        ("export PET_NPROC_PER_NODE=8; torchrun t.py", "an unknown number of processes, DDP,"),
        ("deepspeed t.py", "an unknown number of processes,"),  # it takes all GPUs
    ],
)
def test_a_launcher_that_is_told_no_number_starts_one_process(command, does, tmp_path):
    (tmp_path / "a.sh").write_text(f"{command} --per_device_train_batch_size 1 --use_lora True\n", encoding="utf-8")
    told = linted("a.sh", cwd=tmp_path).stdout
    assert does in told and "RO-0007" in told  # it is judged all the same


@pytest.mark.parametrize(
    "options, code, does",
    [
        ("--deepspeed --use-zero-stage 2", "", "ZeRO-2,"),
        ("--enable_deepspeed", "p.add_argument('--zero_stage', default=0, type=int)", "DeepSpeed stage 0,"),
        ("--enable_deepspeed --zero_stage 1", "p.add_argument('--zero_stage', default=0)", "ZeRO-1,"),
        ("--enable_deepspeed false", "p.add_argument('--zero_stage', default=0)\nm = DDP(m)", "DDP,"),
        (
            "--deepspeed c.json",
            "p.add_argument('--zero_stage', default=0)",
            "DeepSpeed of unknown stage,",
        ),  # it decides
        ("--deepspeed $C --lr 1", "p.add_argument('--zero_stage', default=0)", "DeepSpeed of unknown stage,"),
        ("--deepspeed deepspeed_zero3_offload", "", "ZeRO-3 (by the name"),  # a file of the framework's package
        ("--deepspeed mine", "", "DeepSpeed of unknown stage,"),
        # a script whose own options go to the Trainer's
        ("--micro 4", "TrainingArguments(output_dir=o, per_device_train_batch_size=a.micro)", "DDP, no checkpointing"),
        (
            "--micro 4",
            "TrainingArguments(per_device_train_batch_size=a.micro, fsdp=a.fsdp)",
            "a strategy that cannot be read,",
        ),
        ("--micro 4", "TrainingArguments(output_dir=o, **more)", "a strategy that cannot be read,"),
        (
            "--micro 4",
            "TrainingArguments(output_dir=o)\nm = prepare_model_for_int8_training(m)",
            "DDP, checkpointing that",
        ),
    ],
)
def test_what_a_script_calls_by_another_name(options, code, does, tmp_path):
    (tmp_path / "t.py").write_text(code, encoding="utf-8")
    (tmp_path / "a.sh").write_text(f"torchrun --nproc_per_node 4 t.py {options}\n", encoding="utf-8")
    assert f"4 processes, {does}" in linted("a.sh", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "of, does",
    [("model", "non-reentrant checkpointing"), ("model.get_vision_tower().vision_tower", "reentrant checkpointing")],
)
def test_checkpointing_of_a_vision_tower_is_not_that_of_the_model(of, does, tmp_path):
    """As in https://github.com/X-PLUG/mPLUG-DocOwl: the Trainer enables that of the whole model afterwards."""
    code = f'{of}.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{"use_reentrant": False}})\n'
    (tmp_path / "t.py").write_text(code, encoding="utf-8")
    command = "torchrun --nproc_per_node 4 t.py --per_device_train_batch_size 1 --gradient_checkpointing True\n"
    (tmp_path / "a.sh").write_text(command, encoding="utf-8")
    assert f"4 processes, DDP, {does}" in linted("a.sh", "--with", "transformers==4.50.0", cwd=tmp_path).stdout


def test_a_command_that_stands_as_html_in_a_page(tmp_path):
    command = COMMAND.replace(" --", " \\\n --")
    page = f"Run it:\n<pre>{EIGHT} {command} </pre>\nIt's done.\n\n<pre><code>\nls\n</code></pre>\n"
    (launch,) = _read(tmp_path, "a.md", page).launches
    assert launch.line == 2 and launch.processes == 8 and "dataset" in launch.options


@pytest.mark.parametrize(
    "command",
    [
        "xtuner train c.py",
        "litgpt finetune_lora m",
        "tune run --nproc_per_node 2 lora",
        "fairseq-train d",
        "bash a/torchrun.sh --nproc_per_node=2 t.py",
    ],
)
def test_a_launcher_that_is_not_read_is_named(command, tmp_path):
    (tmp_path / "a.sh").write_text(f"{command}\n", encoding="utf-8")
    told = linted("a.sh", cwd=tmp_path).stdout
    assert "is here, but no launch could be read [not-covered]" in told and "nothing to judge" not in told


def test_the_modules_that_a_script_imports_are_looked_at(tmp_path):
    """As the loop of many stands in a module beside the script: https://github.com/facebookresearch/mae."""
    (tmp_path / "engine.py").write_text(
        "scaler.scale(loss).backward()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nscaler.step(o)\n"
    )
    (tmp_path / "train.py").write_text("from engine import train_one_epoch\nmodel = DDP(model)\n")
    (tmp_path / "a.sh").write_text("torchrun --nproc_per_node 4 train.py --lr 1\n", encoding="utf-8")
    told = linted("--all", "a.sh", cwd=tmp_path).stdout
    assert "engine.py:1: note" in told and "[RO-0011]" in told and "4 processes, DDP," in told


def test_a_deepspeed_file_behind_another_name_and_megatron_by_a_configuration(tmp_path):
    (tmp_path / "c.json").write_text(_stage("z2.json"), encoding="utf-8")
    (tmp_path / "a.sh").write_text("torchrun --nproc_per_node 4 t.py --lr 1 --ds_config c.json\n", encoding="utf-8")
    assert "4 processes, ZeRO-2," in linted("a.sh", cwd=tmp_path).stdout
    command = "python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer' trainer.n_gpus_per_node=8\n"
    (tmp_path / "b.sh").write_text(command, encoding="utf-8")
    assert "8 processes, Megatron," in linted("b.sh", cwd=tmp_path).stdout


def test_what_a_page_leaves_to_its_reader_is_one_value(tmp_path):
    command = "torchrun --nproc_per_node 4 t.py --per_device_train_batch_size 1 --data <path to what `make.py` wrote> --bf16 true"
    (tmp_path / "a.md").write_text(f"```\n{command}\n```\n", encoding="utf-8")
    assert "4 processes, DDP, no checkpointing" in linted("a.md", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "stages, strategy", [([2], "zero-2"), ([3, 3], "zero-3"), ([2, 3], None), ([], None), (None, "ddp")]
)
def test_a_script_that_calls_deepspeed_itself_is_not_ddp(stages, strategy, tmp_path):
    code = "import deepspeed\n"
    if stages is not None:
        code += "".join(f'c = {{"zero_optimization": {{"stage": {stage}}}}}\n' for stage in stages)
        code += "engine, *_ = deepspeed.initialize(model=m, config=c)\n"
    (tmp_path / "t.py").write_text(code)
    (launch,) = _read(tmp_path, "a.sh", "deepspeed t.py --per_device_train_batch_size 1\n").launches
    assert judge.facts_of(RULES, launch, {}).get("strategy") == strategy


@pytest.mark.parametrize(
    "command, strategy",
    [
        ("torchrun --nproc_per_node 4 own.py --enable_fsdp", "FSDP of unknown version"),
        ("deepspeed own.py --deepspeed elsewhere.json --lr 1", "DeepSpeed of unknown stage"),
        ("accelerate launch --config_file multi.yaml own.py --lr 1", "DDP"),
        ("accelerate launch --config_file zero.yaml own.py --lr 1", "ZeRO-2"),
        ("torchrun --nproc_per_node 4 own.py --lr 1", "a strategy that cannot be read"),
        ("torchrun --nproc_per_node 4 asked.py --max_steps 1", "a strategy that cannot be read"),
        ("deepspeed engine.py --per_device_train_batch_size 1", "DeepSpeed of unknown stage"),
    ],
)
def test_the_strategy_of_a_loop_of_ones_own_is_said_where_it_stands(command, strategy, tmp_path):
    (tmp_path / "asked.py").write_text("TrainingArguments(per_device_train_batch_size=1, deepspeed=asked.deepspeed)\n")
    (tmp_path / "engine.py").write_text("deepspeed.initialize(model=m, config=c)\n")
    (tmp_path / "multi.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 4\n")
    (tmp_path / "zero.yaml").write_text(
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\nnum_processes: 4\n"
    )
    (launch,) = _read(tmp_path, "a.sh", command + "\n").launches
    assert f", {strategy}, " in judge.does(RULES, launch, {})


def test_prose_in_a_page_does_not_hide_the_launch_behind_it(tmp_path):
    page = f"```\nthe user's question\n```\n\n```bash\n{EIGHT} {COMMAND}\n```\n"
    assert [launch.line for launch in _read(tmp_path, "a.md", page).launches] == [6]


def test_broken_files_say_so(tmp_path):
    (tmp_path / "a.ipynb").write_text("[1, 2]")
    done = linted(tmp_path / "a.ipynb")
    assert done.returncode == 2 and "no notebook" in done.stderr and "Traceback" not in done.stderr
    loop = "a: &a\n  command: [torchrun, x]\n  b: *a\n"
    (tmp_path / "b.yaml").write_text(loop)
    assert "Traceback" not in linted(tmp_path / "b.yaml").stderr


def test_a_sourced_value_that_only_a_run_can_tell_is_left_out(tmp_path):
    (tmp_path / "env.sh").write_text("PORT=$(shuf -i 1-9 -n 1)\nexport NPROC_PER_NODE=4\n", encoding="utf-8")
    (tmp_path / "a.sh").write_text("source env.sh\nswift sft --model m --train_type lora\n", encoding="utf-8")
    assert "4 processes, DDP, LoRA" in linted("a.sh", cwd=tmp_path).stdout
