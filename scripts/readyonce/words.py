"""The words of generated parts in both languages, and the small pieces that pages are made of."""

from __future__ import annotations

from collections.abc import Iterable

from readyonce.catalog import Catalog
from readyonce.project import Language
from readyonce.schema import Run, Source, address_of

NO_BREAK_HYPHEN = "\N{NON-BREAKING HYPHEN}"

WORDS: dict[str, dict[Language, str]] = {
    "match": {"en": "trains right", "zh": "训练正确"},
    "diverge": {"en": "wrong gradients", "zh": "梯度错误"},
    "error": {"en": "fails", "zh": "报错"},
    "hang": {"en": "hangs", "zh": "卡住"},
    "match-sentence": {
        "en": "Parameters equal those of one process.",
        "zh": "参数与单进程一致。",
    },
    "match-command-sentence": {
        "en": "Parameters equal those of the same launch without checkpointing.",
        "zh": "参数与关闭梯度检查点的同一条命令一致。",
    },
    "diverge-sentence": {
        "en": "It finishes, and the parameters are off by {}.",
        "zh": "训练能跑完，但参数偏了 {}。",
    },
    "hang-sentence": {"en": "Ended at its time limit.", "zh": "到时限后被终止。"},
    "holds": {"en": "holds", "zh": "成立"},
    "fails": {"en": "does not hold", "zh": "不成立"},
    "depends": {"en": "depends", "zh": "看情况"},
    "open": {"en": "open", "zh": "未定"},
    "yes": {"en": "do it", "zh": "推荐"},
    "no": {"en": "do not", "zh": "不推荐"},
    "only if": {"en": "only if it fits", "zh": "符合条件时可用"},
    "run": {"en": "run here", "zh": "已实测"},
    "source": {"en": "source only", "zh": "据资料，未实测"},
    "inferred": {"en": "inferred", "zh": "推断"},
    "claims-yes": {"en": "Do", "zh": "推荐"},
    "claims-only if": {"en": "Only if it fits", "zh": "符合条件时可用"},
    "claims-no": {"en": "Do not", "zh": "不要做"},
    "claims-said": {"en": "Explanations and statements", "zh": "各种解释和说法"},
    "count": {"en": "{} of {} runs", "zh": "{1} 次运行中 {0} 次符合预测"},
    "its-proof": {"en": "Its proof", "zh": "依据"},
    "lab-book": {"en": "Lab book", "zh": "实验记录"},
    "lab-book-link": {
        "en": "[Lab book]({}){{ data-ro-moved }}: every run, and how to repeat it.",
        "zh": "[实验记录]({}){{ data-ro-moved }}：所有运行，以及如何重跑。",
    },
    "files": {"en": "Files", "zh": "全部文件"},
    "variant": {"en": "Variant", "zh": "变体"},
    "what": {"en": "What is set", "zh": "设置"},
    "setting": {"en": "Setting", "zh": "设置"},
    "outcome": {"en": "Outcome", "zh": "结果"},
    "affected": {"en": "Affected", "zh": "受影响"},
    "incident-affects": {"en": "Incident, and what it affects", "zh": "事故及受影响的版本"},
    "fixed": {"en": "Fixed in", "zh": "修复于"},
    "not-fixed": {"en": "not fixed", "zh": "未修复"},
    "bounds": {"en": ", ", "zh": " 且 "},
    "no-bounds": {"en": "every version seen", "zh": "见到的各个版本"},
    "framework": {"en": "Framework", "zh": "框架"},
    "incident": {"en": "Incident", "zh": "事故"},
    "you-see": {"en": "You see", "zh": "报错"},
    "silent": {"en": "No error, and it trains wrong", "zh": "没有报错，却训错了"},
    "by-symptom": {"en": "Find it by what you see", "zh": "按现象查"},
    "no-error": {"en": "no error: {}", "zh": "不报错：{}"},
    "fix": {"en": "Fix", "zh": "解决"},
    "wording": {"en": "Text", "zh": "报错原文"},
    "where": {"en": "When", "zh": "说明"},
    "silent-count": {
        "en": "{} runs, the parameters off by {} to {}.",
        "zh": "共 {} 次运行，参数偏差从 {} 到 {}。",
    },
    "still-count": {
        "en": "In {} more no trained parameter moved.",
        "zh": "另有 {} 次运行，可训练参数完全没有变化。",
    },
    "seen-in": {"en": "Seen in", "zh": "见于"},
    "sources": {"en": "Sources", "zh": "来源"},
    "proof": {"en": "{0} of {1} runs came out as this predicts.", "zh": "{1} 次运行中有 {0} 次符合这条说法的预测。"},
    "predicted": {"en": "Predicted", "zh": "预测"},
    "seen": {"en": "Seen", "zh": "实际"},
    "environment": {"en": "Environment", "zh": "环境"},
    "unusable": {"en": "run, not usable", "zh": "跑过，不能作数"},
    "not-run-here": {
        "en": "No stored run ends in it: the text is from the sources.",
        "zh": "存档的运行里没有出现过它，报错原文出自下列资料。",
    },
    "not-run": {"en": "not run", "zh": "未运行"},
    "not-run-yet": {"en": "not run yet", "zh": "还没有运行"},
    "versions": {"en": "Versions", "zh": "版本"},
    "ran": {"en": "What ran", "zh": "运行内容"},
    "before": {"en": "As reported", "zh": "不加解决办法"},
    "after": {"en": "With the fix", "zh": "加上解决办法"},
    "others": {"en": "Of the other {}, {} came out as predicted.", "zh": "其余 {} 次中有 {} 次符合预测。"},
    "seconds_per_step": {"en": "Time per step", "zh": "每步耗时"},
    "peak_memory": {"en": "Peak memory", "zh": "内存峰值"},
    "ratio-seconds_per_step": {
        "en": "On {device}, a step of `{variant}` takes {ratio} times that of `{against}`.",
        "zh": "在 {device} 上，`{variant}` 每步耗时是 `{against}` 的 {ratio} 倍。",
    },
    "ratio-peak_memory": {
        "en": "On {device}, `{variant}` takes {ratio} times the peak memory of `{against}`.",
        "zh": "在 {device} 上，`{variant}` 的内存峰值是 `{against}` 的 {ratio} 倍。",
    },
    "chart": {
        "en": "{quantities} of {file} on {device}, medians of {repeats} runs",
        "zh": "{file} 在 {device} 上的{quantities}，取 {repeats} 次运行的中位数",
    },
    "off": {"en": "Off by, of the tensor's largest value", "zh": "参数偏差（相对该张量的最大值）"},
    "ranks": {"en": "Ranks differ by", "zh": "各 rank 之间相差"},
    "equal": {"en": "equal", "zh": "一致"},
    "not-measured": {"en": "not measured", "zh": "未测"},
    "training": {"en": "How you train", "zh": "训练方式"},
    "recommended": {"en": "recommended", "zh": "推荐"},
    "any": {"en": "any", "zh": "不限"},
    "pick-strategy": {"en": "I train with", "zh": "并行策略"},
    "pick-use": {"en": "In one step", "zh": "一步之内"},
    "pick-tuning": {"en": "What is trained", "zh": "训练的参数"},
    "pick-version": {"en": "Version", "zh": "版本"},
    "pick-runs": {"en": "{} trains right in {} of {} runs.", "zh": "{}：{} / {} 次运行训练正确。"},
    "pick-others": {"en": "The others: ", "zh": "其余："},
    "pick-not-run": {"en": "{} is not run in this setting.", "zh": "{}：这种情况没有运行过。"},
    "pick-other": {"en": "{} in {} of {} runs", "zh": "{} {} / {} 次"},
    "pick-also": {"en": "Trains right otherwise: {}.", "zh": "其他设置训练正确的次数：{}。"},
    "pick-guard": {
        "en": "Where you cannot tell which runs are yours, [the guard](guard.md) stops your training before a wrong step.",
        "zh": "分不清自己属于哪一种时，[防护脚本](guard.md)会在走出错误的一步之前停下训练。",
    },
    "pick-row": {"en": "Its row in the table", "zh": "看表中这一行"},
    "verified": {
        "en": "Verified on {date} with {versions} on {device} ({backend}, world size {world_size}).",
        "zh": "验证于 {date}：{versions}，{device}（{backend}，{world_size} 个进程）。",
    },
    "one-gloo-thread": {
        "en": "gloo had [one thread]({}) for each process group, not two.",
        "zh": "每个进程组的 gloo 只用[一个线程]({})，而不是两个。",
    },
    "reported": {
        "en": "Reported on {hardware}: [{link}]({url}), {date}. Not run on this hardware.",
        "zh": "报告环境：{hardware}，[{link}]({url})，{date}。未在该硬件上运行。",
    },
    "old": {
        "en": "This evidence is more than 180 days old. Newer versions may behave otherwise.",
        "zh": "这些证据已超过 180 天，更新的版本可能表现不同。",
    },
    "withdrawn": {"en": "This incident is withdrawn.", "zh": "该事故已撤回。"},
    "summary": {
        "en": "{variants} variants, {runs} runs in this environment; each variant also alone, as a reader starts it.",
        "zh": "共 {variants} 个变体，在此环境运行 {runs} 次；每个变体还按读者的用法单独跑过一次。",
    },
    "one-device": {
        "en": "One process: of {all} variants {same} came out as with two.",
        "zh": "单进程：{all} 个变体中，{same} 个与两个进程时结果相同。",
    },
    "launched": {
        "en": "The framework's own command in {} variants, once each.",
        "zh": "框架自带的命令，共 {} 个变体，每个运行一次。",
    },
    "recorded": {
        "en": "Only the options of {} were read here; nothing was trained.",
        "zh": "这里只读取了 {} 的选项，没有训练。",
    },
    "date": {"en": "Date", "zh": "日期"},
    "change": {"en": "Change", "zh": "改动"},
    "news-incident": {"en": "New: {}", "zh": "新增：{}"},
    "news-fix": {"en": "Fix, now: {}", "zh": "解决办法改为：{}"},
    "news-affected": {"en": "Affected, now: {}", "zh": "受影响的版本改为：{}"},
    "news-verdict": {"en": "{} Verdict: {} → {}.", "zh": "{}判定：{} → {}。"},
    "news-claims": {"en": "Statements judged for the first time: {}.", "zh": "首次判定的说法：{} 条。"},
    "news-runs": {"en": "New runs: {} in {} ({}).", "zh": "新增运行：{} 次，环境 {}（{}）。"},
    "news-turned": {"en": "{} in {} ends in another way: {} → {}.", "zh": "{}（{}）的结果变了：{} → {}。"},
    "no-news": {
        "en": "No verdict, fix or version has changed since this program could read the files.",
        "zh": "自本程序能够读取这些文件以来，判定、解决办法和版本都没有变化。",
    },
    "no-history": {
        "en": "This copy was built without the project's full git history, so it cannot tell what changed.",
        "zh": "构建本站时没有完整的 git 历史，无法列出改动。",
    },
    "incidents": {"en": "Incidents", "zh": "事故"},
    "all": {"en": "All {} incidents", "zh": "全部 {} 个事故"},
    "more": {"en": " and {} more", "zh": "等，另有 {} 个"},
    "errors": {"en": "Errors", "zh": "错误"},
    "pages": {"en": "Guides", "zh": "指南"},
    "concepts": {"en": "Concepts", "zh": "原理"},
    "data": {"en": "Data", "zh": "数据"},
    "book short": {
        "en": "The short book. All proofs, addresses, lab books and files are in the whole one.",
        "zh": "精简版。全部证明、链接地址、实验记录和文件见完整版。",
    },
    "book whole": {
        "en": "The whole book: every page, with all proofs, lab books and files.",
        "zh": "完整版：所有页面，以及全部证明、实验记录和文件。",
    },
    "other stacks": {"en": "In other stacks", "zh": "其他框架的写法"},
    "rows elsewhere": {
        "en": "The table has {} rows; it is in the whole book.",
        "zh": "表格共 {} 行，见完整版。",
    },
    "edition": {
        "en": "Version {version}. Newest evidence: {date}.",
        "zh": "版本 {version}，最新证据：{date}。",
    },
    "contents": {"en": "Contents", "zh": "目录"},
    "addresses": {"en": "Addresses", "zh": "链接地址"},
    "judged-on": {"en": "Judged on {runs}: {scope}.", "zh": "依据 {runs}：{scope}。"},
    "every-run": {"en": "every run", "zh": "全部运行"},
    "runs-of": {"en": "all {} runs", "zh": "全部 {} 次运行"},
    "deciding-runs": {
        "en": "{} runs that would end otherwise if it were false",
        "zh": "{} 次运行（如果这条说法不对，结果就会不同的那些）",
    },
    "untold": {
        "en": "{} more do not tell whether they belong here, and are not counted.",
        "zh": "另有 {} 次运行无法判断是否属于这一类，未计入。",
    },
    "cases": {
        "en": "{count} runs here ended in this error. {cases}.",
        "zh": "本站有 {count} 次运行以这个错误结束。{cases}。",
    },
    "of-case": {"en": "{}: {}", "zh": "{}：{} 次"},
    "cases-overlap": {"en": "A run can be of two cases.", "zh": "一次运行可以同属两种情况。"},
    "cases-not-run": {"en": "Not run: {}.", "zh": "未运行：{}。"},
    "runs-count": {"en": "Runs", "zh": "运行次数"},
    "apart": {"en": "What tells them apart", "zh": "区别在于"},
    "still": {"en": "nothing moves", "zh": "参数没有变化"},
    "still-sentence": {
        "en": "It finishes, and the trained parameters equal their start.",
        "zh": "训练能跑完，但可训练参数与开始时相同。",
    },
    "commands": {"en": "Commands", "zh": "命令"},
    "library": {"en": "Library", "zh": "库"},
    "default": {"en": "Default", "zh": "默认"},
    "all-versions": {"en": "all", "zh": "全部"},
    "checkpointing-reentrant": {"en": "reentrant", "zh": "可重入"},
    "checkpointing-non-reentrant": {"en": "non-reentrant", "zh": "非可重入"},
    "checkpointing-none": {"en": "none", "zh": "无"},
    "set-find-unused": {
        "en": "Under DDP, where a step can leave a trained module out, also:",
        "zh": "用 DDP，并且某些步可能跳过可训练模块时，再加上：",
    },
    "stack-run": {
        "en": "*Run* on {date}, {count} processes on CPU, {versions}: {script}.",
        "zh": "*已实测*：{date}，CPU 上 {count} 个进程，{versions}，{script}。",
    },
    "stack-evidence": {"en": "*Run*: {link} in {environment}.", "zh": "*已实测*：{environment} 中的 {link}。"},
    "stack-source": {"en": "*From source*: {}.", "zh": "*来自源码*：{}。"},
    # How conditions are put together.
    "or": {"en": " or ", "zh": " 或 "},
    "or-else": {"en": "; or ", "zh": "；或者"},
    "to": {"en": "{} to {}", "zh": "{} 至 {}"},
    # Punctuation, which differs as much as words do.
    "colon": {"en": ": ", "zh": "："},
    "stop": {"en": ".", "zh": "。"},
    "semicolon": {"en": "; ", "zh": "；"},
    "comma": {"en": ", ", "zh": "，"},
    "between": {"en": ", ", "zh": "、"},
    "next": {"en": " ", "zh": ""},
    "label": {"en": "**{}.** {}", "zh": "**{}：**{}"},
    "aside": {"en": "{} ({})", "zh": "{}（{}）"},
}


def say(key: str, language: Language) -> str:
    return WORDS[key][language]


def chip(text: str, kind: str, id: str = "") -> str:
    return f'<span class="ro-chip ro-{kind}"' + (f' id="{id}"' if id else "") + f">{text}</span>"


def code(text: str) -> str:
    """Text as Markdown code, also where it has backticks itself."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def run_address(incident: str, variant: str, environment: str) -> str:
    """A run's place in its incident's lab book, as seen from the incidents' folder."""
    return f"{incident}/evidence.md#{run_id(variant, environment)}"


def run_id(variant: str, environment: str) -> str:
    """The anchor of a run in its incident's lab book."""
    return f"run-{variant}{in_environment(environment)}"


def in_environment(environment: str) -> str:
    """What names of anchors and sections end with for runs outside the current environment."""
    return "" if environment == "current" else f"-in-{environment.replace('.', '-')}"


def cite(source: Source, language: Language) -> str:
    place = source.place(language)
    return WORDS["aside"][language].format(f"[{place}]({address_of(place)})", source.says[language])


def cite_all(sources: Iterable[Source], language: Language) -> str:
    return say("semicolon", language).join(cite(source, language) for source in sources)


def family_link(catalog: Catalog, name: str | None, language: Language, to: str) -> str:
    family = catalog.families.get(name or "")
    if family is None:
        return f"`{name}`"  # `readyonce check` says so; here it must not hide the other problems
    return f"[{family.title[language]}]({to}{family.source})"


def number(run: Run) -> str:
    """A gradient error for reading: `13%` where it is wrong, `6e-08` where it is rounding, nothing where there is none."""
    if run.gradient_error is None:  # nothing was trained
        return ""
    if run.outcome == "diverge":
        return percent(run.gradient_error)
    return f"{run.gradient_error:.0e}".replace("-", NO_BREAK_HYPHEN)


def percent(value: float) -> str:
    return f"{float(f'{100 * value:.2g}'):g}%"


def table_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def table(rows: Iterable[Iterable[str]], kind: str = "") -> str:
    head, *body = map(list, rows)
    text = "".join(map(table_row, [head, ["---"] * len(head), *body]))
    return f'<div class="{kind}" markdown>\n\n{text}\n</div>\n' if kind else text
