"""What pages show of the lint: on its own page its answer for an example and which launches it knows; on Diagnose the rules
and the words for docs/theme/javascripts/lint.js, which judges a pasted launch. All are made when the site is."""

from __future__ import annotations

from typing import Any

from readyonce import rules as diagnosis
from readyonce.catalog import Catalog
from readyonce.lint import examples, report
from readyonce.lint import judge as judging
from readyonce.lint.launch import LAUNCHERS, Reader
from readyonce.lint.rules import compile_rules
from readyonce.markup import code, table
from readyonce.project import Language
from readyonce.words import say

EXAMPLE = "lint/example.sh"  # under snippets/
# Why a pasted text cannot be judged. In a terminal `shell` and `launch` say the same.
UNREADABLE = {
    "long": {
        "en": "it is larger than {} MiB: give the launch alone",
        "zh": "超过 {} MiB，请只给启动命令",
    },
    "quote": {"en": "a quote {} is not closed", "zh": "引号 {} 没有闭合"},
    "backtick": {"en": "a ` is not closed", "zh": "反引号没有闭合"},
    "bracket": {"en": "a {} is not closed", "zh": "{} 没有闭合"},
    "grown": {
        "en": "its variables expand to more than {} million characters",
        "zh": "变量展开后超过 {} 百万字符",
    },
    "zero": {"en": "it is no text: it holds zero bytes", "zh": "不是文本：里面有零字节"},
    "yaml": {
        "en": "its YAML or JSON cannot be read here; readyonce lint may read it in a terminal",
        "zh": "这里读不了这段 YAML 或 JSON，可以在终端里用 readyonce lint 试",
    },
    "anchor": {
        "en": "anchors, aliases and tags of YAML are not read here; readyonce lint reads them in a terminal",
        "zh": "这里不读 YAML 的锚点、别名和标签，请在终端里用 readyonce lint",
    },
    "many": {"en": "it opens more than {} brackets", "zh": "括号超过 {} 个"},
    "deep": {
        "en": "it holds more than {} values, or is nested more than {} deep",
        "zh": "值超过 {} 个，或者嵌套超过 {} 层",
    },
}
WORDS = {
    "launches": {"en": "A launch, not a log: {}", "zh": "这是启动命令，不是日志：{}"},
    "single": {
        "en": "it starts one process, so nothing here applies",
        "zh": "它只启动一个进程，这里的内容都不适用",
    },
    "unreadable": {
        "en": "A launch that cannot be read, line {}: {}",
        "zh": "这条启动命令读不了，第 {} 行：{}",
    },
    "level-error": {"en": "Error", "zh": "错误"},
    "level-warning": {"en": "Warning", "zh": "警告"},
    "level-note": {"en": "Note", "zh": "提示"},
    "option": {"en": "the option in line {}", "zh": "第 {} 行的选项"},
    "command": {"en": "the launch in line {}", "zh": "第 {} 行的启动命令"},
    "page": {"en": "Why", "zh": "依据"},
    "folded": {"en": "What a launch cannot show ({})", "zh": "启动命令看不出的情况（{}）"},
    "colon": {"en": ": ", "zh": "："},
    "versions-not-known": {
        "en": "The versions are not known here, so the answer is given by range. With yours: `readyonce lint FILE --with PACKAGE==VERSION` in a terminal.",
        "zh": "这里不知道版本，所以按版本范围回答。要按你的版本判断，请在终端里用 `readyonce lint FILE --with 包名==版本`。",
    },
    "alone": {
        "en": "From the text alone: files that it names are not read. The runs are toy models on CPU with two processes. Nothing was sent anywhere.",
        "zh": "只根据这段文字，不读它引用的文件。运行都是小模型，在 CPU 上用两个进程跑的。没有向任何地方发送内容。",
    },
}


def words() -> dict[str, dict[str, str]]:
    """All that the page says of a launch: the engine's own words, the command's where they are the same, and those above."""
    shared = ("add", "write", "guard", "with", "right", "next", *judging.LEVELS, *(f"{it}s" for it in judging.LEVELS))
    return {**{f"of-{it}": report.WORDS[it] for it in shared}, **judging.WORDS, **UNREADABLE, **WORDS}


def compiled(catalog: Catalog) -> dict[str, Any]:
    """The rules of the command and the words of the page. Addresses are those of the page's own links, so `site` is empty."""
    return {**compile_rules(catalog), "words": words(), "incidents": []}  # of code, Diagnose itself says where to look


def to_script(rules: dict[str, Any], language: Language) -> str:
    return f"window.readyonceLintRules = {diagnosis.to_json(diagnosis.only(rules, language))};\n"


def starts(catalog: Catalog) -> list[str]:
    """The words by which a text is told to hold a launch, before the lint is loaded."""
    found = set(LAUNCHERS)
    for framework in catalog.frameworks.values():
        found |= {it.removeprefix("python -m ").split()[0] for it in framework.commands}
        found |= set(framework.keys[-1:])
    return sorted(found)


def includes(catalog: Catalog, language: Language) -> dict[str, str]:
    rules = compile_rules(catalog)
    launches = Reader(rules["stacks"]).script("train.sh", catalog.text(catalog.root / "snippets" / EXAMPLE))
    found = [it for launch in launches for it in judging.judge(rules, launch, {}, language)]
    shown = report.shown(found, False)
    told = [report.text(shown, language), report.summary(found, launches, 1, False, language)]
    rows = [[say("library", language), say("commands", language)]]
    for framework in catalog.frameworks.values():
        if framework.commands and framework.launch:
            rows.append([framework.title[language], "<br>".join(map(code, framework.commands))])
    return {
        "lint/example.md": "\n".join(["```text", *told, "```", ""]),
        "lint/commands.md": table(rows),
        **examples.includes(catalog, rules, language),
    }
