"""The words of the report, in both languages."""

from __future__ import annotations

from readyonce.project import Language

WORDS: dict[str, tuple[str, str]] = {
    "title": ("Triage of training jobs", "训练任务排查报告"),
    "total": ("{} jobs, {} files, {}", "{} 个任务，{} 个文件，{}"),
    "failed": ("failed", "失败"),
    "recovered": ("recovered after a restart", "重启后恢复"),
    "fine": ("no failure", "没有失败"),
    "unclear": ("an error in passing", "途中有报错，未见失败"),
    "empty": ("empty", "空"),
    "known": ("Known errors", "已知报错"),
    "others": ("Other failures, by template", "其他失败，按模板分组"),
    "new": ("new", "新出现"),
    "jobs": ("Jobs", "任务"),
    "job": ("job", "任务"),
    "outcome": ("outcome", "结果"),
    "first": ("failed first", "最先失败"),
    "error": ("error", "报错"),
    "fix": ("fix", "解决办法"),
    "others-of-job": ("the other ranks", "其余 rank"),
    "rank": ("rank {}", "rank {}"),
    "no-rank": ("a process without a rank", "没有 rank 编号的进程"),
    "on": (" on {}", "（节点 {}）"),
    "alike": ("all of {} failed alike", "{} 报同样的错"),
    "raised": ("raised", "抛出异常"),
    "killed": ("was killed by signal {}", "被信号 {} 杀死"),
    "hung": ("hung: the others waited for it", "卡住：别的 rank 都在等它"),
    "lost": ("went without a word", "没留下任何信息就退出了"),
    "cut": ("raised; its log ends inside the traceback", "抛出异常，日志在 traceback 中间断了"),
    "exited": ("exited with code {}; its log does not say why", "以退出码 {} 退出，日志没有说明原因"),
    "stopped": ("was told to stop, by signal {}", "收到信号 {}，被要求停止"),
    "launcher": ("the launcher", "启动器"),
    "followed": (
        "only lost others or waited for them; who was first cannot be told from these logs",
        "只是失去连接或等待超时；从这些日志看不出谁最先失败",
    ),
    "follow": ("followed: {}", "跟着失败：{}"),
    "silent": ("silent: {}", "没有报错：{}"),
    "restarts": ("restarts: {}", "重启次数：{}"),
    "nodes": ("nodes: {}", "节点：{}"),
    "timeline": ("Timeline of ranks", "各 rank 时间线"),
    "line": ("line {}", "第 {} 行"),
    "count": ("jobs", "任务数"),
    "footer": (
        "From the logs alone, with fixed rules; nothing was sent anywhere.",
        "仅根据日志、按固定规则判断，没有向任何地方发送内容。",
    ),
}


def say(key: str, language: Language, *values: object) -> str:
    return WORDS[key][language == "zh"].format(*values)
