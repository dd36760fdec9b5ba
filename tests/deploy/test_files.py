"""Every file of configs/deploy is read by what reads it in earnest, or as closely as this machine
can; and each command in it is one that the command line knows.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from stateshift.cli.shell.entry import parser
from stateshift.documents.metrics import METRICS
from stateshift.storage.local.storage import LocalStorage
from tests.check.corpus import BASES
from tests.check.playing import GROUND
from tests.support.checkpoints import Checkpoint

ROOT = Path(__file__).resolve().parents[2]
NOT_SHOWN = 77  # of scripts/release --image: nothing can be built here
DEPLOY = ROOT / "configs" / "deploy"
BIN = Path(sys.executable).parent
UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")])
OPERATORS = {">", ">>", "|", "||", "&&", ";", "&", "<", "2>"}


def text_of(name: str) -> str:
    return (DEPLOY / name).read_text("utf-8")


# ---- the command lines


def command_of(line: str) -> list[str] | None:
    """Return the words of the first stateshift command in a line of shell; None without one."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words = list(lexer)
    starts = [i for i, word in enumerate(words) if word.rpartition("/")[2] == "stateshift"]
    if not starts:
        return None
    command = []
    for word in words[starts[0] + 1 :]:
        if word in OPERATORS:
            break
        command.append(word)
    return command


def shell_commands(lines: Sequence[str]) -> Iterator[list[str]]:
    for line in lines:
        command = command_of(line)
        if command:
            yield command


def commands_in(name: str) -> list[list[str]]:
    """Return every stateshift command that a file of configs/deploy runs."""
    match name:
        case "kubernetes-cronjob.yaml" | "kubernetes-rebalance.yaml":
            return [container(name)["args"]]
        case "github-action/action.yml":
            return list(shell_commands("\n".join(map(str, action_scripts())).splitlines()))
        case "gitlab-ci.yml":
            return list(shell_commands([line for job in gitlab_jobs() for line in job["script"]]))
        case "Dockerfile":
            return [json.loads(said("CMD")[-1]), ["plan", "orders.json"]]
        case "README.md":
            blocks = re.findall(r"^```sh\n(.*?)^```", text_of(name), re.MULTILINE | re.DOTALL)
            lines = [line for line in "\n".join(blocks).splitlines() if "stateshift " in line]
            own = [line for line in lines if line.startswith("stateshift ")]
            images = [line.partition("stateshift:0.1.0 ")[2] for line in lines]
            return [*shell_commands(own), *[image.split() for image in images if image.strip(". ")]]
        case _:
            if name.endswith(".service"):
                value = unit(DEPLOY / name)["Service"]["ExecStart"]
                return list(
                    shell_commands([line.replace("/bin/sh -c", "").strip("' ") for line in value])
                )
            lines = [line for _, line in cron_jobs()]
            lines += re.findall(
                r"^#(\S+ [\d*]+ \* .*)", text_of(name), re.MULTILINE
            )  # commented out
            return list(shell_commands(lines))


def parsed(words: list[str]) -> None:
    """Parse a command line with the real parser, and run nothing."""
    command: Any = typer.main.get_command(parser())
    rest = list(words)
    while hasattr(command, "commands"):
        name, *rest = rest
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
    command.make_context(words[0], rest)


@pytest.mark.parametrize(
    "name",
    [
        "crontab",
        "stateshift-advise.service",
        "stateshift-drill@.service",
        "stateshift-follower@.service",
        "stateshift-metrics.service",
        "stateshift-rebalance.service",
        "stateshift-standby@.service",
        "Dockerfile",
        "kubernetes-cronjob.yaml",
        "kubernetes-rebalance.yaml",
        "github-action/action.yml",
        "gitlab-ci.yml",
        "README.md",
    ],
)
def test_every_command_of_a_file_is_one_that_there_is(name: str) -> None:
    commands = commands_in(name)
    assert commands, "a file without a command shows nothing"
    for words in commands:
        if words != ["--help"]:
            parsed(words)


def test_a_command_that_there_is_not_is_found() -> None:
    assert command_of('PATH=x /opt/bin/stateshift plan "$SPEC" --deep > out || code=$?') == [
        "plan",
        "$SPEC",
        "--deep",
    ]
    for words in (["metric"], ["metrics", "--output", "x"], ["apply", "a", "b"], ["live", "nope"]):
        with pytest.raises(Exception, match=r"[Nn]o (such|command)|unexpected"):
            parsed(words)


def test_every_file_is_told_on_the_page_and_nothing_else_is() -> None:
    lines = text_of("README.md").splitlines()
    told = " ".join(line.split("|")[1] for line in lines if line.startswith("| [`"))
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.name != "README.md" and "__pycache__" not in path.parts:
            name = path.relative_to(DEPLOY).as_posix()
            assert name in told or f"`{path.suffix}`" in told, name
    for name in re.findall(r"`([\w@./-]+)`", told):
        assert (DEPLOY / name).exists() or name.startswith("."), name


# ---- cron


def cron_jobs() -> list[tuple[str, str]]:
    """Return times and command of each line, as crontab(5) says."""
    jobs = []
    for line in text_of("crontab").splitlines():
        if not line.strip() or line.startswith("#") or re.match(r"\w+=", line):
            continue
        times, command = re.fullmatch(r"(@\w+|(?:\S+\s+){4}\S+)\s+(.+)", line).groups()  # type: ignore[union-attr]
        jobs.append((times, command))
    return jobs


def cron_settings() -> dict[str, str]:
    lines = text_of("crontab").splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))


RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@pytest.mark.parametrize(("times", "command"), cron_jobs())
def test_a_line_of_the_crontab_has_times_that_cron_knows(times: str, command: str) -> None:
    if times.startswith("@"):
        assert times in ("@reboot", "@hourly", "@daily", "@weekly", "@monthly", "@yearly")
    else:
        for field, (least, most) in zip(times.split(), RANGES, strict=True):
            assert re.fullmatch(r"(\*|\d+(-\d+)?)(/\d+)?(,\d+)*", field), field
            assert all(least <= int(number) <= most for number in re.findall(r"\d+", field))
    assert not re.search(r"(?<!\\)%", command), "cron ends a command at a %"


@pytest.mark.long
@pytest.mark.row("W-13")
def test_the_commands_of_the_crontab_run_by_sh(tmp_path: Path) -> None:
    places = {
        "/etc/stateshift": tmp_path / "etc",
        "/var/lib/stateshift": tmp_path / "lib",
        "/var/lib/node_exporter": tmp_path / "node",
        "s3://streams": tmp_path / "streams",
    }
    for place in places.values():
        place.mkdir()
    for name in ("streams/orders", "moved"):
        Checkpoint().write(LocalStorage(f"file://{tmp_path}/{name}"))
    spec = {
        "version": 1,
        "engine": "spark",
        "jobs": [
            {
                "name": "orders",
                "checkpoint_location": f"{tmp_path}/moved",
                "remote_location": f"{tmp_path}/there",
                "waive": ["paths-stay"],
            }
        ],
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    (tmp_path / "etc" / "orders.json").write_text(json.dumps(spec))
    (tmp_path / "etc" / "clusters.json").write_text(json.dumps(between_clusters()))
    begin = ["apply", str(tmp_path / "spec.json"), "--yes", "--workdir", f"{tmp_path}/lib/standby"]
    subprocess.run([BIN / "stateshift", *begin], check=True, capture_output=True)
    settings = {key: _there(value, places) for key, value in cron_settings().items()}
    settings["PATH"] = f"{BIN}:{os.environ['PATH']}"
    for _, command in cron_jobs():
        there = _there(command, places)
        done = subprocess.run(
            ["sh", "-c", there], env=settings, cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), there
    metrics = (tmp_path / "node" / "stateshift.prom").read_text()
    assert 'stateshift_runs{state="finished"} 1\n' in metrics
    assert 'stateshift_advice_verdict{job="orders",verdict="unknown"} 1\n' in metrics
    assert json.loads((tmp_path / "lib" / "rebalance.jsonl").read_text())["moves"] == []
    assert json.loads((tmp_path / "lib" / "orders.verify.json").read_text())["restartable"]
    assert json.loads((tmp_path / "lib" / "standby.json").read_text())["state"] == "finished"


def between_clusters() -> dict[str, Any]:
    """Return a spec of a job between clusters that do not answer."""
    clusters = {
        name: {"kind": "flink_rest", "url": "http://127.0.0.1:1"} for name in ("west", "east")
    }
    images = {name: {"images": f"/{name}/{{job}}/{{move}}"} for name in clusters}
    job = {"name": "orders", "source_cluster": "west", "target_directory": "/taken"}
    submit = {"jar": "jobs.jar", "entry_class": "jobs.Count"}
    return {
        "version": 1,
        "engine": "flink",
        "clusters": clusters,
        "jobs": [{**job, "submit": submit}],
        "rebalance": {"clusters": images},
    }


def _there(text: str, places: dict[str, Path]) -> str:
    for name, place in places.items():
        text = text.replace(name, str(place))
    return text


# ---- systemd


def unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """Return the sections of a unit: the values of each key, in order."""
    sections: dict[str, dict[str, list[str]]] = {}
    keys: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        if not line.strip() or line.startswith(("#", ";")):
            continue
        if match := re.fullmatch(r"\[(\w+)\]", line):
            keys = sections.setdefault(match[1], {})
        else:
            name, _, value = line.partition("=")
            keys.setdefault(name, []).append(value)
    return sections


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_one_that_systemd_takes(path: Path, tmp_path: Path) -> None:
    sections = unit(path)
    assert sections["Unit"]["Description"]
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    # Its program is ours, its user is one that there is; all else is as it stands.
    text = path.read_text("utf-8").replace("/opt/stateshift/bin", str(BIN))
    text = text.replace("User=stateshift", "User=root")
    for other in UNITS:
        copy = other.read_text("utf-8").replace("/opt/stateshift/bin", str(BIN))
        (tmp_path / other.name).write_text(copy)
    name = path.name.replace("@.", "@orders.")
    (tmp_path / name).write_text(text)
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    ours = [line for line in done.stderr.splitlines() if "stateshift" in line]
    assert ours == []
    assert done.returncode == 0, done.stderr


def test_the_timer_starts_the_service_beside_it() -> None:
    assert (DEPLOY / "stateshift-metrics.timer").exists()
    assert (DEPLOY / "stateshift-metrics.service").exists()
    assert unit(DEPLOY / "stateshift-metrics.timer")["Timer"]["OnCalendar"] == ["minutely"]
    for timer in DEPLOY.glob("*.timer"):
        assert timer.with_suffix(".service").exists()
        assert re.fullmatch(
            r"minutely|\*:0/(10|15)|Sun 04:00", unit(timer)["Timer"]["OnCalendar"][0]
        )


def test_what_is_measured_each_minute_has_all_that_the_panels_ask_for() -> None:
    lines = [command for _, command in cron_jobs()]
    lines += unit(DEPLOY / "stateshift-metrics.service")["Service"]["ExecStart"]
    measuring = [line for line in lines if "stateshift metrics" in line]
    assert len(measuring) == 2
    for line in measuring:
        assert "--advice /var/lib/stateshift/advice.json" in line
        assert "--rebalance /var/lib/stateshift/rebalance-clusters" in line
    advice = unit(DEPLOY / "stateshift-advise.service")["Service"]["ExecStart"][0]
    assert "/var/lib/stateshift/advice.json" in advice
    rebalance = unit(DEPLOY / "stateshift-rebalance.service")["Service"]
    assert "/etc/stateshift/clusters.json --once --yes" in rebalance["ExecStart"][0]
    assert rebalance["Environment"] == ["STATESHIFT_WORKDIRS=/var/lib/stateshift"]


@pytest.mark.parametrize("name", ["stateshift-standby@.service", "stateshift-follower@.service"])
def test_a_unit_is_started_again_where_that_may_help_and_only_there(name: str) -> None:
    service = unit(DEPLOY / name)["Service"]
    kept_down = {int(code) for code in service["RestartPreventExitStatus"][0].split()}
    ended_well = {int(code) for code in service["SuccessExitStatus"][0].split()}
    assert {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 130} - kept_down - ended_well == {6, 7}


# ---- containers


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, each with what it says."""
    text = re.sub(r"\\\n\s*", "", text_of("Dockerfile"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def said(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def test_the_image_is_built_in_two_stages_and_runs_as_nobody_special() -> None:
    froms = said("FROM")
    assert len(froms) == 2 and froms[0].endswith(" AS build")
    assert said("COPY")[-1].startswith("--from=build ")
    (user,) = said("USER")
    uid = user.split(":")[0]
    assert uid.isdigit() and int(uid) > 0
    assert f"useradd --uid {uid}" in said("RUN")[-1]
    assert json.loads(said("ENTRYPOINT")[0]) == ["stateshift"]
    last = [name for name, _ in instructions()]
    assert last.index("USER") > max(i for i, name in enumerate(last) if name in ("RUN", "COPY"))


def test_the_image_has_every_extra_that_the_program_uses() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "bench", "fuzz", "site", "servers"}
    extras.remove("spark")  # it needs a Java, which the image has not
    installed = re.search(r"/src\[([\w,]+)\]", " ".join(said("RUN")))
    assert installed is not None
    assert set(installed[1].split(",")) == extras


def test_what_the_image_copies_is_there_and_is_what_a_build_needs() -> None:
    sources = [word for rest in said("COPY")[:-1] for word in rest.split()[:-1]]
    assert all((ROOT / source).exists() for source in sources)
    needed = {"pyproject.toml", "README.md", "LICENSE", "stateshift", "scripts/pins.d/image.txt"}
    assert needed == set(sources)


@pytest.mark.parametrize("command", said("RUN"))
def test_what_the_image_runs_is_shell(command: str) -> None:
    subprocess.run(["sh", "-n", "-c", command], check=True)


@pytest.mark.slow
@pytest.mark.row("W-29")
def test_the_image_is_built_and_moves_a_checkpoint() -> None:
    release = [str(ROOT / "scripts" / "release"), "--image"]
    done = subprocess.run(release, capture_output=True, text=True, check=False)
    if done.returncode == NOT_SHOWN:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout


DOCKER = """#!/bin/sh
volume="${*#*--volume }" work="${volume%%:*}"
case "$*" in
  *" id -u") echo 10001 ;;
  *" move "*) mkdir -p "$work/moved/orders" && touch "$work/moved/orders/metadata" ;;
esac
"""


def test_an_image_that_works_is_no_failure_though_its_files_are_not_ours_to_remove(
    tmp_path: Path,
) -> None:
    for name, script in (("docker", DOCKER), ("rm", "#!/bin/sh\nexit 1\n")):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    image = [str(ROOT / "scripts" / "release.d" / "image")]
    done = subprocess.run(image, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "built, and a move in it" in done.stderr


# ---- Kubernetes


def container(name: str = "kubernetes-cronjob.yaml") -> dict[str, Any]:
    cron_job = yaml.safe_load(text_of(name))
    (found,) = pod(cron_job)["containers"]
    result: dict[str, Any] = found
    return result


def pod(cron_job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("name", ["kubernetes-cronjob.yaml", "kubernetes-rebalance.yaml"])
def test_a_cron_job_runs_as_the_user_of_the_image_and_writes_where_it_may(name: str) -> None:
    cron_job = yaml.safe_load(text_of(name))
    assert (cron_job["apiVersion"], cron_job["kind"]) == ("batch/v1", "CronJob")
    assert cron_job["spec"]["concurrencyPolicy"] == "Forbid"
    context = pod(cron_job)["securityContext"]
    assert said("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert context["runAsNonRoot"] is True
    mounts = {mount["name"]: mount["mountPath"] for mount in container(name)["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod(cron_job)["volumes"]}
    assert mounts["workdirs"] == "/var/lib/stateshift"
    assert container(name)["securityContext"]["readOnlyRootFilesystem"] is True
    assert "command" not in container(name), "the image's own entry point runs it"


def test_a_run_of_rebalance_leaves_what_went_wrong_to_the_next_one() -> None:
    cron_job = yaml.safe_load(text_of("kubernetes-rebalance.yaml"))
    assert cron_job["spec"]["jobTemplate"]["spec"]["backoffLimit"] == 0
    assert pod(cron_job)["restartPolicy"] == "Never"
    (setting,) = container("kubernetes-rebalance.yaml")["env"]
    assert setting == {"name": "STATESHIFT_WORKDIRS", "value": "/var/lib/stateshift"}


def test_the_cron_job_tries_again_where_that_may_help_and_only_there() -> None:
    job = yaml.safe_load(text_of("kubernetes-cronjob.yaml"))["spec"]["jobTemplate"]["spec"]
    assert job["template"]["spec"]["restartPolicy"] == "Never", "else the policy is refused"
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container()["name"]
    assert {1, 2, 3, 4, 5, 6, 7, 8} - set(rule["onExitCodes"]["values"]) == {6, 7}


# ---- CI


def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text_of("github-action/action.yml"))
    return found


def action_scripts() -> list[str]:
    return [step["run"] for step in action()["runs"]["steps"] if "run" in step]


def gitlab_jobs() -> list[dict[str, Any]]:
    document = yaml.safe_load(text_of("gitlab-ci.yml"))
    return [job for job in document.values() if isinstance(job, dict) and "script" in job]


def spec_that(folder: Path, waive: list[str]) -> Path:
    Checkpoint(inputs=f"file://{folder}/in").write(LocalStorage(f"file://{folder}/orders"))
    job = {"name": "orders", "checkpoint_location": "orders", "remote_location": "moved/orders"}
    spec = {"version": 1, "engine": "spark", "jobs": [{**job, "waive": waive}]}
    (folder / "orders.json").write_text(json.dumps(spec))
    return folder / "orders.json"


def bash(script: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{BIN}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=cwd,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.long
@pytest.mark.row("W-13")
@pytest.mark.parametrize(("waive", "code"), [(["paths-stay"], 0), ([], 4)])
def test_the_action_shows_a_plan_and_fails_where_a_finding_refuses(
    waive: list[str], code: int, tmp_path: Path
) -> None:
    spec = spec_that(tmp_path, waive)
    summary, output = tmp_path / "summary.md", tmp_path / "output"
    done = bash(
        action_scripts()[-1],
        tmp_path,
        SPEC=str(spec),
        PLAN=str(tmp_path / "stateshift.plan"),
        RUNNER_TEMP=str(tmp_path),
        GITHUB_STEP_SUMMARY=str(summary),
        GITHUB_OUTPUT=str(output),
    )
    assert done.returncode == code, done.stderr
    assert summary.read_text().startswith("### orders: move its image at epoch")
    assert output.read_text() == f"file={tmp_path}/stateshift.plan\n"
    assert json.loads((tmp_path / "stateshift.plan").read_text())["stateshift_plan"]
    assert not (tmp_path / "moved").exists()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.row("W-13")
def test_the_action_shows_whether_code_starts(tmp_path: Path) -> None:
    checkpoint = ROOT / "tests" / "golden" / "check" / "window" / "checkpoint"
    code = tmp_path / "job.py"
    code.write_text(BASES["window"].script)
    summary = tmp_path / "summary.md"
    done = bash(
        action_scripts()[-2],
        tmp_path,
        CHECKPOINT=str(checkpoint),
        CODE=str(code),
        BEFORE="",
        ARGUMENTS=str(GROUND),
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert done.returncode == 0, done.stderr
    assert summary.read_text().startswith("### starts: ")


def test_the_action_installs_what_lies_beside_it_and_nothing_by_its_name(tmp_path: Path) -> None:
    uses = [step["uses"] for step in action()["runs"]["steps"] if "uses" in step]
    assert uses
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each) for each in uses)
    page = text_of("README.md").partition("## GitHub Actions")[2].partition("\n## ")[0]
    assert "github-action@COMMIT" in page
    pip = tmp_path / "bin" / "python"
    pip.parent.mkdir()
    pip.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    pip.chmod(0o755)
    (step,) = (step for step in action()["runs"]["steps"] if "pip install" in step.get("run", ""))
    above = step["env"]["ROOT"].removeprefix("${{ github.action_path }}/")
    root = DEPLOY / "github-action" / above
    assert (root / "pyproject.toml").samefile(ROOT / "pyproject.toml")
    environment = {"ROOT": str(root), "RUNNER_TEMP": str(tmp_path)}
    script = f'PATH="{pip.parent}:$PATH"; {step["run"]}'
    done = bash(script, tmp_path, EXTRAS="s3,kafka", **environment)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split("\n")[:-1]
    assert words[-1] == f"{root}[s3,kafka]"
    assert bash(script, tmp_path, EXTRAS="", **environment).stdout.endswith(f"\n{root}\n")
    pinned = (tmp_path / "pins.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+-]+", line) for line in pinned)
    assert {line.partition("==")[0] for line in pinned} >= {"s3fs", "kafka-python", "typer"}


def test_the_action_puts_no_input_into_a_script() -> None:
    for script in action_scripts():
        assert "${{" not in script, "an input could be a command: it comes by the environment"
    names = set(action()["inputs"])
    used = set(re.findall(r"inputs\.([\w-]+)", text_of("github-action/action.yml")))
    assert used == names
    assert all("shell" in step for step in action()["runs"]["steps"] if "run" in step)


@pytest.mark.long
@pytest.mark.row("W-13")
def test_the_jobs_of_gitlab_plan_and_move(tmp_path: Path) -> None:
    spec_that(tmp_path, ["paths-stay"])
    spec = yaml.safe_load(text_of("gitlab-ci.yml"))[".stateshift"]["variables"]["SPEC"]
    _check, plan, apply = gitlab_jobs()
    for job in (plan, apply):
        for line in job["script"]:
            done = bash(line, tmp_path, SPEC=spec)
            assert done.returncode == 0, done.stderr
        for path in job["artifacts"]["paths"]:
            assert (tmp_path / path).exists()
    assert apply["when"] == "manual"
    assert (tmp_path / "moved" / "orders").is_dir()


# ---- Grafana


def test_the_dashboard_asks_for_metrics_that_there_are_and_for_nothing_else() -> None:
    dashboard = json.loads(text_of("grafana.json"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [variable["query"]["query"] for variable in dashboard["templating"]["list"][1:]]
    rules = [
        rule
        for group in yaml.safe_load(text_of("alerts.yaml"))["groups"]
        for rule in group["rules"]
    ]
    asked += [rule["expr"] for rule in rules]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    names = {name for query in asked for name in re.findall(r"\bstateshift_\w+", query)}
    assert names - set(METRICS) == set()
    assert {name for name in METRICS if "rebalance" in name} - names == {
        "stateshift_rebalance_planned_moves"
    }
    assert all("stateshift" in query for query in asked)


def test_the_panels_of_the_dashboard_have_numbers_and_places_of_their_own() -> None:
    panels = json.loads(text_of("grafana.json"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken
                taken.add((x, y))
