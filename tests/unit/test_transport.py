"""Triage reads what NCCL and HCCL write themselves: who each line is of, who spoke first, and what that shows."""

import pytest

from readyonce.triage import layout, report, transport
from readyonce.triage.reading import BLOCK, read
from support.fleet import triage
from support.logs import ENGINE

JOINED = (
    "{host}:{pid}:{pid}1 [{device}] NCCL INFO ncclCommInitRank comm 0x55eb rank {rank} nranks {size} cudaDev {device} "
    "nvmlDev {device} busId 80 commId 0x{group} - Init COMPLETE\n"
)
CLOSED = "\n{host}:{pid}:99 [{device}] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n9<5569>\n"
OUT_OF_MEMORY = "\n{host}:{pid}:99 [{device}] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n"
COMPLETION = (
    "\n{host}:{pid}:99 [{device}] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.9<54862> with "
    "status=12 opcode=0 len=0 vendor err 129 (Recv)\n"
)
ENTERED = (
    "[INFO] HCCL({pid},python3):2025-10-24-11:16:52.725.226 [op_base.cc:1292] [{pid}]Entry-HcclCommInitRootInfoInner:"
    "ranks[{size}], rank[{rank}], rootinfo: host ip[127.0.0.1] port[60000] nicDeploy[1] "
    "identifier[{group}], deviceLogicId[{device}]\n"
)
TIMED_OUT = (
    "[ERROR] HCCL({pid},python3):2025-10-24-11:18:29.{ms}.235 [task_exception_handler.cc:908] [{pid}]"
    "[TaskExecStage][Timeout][Host]Task run failed, base information is streamID:[2], taskID[21]\n"
)
GROUP = "127.0.0.1%eth_60000_0_1761275812718970"


def of(rank, hosts=2, size=4, group="abc"):
    """What the lines of a rank name: two hosts of as many devices, whose process ids are the same."""
    each = size // hosts
    return {
        "host": f"n{rank // each}",
        "pid": 100 + rank % each,
        "device": rank % each,
        "rank": rank,
        "size": size,
        "group": group,
    }


def started(size=4, **more):
    return "".join(JOINED.format(**of(rank, size=size, **more)) for rank in range(size))


def one(files):
    (answer,) = triage({name: text.encode() for name, text in files.items()})
    return answer


def rows(answer, language="en"):
    return " | ".join(report.told_of(ENGINE, answer, language))


def test_who_a_line_of_nccl_is_of_and_who_warned_first():
    log = started() + "step 1\n" + CLOSED.format(**of(3)) + CLOSED.format(**of(0)) + CLOSED.format(**of(1))
    answer = one({"train.log": log})
    (said,) = answer.transport
    assert (said.first.rank, said.first.host, said.first.pid, said.first.device) == (3, "n1", 101, 1)
    assert (said.first.kind, said.why, said.quiet, said.peers) == ("closed", "line", [2], ["n9"])
    assert said.first.line == log[: log.index("NCCL WARN")].count("\n") + 1
    # A warning of the transport is a consequence, and no failure by itself.
    assert answer.outcome == "unclear" and answer.first is None
    told = rows(answer)
    assert "rank 3 (n1:101 [1])" in told and "Connection closed by remote peer n9" in told
    assert "a consequence" in told and "elsewhere" in told and "said nothing of the kind: 2" in told
    assert "后果" in rows(answer, "zh")
    told = answer.to_json()["transport"][0]
    assert (told["first"]["rank"], told["first"]["kind"], told["warned"], told["quiet"]) == (
        3,
        "closed",
        [0, 1, 3],
        [2],
    )


@pytest.mark.parametrize(
    "before, rank",
    [
        ("", 2),
        ("[2026-06-27 03:16:35] ", 2),
        ("[rank9]: ", 9),
        ("[1,9]<stdout>:", 9),
        ("(Worker pid=7) ", 2),
        ("2026-01-01T10:00:00Z stdout F ", 2),
        ("9: ", 9),
    ],
)
def test_what_stands_before_a_line_does_not_hide_it(before, rank):
    log = "".join(f"{before}{line}" for line in (started() + CLOSED.format(**of(2))[1:]).splitlines(keepends=True))
    (said,) = one({"train.log": log}).transport
    assert said.first.rank == rank
    assert (said.first.host, said.first.pid) == ("n1", 100)


@pytest.mark.parametrize(
    "line, kind",
    [
        (CLOSED, "closed"),
        (OUT_OF_MEMORY, "own"),
        (COMPLETION, "net"),
        (
            "{host}:{pid}:9 [{device}] misc/socket.cc:9 NCCL WARN Connect to 10.0.0.1<5> failed : Connection refused\n",
            "net",
        ),
        (
            "{host}:{pid}:9 [{device}] proxy.cc:1143 NCCL WARN Socket recv failed while polling for opId=0x7f\n",
            "closed",
        ),
        ("{host}:{pid}:9 [{device}] misc/socket.cc:9 NCCL WARN Timeout waiting for connection from peer\n", "late"),
        ("{host}:{pid}:9 [{device}] misc/ibvwrap.cc:173 NCCL WARN lib wrapper not initialized.\n", None),
        ("{host}:{pid}:9 [{device}] NCCL INFO [Service thread] Connection closed by localRank 0\n", None),
        ("a guide: NCCL WARN Connection closed by remote peer n9<5>\n", None),
    ],
)
def test_what_is_said_is_of_one_kind_and_ordinary_warnings_are_of_none(line, kind):
    answer = one({"train.log": started() + line.format(**of(1)) + "step 2\n"})
    assert [it.first.kind for it in answer.transport] == ([kind] if kind else [])
    assert answer.outcome == ("unclear" if kind else "fine")


def test_an_error_of_its_own_is_told_from_a_consequence():
    log = started() + CLOSED.format(**of(0)) + OUT_OF_MEMORY.format(**of(2)) + CLOSED.format(**of(3))
    answer = one({"train.log": log})
    assert [process.rank for process in answer.transport[0].own] == [2]
    assert "an error of its own, and no lost connection: rank 2 (n1:100 [0])" in rows(answer)
    assert "a consequence" not in rows(answer)


def test_the_rank_that_raised_stays_the_first_and_the_warning_a_consequence():
    files = {f"job/rank_{rank}.log": started() + CLOSED.format(**of(rank)) for rank in (0, 2, 3)}
    files["job/rank_1.log"] = "Traceback (most recent call last):\nKeyError: 'x'\n"
    answer = one(files)
    assert (answer.outcome, answer.first.rank, answer.first.how) == ("failed", 1, "raised")
    assert "a consequence" in rows(answer) and "said nothing" not in rows(answer)


def test_clocks_of_several_hosts_are_not_compared_and_lines_of_several_files_have_no_order():
    stamp = "[2026-06-27 03:16:{}] {}"
    warned = {rank: stamp.format(50 - rank, CLOSED.format(**of(rank))[1:]) for rank in range(4)}
    files = {f"job/rank_{rank}.log": JOINED.format(**of(rank)) + text for rank, text in warned.items()}
    answer = one(files)
    assert answer.transport[0].first is None and "cannot be told" in rows(answer)
    assert "no rank is silent" in rows(answer)
    (said,) = one({name: text for name, text in files.items() if name[-5] in "01"}).transport
    assert (said.first.rank, said.why, said.unnamed) == (1, "clock", 2)  # of one host, whose clock counts
    assert "that no line names: 2" in rows(one({name: text for name, text in files.items() if name[-5] in "01"}))


def test_a_rank_in_a_part_of_the_job_is_no_rank_of_the_job():
    part = "".join(JOINED.format(**of(rank, group="def") | {"rank": rank - 2, "size": 2}) for rank in (2, 3))
    (said,) = one({"train.log": part + started() + part + CLOSED.format(**of(3))}).transport
    assert said.first.rank == 3 and said.quiet == [0, 1, 2]
    # Where the whole job's communicator is not seen, only the file or a label knows the rank.
    assert triage({"job/rank_7.log": (CLOSED.format(**of(3))).encode()})[0].transport[0].first.rank == 7


# ------------------------------------------------------------------------------ Ascend


def plogs(folder, ranks=range(4), silent=(), group=GROUP):
    files = {}
    for rank in ranks:
        named = of(rank, hosts=1, group=group)
        files[f"{folder}/run/plog/plog-{named['pid']}_2025102411165240{rank}.log"] = ENTERED.format(**named)
        if rank not in silent:
            files[f"{folder}/debug/plog/plog-{named['pid']}_2025102411165250{rank}.log"] = TIMED_OUT.format(
                **named, ms=f"{500 - rank:03}"
            )
    return files


def test_ascend_s_logs_are_one_job_and_the_silent_rank_is_named():
    answer = one(plogs("x/ascend/log", silent={2}))
    (said,) = answer.transport
    assert (answer.layout, answer.outcome, answer.files) == ("ascend", "failed", 7)
    assert (said.library, said.first.rank, said.first.device, said.first.kind, said.why) == (
        "HCCL",
        3,
        3,
        "late",
        "clock",
    )
    assert said.quiet == [2] and (answer.first.how, answer.first.rank) == ("followed", 3)
    assert "HCCL: the first to speak was rank 3" in rows(answer) and "said nothing of the kind: 2" in rows(answer)


@pytest.mark.parametrize(
    "names",
    [("x/{}/ascend/log", "gpu-a", "gpu-b"), ("all.tar/{}", "10.0.0.1", "10.0.0.2"), ("l/{}", "node-0", "node-1")],
)
def test_hosts_in_one_communicator_are_one_job_whose_process_ids_may_be_equal(names):
    folder, *hosts = names
    files = {}
    for number, host in enumerate(hosts):
        for rank in (0, 1):
            named = of(2 * number + rank, group=GROUP)
            files[f"{folder.format(host)}/run/plog/plog-{named['pid']}_2025102411165240{rank}.log"] = ENTERED.format(
                **named
            )
            if named["rank"] != 1:
                files[f"{folder.format(host)}/debug/plog/plog-{named['pid']}_2025102411165240{rank}.log"] = (
                    TIMED_OUT.format(**named, ms=500)
                )
    answer = one(files)
    (said,) = answer.transport
    assert sorted((it.rank, it.host) for it in said.warned) == [(0, hosts[0]), (2, hosts[1]), (3, hosts[1])]
    assert said.quiet == [1] and said.first is None  # clocks of two hosts


def test_files_that_name_one_communicator_are_of_one_job_and_others_are_not():
    def log(host, group, more=""):
        return "".join(JOINED.format(**of(rank, group=group)) for rank in (2 * host, 2 * host + 1)) + more

    raised = "Traceback (most recent call last):\nKeyError: 'x'\n"
    files = {"a.log": log(0, "abc", CLOSED.format(**of(1))), "b.log": log(1, "abc", raised), "c.log": log(0, "def")}
    answers = {it.job: it for it in triage({name: text.encode() for name, text in files.items()})}
    assert answers.keys() == {"a.log", "c.log"} and answers["a.log"].files == 2 and answers["c.log"].outcome == "fine"
    assert (answers["a.log"].outcome, answers["a.log"].first.file) == ("failed", "b.log")
    mixed = {name: text.encode() for name, text in files.items()} | {"d.log": (log(0, "abc") + log(1, "def")).encode()}
    assert {it.job for it in triage(mixed)} == {"a.log", "c.log", "d.log"}  # a file of two jobs joins none
    calls = {
        f"h{host}/plog-10_2026010100000{host}.log": ENTERED.format(**of(host, group="group_name_3")) for host in (0, 1)
    }
    assert len(triage({name: text.encode() for name, text in calls.items()})) == 2  # a name that any job may have


CODED = "EI0006: [PID: {pid}] 2025-04-08-18:07:20.444.436 Getting socket times out. Reason: Remote Rank did not send the data\n"
NAMED = "[ERROR] 2025-04-08-18:07:20 (PID:{pid}, Device:{device}, RankID:{rank}) ERR01100 OPS call acl api failed.\n"


@pytest.mark.parametrize(
    "line, kind",
    [
        (CODED, "late"),
        (CODED.replace("EI0006", "EI0009").replace("Getting socket times out", "Transport init error"), "net"),
        (
            CODED.replace("EI0006", "EJ0001").replace(
                "Getting socket times out", "Failed to initialize the HCCP process"
            ),
            "own",
        ),
        (CODED.replace("EI0006", "EI0005"), "own"),
        (TIMED_OUT.replace("{ms}", "500"), "late"),
        (
            "[ERROR] HCCL({pid},):2025-12-04-14:46:07.911.316 [a.cc:54] [{pid}][Listen]listen fail. Please check the port status\n",
            "own",
        ),
        (
            "[ERROR] HCCL({pid},):2025-12-04-14:46:07.911.316 [a.cc:54] [{pid}][ServerInit]call trace: hcclRet -> 9, timeout\n",
            None,
        ),
        (
            "[INFO] HCCL({pid},):2025-12-04-14:46:07.911.316 [a.cc:54] [{pid}]HCCL_CONNECT_TIMEOUT set, timeout[120]\n",
            None,
        ),
    ],
)
def test_codes_and_errors_of_hccl_are_of_one_kind(line, kind):
    it = read(ENGINE, iter([(NAMED + line).format(pid=7, device=3, rank=11).encode()]), "a.log", layout.place("a.log"))
    (process,) = it.transport
    assert (process.kind or None, process.pid, process.device, process.rank) == (kind, 7, 3, 11)


@pytest.mark.parametrize("label", ["", "[rank1]: "])
def test_an_exception_that_ends_in_a_code_of_a_wait_is_a_consequence(label):
    """torch_npu prints the code below the exception, behind a line of its own."""
    raised = "RuntimeError: InnerRunOpApi:OpParamMaker.cpp:281 OPS function error: HcclAllreduce, error code is 6\n"
    lines = (raised + NAMED + CODED).format(pid=7, device=1, rank=1).splitlines(keepends=True)
    files = {"job/rank_0.log": "step 1\n", "job/rank_1.log": "".join(label + line for line in lines)}
    answer = one(files)
    assert (answer.outcome, answer.first.rank, answer.first.how) == ("failed", 0, "hung")
    assert [it.first.rank for it in answer.transport] == [1]
    other = "".join(lines[:2]) + "EI0005: [PID: 7] 2025-04-08-18:07:20.444.436 The arguments of a collective differ\n"
    answer = one(files | {"job/rank_1.log": other})
    assert (answer.first.rank, answer.first.how) == (1, "raised")


def test_processes_of_one_id_in_files_of_two_ranks_are_two():
    files = {f"job/rank_{rank}.log": TIMED_OUT.format(pid=7, ms=500) for rank in (0, 1)}
    assert [it.rank for it in one(files).transport[0].warned] == [0, 1]


def test_what_peers_hccl_names():
    line = "[ERROR] HCCL(7,a):2026-03-18-10:34:43.142.013 [t.cc:1] [7][Timeout]Transport init error! rank[1], remoteRank[6]-x\n"
    assert one({"a.log": line}).transport[0].peers == ["6"]


# ------------------------------------------------------------------------------ bad input


def test_lines_of_two_jobs_in_one_file_are_told_apart_by_their_communicators():
    other = {rank: of(rank, group="def") | {"host": f"m{rank // 2}"} for rank in range(4)}
    log = "".join(f"{JOINED.format(**of(rank))}{JOINED.format(**other[rank])}" for rank in range(4))
    log += CLOSED.format(**other[2]) + CLOSED.format(**of(1)) + CLOSED.format(**of(0)) + CLOSED.format(**other[3])
    answer = one({"train.log": log})
    assert [(it.first.host, it.first.member, it.quiet, it.ranks) for it in answer.transport] == [
        ("m1", 2, [0, 1], False),
        ("n0", 1, [2, 3], False),
    ]
    told = rows(answer)
    assert "2 sets of processes" in told and "number 2 of 4 in its communicator (m1:100 [0])" in told
    # Who names no communicator is of neither.
    answer = one({"train.log": log + CLOSED.format(host="q", pid=5, device=0)})
    assert len(answer.transport) == 3 and answer.transport[2].first.rank is None
    assert "NCCL_DEBUG=INFO" in rows(answer)


def test_two_processes_that_say_to_be_one_rank_are_of_two_jobs_and_no_rank_is_told():
    nameless = started().replace(" commId 0xabc", "")
    log = nameless + nameless.replace("n0:", "m0:").replace("n1:", "m1:") + CLOSED.format(**of(1))
    answer = one({"train.log": log})
    (said,) = answer.transport
    assert (said.mixed, said.quiet, said.unnamed, said.first.rank, said.first.host) == (4, [], 0, None, "n0")
    assert "several jobs or starts are mixed" in rows(answer) and "Give each job its own file" in rows(answer)


def test_a_label_that_says_another_rank_than_the_communicator_is_believed():
    log = "".join(f"[rank{4 + rank}]: {JOINED.format(**of(rank))}" for rank in range(4)) + CLOSED.format(**of(1))
    (said,) = one({"train.log": log}).transport
    assert said.first.rank == 5 and said.quiet == [4, 6, 7]


@pytest.mark.parametrize(
    "line", [JOINED.format(**of(1)), CLOSED.format(**of(1))[1:], ENTERED.format(**of(1)), NAMED.format(**of(1))]
)
def test_half_a_line_says_what_it_says_and_ends_nothing(line):
    for end in range(len(line)):
        for text in (started() + line[:end], line[end:] + CLOSED.format(**of(2))):
            it = read(ENGINE, iter([text.encode()]), "train.log", layout.place("train.log"))
            assert not it.fault
            for said in transport.said(it.transport):
                assert said.first is None or said.first.kind == "closed"


def test_ten_thousand_ranks():
    size = 10_000
    warned = "".join(CLOSED.format(**of(rank, hosts=1250, size=size)) for rank in range(size) if rank != 4321)
    log = "".join(JOINED.format(**of(rank, hosts=1250, size=size)) for rank in range(size)) + warned
    answer = one({"train.log": log})
    (said,) = answer.transport
    assert said.quiet == [4321] and said.first.rank == 0 and len(said.warned) == size - 1
    assert "said nothing of the kind: 4321" in rows(answer) and len(rows(answer)) < 2000


def test_more_processes_than_are_kept_are_named_in_a_sentence(monkeypatch):
    monkeypatch.setattr(transport, "MOST", 3)
    it = read(ENGINE, iter([(started() + CLOSED.format(**of(0))).encode()]), "a.log", layout.place("a.log"))
    assert len(it.transport) == 3 and "more than 3 processes" in it.fault
    many = "".join(JOINED.format(**of(0, group=f"{number:x}")) for number in range(50))
    it = read(ENGINE, iter([many.encode()]), "a.log", layout.place("a.log"))
    assert len(it.transport[0].groups) == 12


# ------------------------------------------------------------------------------ large files


def test_lines_of_a_start_count_wherever_they_are_and_wherever_blocks_end():
    noise = "{'loss': 0.5}\n" * (BLOCK // 14)
    log = (noise + started() + noise + CLOSED.format(**of(2)) + noise + noise).encode()
    whole = read(ENGINE, iter([log]), "train.log", layout.place("train.log"))
    for size in (65_537, BLOCK):
        parts = read(ENGINE, (log[at : at + size] for at in range(0, len(log), size)), "train.log", layout.place("a"))
        assert parts.transport == whole.transport
    (said,) = transport.said(whole.transport)
    assert said.first.rank == 2 and said.quiet == [0, 1, 3]
    assert log.split(b"\n")[said.first.line - 1].startswith(b"n1:100:99 ")
